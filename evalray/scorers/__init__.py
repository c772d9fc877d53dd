"""Scorers: what an answer says, and whether it is right.  Rules first, a judge only where none decides."""

from evalray.judges import JudgePrompt
from evalray.scorers.base import Answer, JudgeCall, Scorer
from evalray.scorers.choice import extract_choice
from evalray.scorers.exact import ExactScorer, extract_stated
from evalray.scorers.gaia import GAIAScorer
from evalray.scorers.graded import FramesScorer, HLEScorer, ReasoningScorer, SimpleQAScorer
from evalray.scorers.guard import failed_score, score_of, verdict_of
from evalray.scorers.isolation import IsolationPool, ScorerSpec
from evalray.scorers.llm_judge import LLMJudgeScorer
from evalray.scorers.math import MathScorer, extract_math
from evalray.scorers.mcq import MCQScorer
from evalray.scorers.number import NumberScorer, extract_number, numbers_equal, parse_number
from evalray.scorers.registry import SCORERS, build_scorer, scorer_arguments, scorer_fingerprint
from evalray.scorers.text import Extraction, normalize_text
from evalray.scorers.verdict import verdict
from evalray.scorers.wildchat import WildChatScorer

__all__ = [
    "SCORERS",
    "Answer",
    "ExactScorer",
    "Extraction",
    "FramesScorer",
    "GAIAScorer",
    "HLEScorer",
    "IsolationPool",
    "JudgeCall",
    "JudgePrompt",
    "LLMJudgeScorer",
    "MCQScorer",
    "MathScorer",
    "NumberScorer",
    "ReasoningScorer",
    "Scorer",
    "ScorerSpec",
    "SimpleQAScorer",
    "WildChatScorer",
    "build_scorer",
    "extract_choice",
    "extract_math",
    "extract_number",
    "extract_stated",
    "failed_score",
    "normalize_text",
    "numbers_equal",
    "parse_number",
    "score_of",
    "scorer_arguments",
    "scorer_fingerprint",
    "verdict",
    "verdict_of",
]

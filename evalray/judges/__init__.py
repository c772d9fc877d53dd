"""Judges: how a model is asked for a verdict, and how its reply is read.  Strictly, both."""

from evalray.judges.formats import Verdict, VerdictFormat
from evalray.judges.prompts import JudgePrompt, fenced, judge_prompt
from evalray.judges.reading import read_reply

__all__ = [
    "JudgePrompt",
    "Verdict",
    "VerdictFormat",
    "fenced",
    "judge_prompt",
    "read_reply",
]

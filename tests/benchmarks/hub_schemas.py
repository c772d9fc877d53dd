"""The columns of each data set on the hub, with their types: what the samples must have, exactly."""

from __future__ import annotations

import pyarrow as pa

TEXT, INT, FLOAT, BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()

_VALIDATION = [
    ("Feedback", TEXT), ("Validator Revision Suggestion", TEXT), ("Is First Validation", BOOL),
    ("Post hoc agreement", TEXT), ("Sufficient Expertise?", TEXT), ("Understand the question?", TEXT),
    ("Question Difficulty", TEXT), ("Validator Answered Correctly", INT),
    ("Self-reported time (minutes)", FLOAT), ("Probability Correct", TEXT),
    ("Manual Correctness Adjustment", TEXT), ("Expert Validator", TEXT),
]  # fmt: skip
_LAY_VALIDATION = [
    ("Feedback", TEXT), ("Validator Answered Correctly", INT), ("Explanation", TEXT),
    ("Self-reported time (minutes)", FLOAT), ("Websites visited", TEXT), ("Probability Correct", TEXT),
    ("Manual Correctness Adjustment", pa.null()), ("Non-Expert Validator", TEXT),
]  # fmt: skip


def _gpqa() -> list[tuple[str, pa.DataType]]:
    texts = ["Question", "Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)), "Explanation"]
    columns = [(f"Pre-Revision {name}", TEXT) for name in texts]
    columns += [("Self-reported question-writing time (minutes)", FLOAT)]
    columns += [(name, TEXT) for name in texts]
    columns += [("Revision Comments (from Question Writer)", TEXT), ("Subdomain", TEXT)]
    columns += [("Writer's Difficulty Estimate", TEXT)]
    extra = ["Question", "Explanation", "Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3))]
    columns += [(f"Extra Revised {name}", TEXT) for name in extra]
    columns += [("Non-Expert Validator Accuracy", FLOAT), ("Majority Non-Expert Vals Incorrect", FLOAT)]
    columns += [("Expert Validator Accuracy", FLOAT), ("Record ID", TEXT), ("High-level domain", TEXT)]
    columns += [("Question Writer", TEXT)]
    for number in (1, 2):
        columns += [(f"{name}_EV_{number}", kind) for name, kind in _VALIDATION]
    for number in (1, 2, 3):
        columns += [(f"{name}_NEV_{number}", kind) for name, kind in _LAY_VALIDATION]
    # where the third is absent in places, whole numbers become floating point
    columns = [(n, FLOAT if n == "Validator Answered Correctly_NEV_3" else kind) for n, kind in columns]
    return [*columns, ("Expert Validator Disagreement Category", FLOAT), ("Canary String", TEXT)]


_MODERATED = [
    "harassment", "harassment/threatening", "harassment_threatening", "hate", "hate/threatening",
    "hate_threatening", "self-harm", "self-harm/instructions", "self-harm/intent", "self_harm",
    "self_harm_instructions", "self_harm_intent", "sexual", "sexual/minors", "sexual_minors", "violence",
    "violence/graphic", "violence_graphic",
]  # fmt: skip
_TOXIC = [
    "identity_attack", "insult", "obscene", "severe_toxicity", "sexual_explicit", "threat", "toxicity",
]  # fmt: skip
_TIME = pa.timestamp("us", tz="UTC")
_HEADER = pa.struct([("accept-language", TEXT), ("user-agent", TEXT)])
_TURN = pa.struct(
    [
        ("content", TEXT), ("country", TEXT), ("hashed_ip", TEXT), ("header", _HEADER), ("language", TEXT),
        ("redacted", BOOL), ("role", TEXT), ("state", TEXT), ("timestamp", _TIME), ("toxic", BOOL),
        ("turn_identifier", INT),
    ]
)  # fmt: skip
_MODERATION = pa.struct(
    [
        ("categories", pa.struct([(name, BOOL) for name in _MODERATED])),
        ("category_scores", pa.struct([(name, FLOAT) for name in _MODERATED])),
        ("flagged", BOOL),
    ]
)
_ANNOTATOR = pa.struct(
    [
        (name, TEXT)
        for name in (
            "Steps", "Number of steps", "How long did this take?", "Tools", "Number of tools",
        )
    ]
)  # fmt: skip
#: An image as the hub stores it.
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", TEXT)])

HUB_SCHEMAS: dict[str, pa.Schema] = {
    "supergpqa": pa.schema(
        [
            ("uuid", TEXT), ("question", TEXT), ("options", pa.list_(TEXT)), ("answer", TEXT),
            ("answer_letter", TEXT), ("discipline", TEXT), ("field", TEXT), ("subfield", TEXT),
            ("difficulty", TEXT), ("is_calculation", BOOL),
        ]
    ),
    "mmlu-pro": pa.schema(
        [
            ("question_id", INT), ("question", TEXT), ("options", pa.list_(TEXT)), ("answer", TEXT),
            ("answer_index", INT), ("cot_content", TEXT), ("category", TEXT), ("src", TEXT),
        ]
    ),
    "gpqa": pa.schema(_gpqa()),
    "math500": pa.schema(
        [
            ("problem", TEXT), ("solution", TEXT), ("answer", TEXT), ("subject", TEXT), ("level", INT),
            ("unique_id", TEXT),
        ]
    ),
    "simpleqa": pa.schema([("metadata", TEXT), ("problem", TEXT), ("answer", TEXT)]),
    "hle": pa.schema(
        [
            ("id", TEXT), ("question", TEXT), ("image", TEXT), ("image_preview", _IMAGE), ("answer", TEXT),
            ("answer_type", TEXT), ("author_name", TEXT), ("rationale", TEXT), ("rationale_image", _IMAGE),
            ("raw_subject", TEXT), ("category", TEXT), ("canary", TEXT),
        ]
    ),
    "natural-reasoning": pa.schema(
        [
            ("question", TEXT), ("reference_answer", TEXT),
            ("responses", pa.list_(pa.struct([("response_model", TEXT), ("response", TEXT)]))),
        ]
    ),
    "frames": pa.schema(
        [
            ("Unnamed: 0", INT), ("Prompt", TEXT), ("Answer", TEXT),
            *((f"wikipedia_link_{number}", TEXT) for number in range(1, 11)), ("wikipedia_link_11+", TEXT),
            ("reasoning_types", TEXT), ("wiki_links", TEXT),
        ]
    ),
    "wildchat": pa.schema(
        [
            ("conversation_hash", TEXT), ("model", TEXT), ("timestamp", _TIME),
            ("conversation", pa.list_(_TURN)), ("turn", INT), ("language", TEXT),
            ("openai_moderation", pa.list_(_MODERATION)),
            ("detoxify_moderation", pa.list_(pa.struct([(name, FLOAT) for name in _TOXIC]))),
            ("toxic", BOOL), ("redacted", BOOL), ("state", TEXT), ("country", TEXT), ("hashed_ip", TEXT),
            ("header", _HEADER),
        ]
    ),
    "gaia": pa.schema(
        [
            ("task_id", TEXT), ("Question", TEXT), ("Level", TEXT), ("Final answer", TEXT),
            ("file_name", TEXT), ("file_path", TEXT), ("Annotator Metadata", _ANNOTATOR),
        ]
    ),
}  # fmt: skip

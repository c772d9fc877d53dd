"""Whether a server that shortens prompts in silence has shortened this one.

Nothing here knows the model's tokenizer: lengths are estimates from the text alone.
"""

from __future__ import annotations

from evalray.types import GenerationRequest

#: From this code point on, scripts take about a token a character (Chinese, Japanese, Korean).
_DENSE_SCRIPTS = 0x2E80
_SHORTENED_SLACK = 64


def expected_tokens(request: GenerationRequest) -> int:
    """About how many tokens the messages take: four letters each, fewer outside the Latin script."""
    tokens = 0.0
    for message in request.messages:
        text = message["content"]
        if text.isascii():
            tokens += len(text) / 4
        else:
            dense = sum(ord(character) >= _DENSE_SCRIPTS for character in text)
            plain = sum(character < "\x80" for character in text)
            tokens += plain / 4 + dense * 0.8 + (len(text) - plain - dense) / 2
    return round(tokens)


def is_shortened(prompt_eval_count: int, expected: int, num_ctx: int) -> bool:
    """Whether the server cut the prompt.

    A prompt that fills the context left no room for an answer.  A server that cuts keeps half the
    context and a few tokens: a count there, of a prompt expected to come near the whole context, is
    one.  A low count alone is not: an older server leaves out of it what its prompt cache held.
    """
    if prompt_eval_count >= num_ctx:
        return True
    half = num_ctx // 2
    return half <= prompt_eval_count <= half + _SHORTENED_SLACK and expected >= 0.75 * num_ctx

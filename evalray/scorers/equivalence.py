"""Whether two mathematical expressions are equal by value, as ``math-verify`` and SymPy see it.

Imports the libraries on first use, takes unbounded time on hostile input and turns their timers
off: for use in a process that can be killed, and nowhere else.
"""

from __future__ import annotations

import logging
import re
from typing import Any

#: Beyond these the parser needs seconds to minutes, and no answer is that long.
_MAX_CHARS = 1_000
_MAX_DEPTH = 40


class UnreadableReferenceError(Exception):
    """The reference cannot be read as mathematics."""


class UnreadableAnswerError(Exception):
    """The answer cannot be read as mathematics."""


def expressions_equal(reference: str, candidate: str) -> bool:
    """Equal by value.

    Raises :class:`UnreadableReferenceError`, :class:`UnreadableAnswerError`, and whatever the library
    raises where it found no way to compare.
    """
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    from math_verify import verify

    gold = _parse(reference)
    if gold is None:
        raise UnreadableReferenceError(reference)
    target = _parse(candidate)
    if target is None:
        raise UnreadableAnswerError(candidate)
    if {_kind(reference), _kind(candidate)} == {"set", "tuple"}:
        return False
    if verify([gold], [target], allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True):
        return True
    return _equal_where_real(gold, target)


def _parse(expression: str) -> Any:
    """The SymPy object of an expression in LaTeX or plain notation; ``None`` if it cannot be read."""
    from math_verify import LatexExtractionConfig, parse

    if len(expression) > _MAX_CHARS or _depth(expression) > _MAX_DEPTH:
        return None
    parsed = parse(
        f"${to_latex(expression)}$",
        extraction_config=[LatexExtractionConfig()],
        fallback_mode="no_fallback",
        parsing_timeout=None,
        raise_on_error=True,
    )
    return parsed[0] if parsed and not isinstance(parsed[0], str) else None


def _kind(expression: str) -> str:
    """``{1, 2}`` is a set and ``(1, 2)`` a point or an interval; the library takes one for the other."""
    bare = re.sub(r"\\(?:left|right|big)(?![A-Za-z])|[$\s]", "", expression)
    if bare.startswith(("\\{", "{")):
        return "set"
    return "tuple" if bare.startswith(("(", "[")) and bare.endswith((")", "]")) and "," in bare else "other"


def _depth(text: str) -> int:
    depth = deepest = 0
    for char in text:
        if char in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")]}":
            depth -= 1
    return deepest


_UNICODE = {
    "\u2212": "-",
    "\u03c0": "\\pi ",
    "\u221e": "\\infty ",
    "\u2264": "\\le ",
    "\u2265": "\\ge ",
    "\u2260": "\\ne ",
    "\u00d7": "\\times ",
    "\u00b7": "\\cdot ",
    "\u222a": "\\cup ",
    "\u2229": "\\cap ",
    "\u2208": "\\in ",
    "\u2205": "\\emptyset ",
    "\u00b0": "^\\circ ",
    "\u00b2": "^{2}",
    "\u00b3": "^{3}",
    "\u221a": "sqrt",
}
_DELIMITER = re.compile(r"\\?\$|\\[()\[\]]")
_NAMES = re.compile(
    r"(?<![\\A-Za-z])(pi|theta|alpha|beta|gamma|infinity|inf|oo|arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln)(?![A-Za-z])"
)
_CALLED_FUNCTION = re.compile(r"(?<![\\A-Za-z])(sqrt|exp|abs)\s?(\()|(\^)(\()")
_ROOT_OF_ONE = re.compile(r"(?<![\\A-Za-z])sqrt\s?(\d+|[A-Za-z](?![A-Za-z]))")
_MIXED = re.compile(r"(?<![\d.,/])(\d+)\s+(\d+)/(\d+)(?![\d/])")
_LONG_EXPONENT = re.compile(r"\^(-?\d{2,}|-\d)")
_WRAPPED = {"sqrt": ("\\sqrt{", "}"), "exp": ("e^{", "}"), "abs": ("|", "|"), "^": ("^{", "}")}


def to_latex(expression: str) -> str:
    """Plain notation (``pi/2``, ``sqrt(1/n)``, ``2*x**2``, ``3 1/2``) as LaTeX; LaTeX stays as it is."""
    for char, command in _UNICODE.items():
        expression = expression.replace(char, command)
    expression = _DELIMITER.sub("", expression).strip().rstrip(".")
    expression = expression.replace("**", "^")
    expression = _wrap_calls(expression)
    expression = _ROOT_OF_ONE.sub(r"\\sqrt{\1}", expression)
    expression = _NAMES.sub(
        lambda match: "\\infty " if match[1] in ("infinity", "inf", "oo") else f"\\{match[1]} ", expression
    )
    expression = _MIXED.sub(r"\1\\frac{\2}{\3}", expression)
    if "\\" not in expression or "*" in expression:
        expression = _LONG_EXPONENT.sub(r"^{\1}", expression)
    expression = re.sub(r"\s(?:and|or)\s", ", ", expression)
    return expression.replace("*", "\\cdot ")


def _wrap_calls(expression: str) -> str:
    """``sqrt(...)`` to ``\\sqrt{...}`` and its like, innermost last, parentheses balanced."""
    position = 0
    while (call := _CALLED_FUNCTION.search(expression, position)) is not None:
        opening = call.end() - 1
        closing = _closing(expression, opening)
        position = call.end()
        if closing is None:
            continue
        before, after = _WRAPPED[call[1] or call[3]]
        inner = expression[opening + 1 : closing]
        expression = f"{expression[: call.start()]}{before}{inner}{after}{expression[closing + 1 :]}"
        position = call.start() + len(before)
    return expression


def _closing(text: str, opening: int) -> int | None:
    depth = 0
    for index in range(opening, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index
    return None


_PROBES = ((-2, -3, -5, -7), (-2, 3, -5, 7), (3, -2, 7, -5), (5, 2, 3, 7))


def _equal_where_real(left: Any, right: Any) -> bool:
    """Equal for positive variables, and nowhere else does a real value of one contradict the other.

    So ``sqrt(1/n)`` is ``1/sqrt(n)`` (both are real for positive ``n`` only), whereas ``|x|`` is
    not ``x`` and ``log(x^2)`` is not ``2 log(x)``.
    """
    import sympy  # type: ignore[import-untyped]

    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return False
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    if not symbols or left.free_symbols != right.free_symbols or len(symbols) > len(_PROBES[0]):
        return False
    positive = {symbol: sympy.Symbol(f"p{index}", positive=True) for index, symbol in enumerate(symbols)}
    if sympy.simplify(left.subs(positive) - right.subs(positive)) != 0:
        return False
    for probe in _PROBES:
        values = dict(zip(symbols, probe, strict=False))
        here, there = left.subs(values).evalf(), right.subs(values).evalf()
        if here.is_real is not there.is_real:
            return False
        if here.is_real and abs(here - there) > 1e-9 * (1 + abs(here)):
            return False
    return True

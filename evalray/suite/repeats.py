"""Cells of a matrix that are one run written twice: they would share a run directory, and are refused.

What tells two runs apart is what their fingerprint covers (:mod:`evalray.store.fingerprint`); the
data and the prompt are not read here, so what names them stands for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalray.engines.registry import ENGINES, engine_class
from evalray.errors import Problem
from evalray.store.fingerprint import run_fingerprint
from evalray.suite.cell import Cell

_APART = "to tell them apart give one another temperature, max_tokens, seed, system_prompt or engine_args"


def repeated_cells(cells: Sequence[Cell], source: str) -> Iterator[Problem]:
    """One problem for each entry of the suite that repeats the runs of one above it."""
    first: dict[str, Cell] = {}
    repeats: dict[tuple[int, int], list[tuple[Cell, Cell]]] = {}
    for cell in cells:
        if cell.unsupported:
            continue
        other = first.setdefault(_identity(cell), cell)
        if other is not cell:
            repeats.setdefault((other.model_index, cell.model_index), []).append((other, cell))
    for (above, below), pairs in repeats.items():
        other, cell = pairs[0]
        names = ", ".join(dict.fromkeys(cell.config.benchmark for _, cell in pairs))
        if above == below:
            message = (
                f"{names} stands twice for {cell.model.name}, with nothing that can change an answer between"
            )
            hint = "remove one, or give it another split, data, temperature or num_fewshot"
            yield Problem(source, "benchmarks", message, hint)
            continue
        differing = sorted(
            name
            for name in type(cell.model).model_fields
            if getattr(cell.model, name) != getattr(other.model, name)
        )
        only = f", from which only {', '.join(differing)} differs" if differing else ""
        message = f"{cell.model.name} makes the same runs as models[{above}]{only} ({names})"
        hint = f"remove one; {_APART}, or each a suite of its own"
        yield Problem(source, f"models[{below}]", message, hint)


def _identity(cell: Cell) -> str:
    config, engine = cell.config, cell.engine.name
    args = cell.model.engine_args
    return run_fingerprint(
        config,
        engine=engine,
        engine_args=engine_class(engine).answer_args(args) if engine in ENGINES else args,
        prompt_hash="",
        data_digest=repr((config.data, sorted(config.benchmark_args.items(), key=str))),
    )

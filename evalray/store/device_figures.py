"""What telemetry left beside a run's journals, joined to its rows: ``telemetry/samples.parquet`` and ``run.json``.

A row's figures are those of the request that stands: same sample, sent at the same moment.  Files that are
missing or cannot be read leave the figures unmeasured, with a warning, and nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from evalray.types import EvalResult

#: Columns that a row takes as they are.
_TAKEN = (
    "energy_joules", "prefill_energy_joules", "decode_energy_joules", "gpu_energy_joules", "cpu_energy_joules",
    "dram_energy_joules", "energy_window_joules", "power_watts", "gpu_utilization_pct", "gpu_seconds", "mfu_pct",
    "mbu_pct", "mfu_request_pct", "mbu_request_pct", "prefill_flops", "decode_flops", "flops", "energy_coverage",
    "counter_updates", "energy_low_resolution", "energy_method", "energy_scope", "telemetry_version", "warmup",
)  # fmt: skip
_FLAGS = frozenset({"energy_low_resolution", "warmup"})


class DeviceFigures:
    """Figures of a run's requests, by sample."""

    def __init__(self, run: dict[str, Any], columns: dict[str, Any], problems: list[str]) -> None:
        self.run = run
        """The run's own figures; empty where there are none."""
        self.problems = problems
        self._columns = columns
        positions, epochs = columns.get("position", ()), columns.get("epoch", ())
        sent = columns.get("sent_at", ())
        self._found = {
            (int(position), int(epoch), float(at)): number
            for number, (position, epoch, at) in enumerate(zip(positions, epochs, sent, strict=True))
        }

    @classmethod
    def read(cls, run_directory: Path) -> DeviceFigures:
        """Never raises: what cannot be read is in :attr:`problems`."""
        folder = Path(run_directory) / "telemetry"
        problems: list[str] = []
        run: dict[str, Any] = {}
        columns: dict[str, Any] = {}
        try:
            if (folder / "run.json").exists():
                value = json.loads((folder / "run.json").read_text(encoding="utf-8"))
                run = value if isinstance(value, dict) else {}
            if (folder / "samples.parquet").exists():
                columns = _columns(folder / "samples.parquet")
        except (OSError, ValueError, KeyError) as error:
            problems.append(f"{folder} cannot be read, so device figures are missing: {error}"[:300])
            columns = {}
        return cls(run, columns, problems)

    def join(self, row: EvalResult) -> None:
        """Give a row the figures of its request, and what follows from them."""
        number = self._found.get((row.position, row.epoch, row.sent_at)) if row.sent_at is not None else None
        if number is not None and not row.cached:
            for name in _TAKEN:
                values = self._columns.get(name)
                if values is not None:
                    setattr(row, name, _value(name, values[number]))
            row.estimated_flops = row.flops
        set_ratios(row)


def set_ratios(row: EvalResult) -> None:
    """Energy per token and intelligence per watt and joule, where they are measured and not given already."""
    energy, power = row.energy_joules, row.power_watts
    if energy is not None and row.completion_tokens and row.energy_per_output_token_joules is None:
        row.energy_per_output_token_joules = energy / row.completion_tokens
    if power and row.throughput_tok_per_sec is not None and row.throughput_per_watt is None:
        row.throughput_per_watt = row.throughput_tok_per_sec / power
    if row.score is not None:
        if power and row.ipw is None:
            row.ipw = row.score / power
        if energy and row.ipj is None:
            row.ipj = row.score / energy


def _columns(path: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, use_threads=False)
    except pa.ArrowException as error:
        raise ValueError(error) from error
    # Missing numbers are NaN here, texts None.
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name]
        if pa.types.is_string(column.type):
            encoded = column.dictionary_encode(null_encoding="encode").combine_chunks()
            words = encoded.dictionary.to_pylist()
            columns[name] = [words[code] for code in encoded.indices.to_pylist()]
        elif pa.types.is_boolean(column.type):
            columns[name] = column.cast(pa.int8()).cast(pa.float64()).to_numpy()
        else:
            columns[name] = column.cast(pa.float64()).to_numpy()
    if columns and not {"position", "epoch", "sent_at"} <= set(columns):
        raise ValueError("its columns position, epoch and sent_at are missing")
    return columns


def _value(name: str, value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    number = float(value)
    if np.isnan(number):
        return None
    if name in _FLAGS:
        return number == 1
    return int(number) if name == "telemetry_version" else number

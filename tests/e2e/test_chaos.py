"""Kills at random instants, through the real command: nothing is lost and nothing is done twice."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def chaos_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chaos", SCRIPTS / "chaos.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["chaos"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_killed_eight_times_equals_an_undisturbed_one() -> None:
    figures = chaos_script().chaos(kills=8, seed=20, samples=800, in_flight=16, latency_ms=50.0)
    assert sum(figures["kills"].values()) == 8
    assert all(figures["kills"].values()), "both drivers and actors should have been killed"

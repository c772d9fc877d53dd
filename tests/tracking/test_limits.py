"""Whatever the names and values, what is sent is what MLflow takes."""

from __future__ import annotations

import json
import math
import posixpath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalray.tracking import limits

ANY_TEXT = st.text(alphabet=st.characters(codec=None), max_size=400)


@settings(deadline=None)
@given(ANY_TEXT)
def test_every_key_becomes_one_that_mlflow_accepts(key: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    legal = limits.legal_key(key)
    _validate_metric_name(legal)
    assert 0 < len(legal) <= limits.MAX_KEY
    assert posixpath.normpath(legal) == legal


@pytest.mark.parametrize(
    ("key", "legal"),
    [
        ("accuracy", "accuracy"),
        ("latency_seconds/p50", "latency_seconds/p50"),
        ("pass@1", "pass_at_1"),
        ("gpu %", "gpu pct"),
        ("a(b)", "a_b_"),
        ("/a//b/", "a/b"),
        ("../up", "up"),
    ],
)
def test_a_key_keeps_what_is_legal_of_it(key: str, legal: str) -> None:
    assert limits.legal_key(key) == legal


@settings(deadline=None)
@given(st.lists(ANY_TEXT, unique=True, max_size=30))
def test_different_keys_stay_different(keys: list[str]) -> None:
    renamed = limits.legal_keys(dict.fromkeys(keys, 0))
    assert len(set(renamed.values())) == len(keys)


def test_long_keys_that_differ_only_at_their_end_stay_different() -> None:
    renamed = limits.legal_keys({"x" * 300 + "a": 0, "x" * 300 + "b": 0})
    assert len(set(renamed.values())) == 2
    assert {len(key) for key in renamed.values()} == {limits.MAX_KEY}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_nonfinite_metric_becomes_a_tag(value: float) -> None:
    metrics, tags = limits.split_metrics({"a": value, "b": 1, "c": None})
    assert metrics == {"b": 1.0}
    assert tags == {"evalray.nonfinite.a": str(value)}


def test_batches_stay_under_every_limit_and_carry_everything() -> None:
    metrics = {f"m{i}": float(i) for i in range(2500)}
    params = {f"p{i}": "é" * 7000 for i in range(250)}
    tags = {f"t{i}": "y" * 9000 for i in range(150)}
    found = list(limits.batches(metrics, params, tags))
    assert {k for b in found for k in b.metrics} == set(metrics)
    assert {k for b in found for k in b.params} == set(params)
    assert {k for b in found for k in b.tags} == set(tags)
    for batch in found:
        assert len(batch.metrics) <= 1000
        assert len(batch.params) <= 100
        assert len(batch.tags) <= 100
        assert len(batch.metrics) + len(batch.params) + len(batch.tags) <= 1000
        assert len(json.dumps([batch.metrics, batch.params, batch.tags])) < 1_000_000
        assert all(len(value) <= 6000 for value in batch.params.values())
        assert all(len(value) <= 8000 for value in batch.tags.values())


def test_a_value_that_is_cut_says_so() -> None:
    cut = limits.fit("x" * 9000, 6000)
    assert len(cut) == 6000
    assert "cut" in cut[-60:]


@settings(deadline=None)
@given(ANY_TEXT)
def test_stored_text_has_no_surrogates_and_no_nul(text: str) -> None:
    assert "\x00" not in limits.storable(text).encode().decode()


def test_nothing_to_send_is_no_batch() -> None:
    assert list(limits.batches()) == []

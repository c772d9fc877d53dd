from __future__ import annotations

from typing import Any, Protocol

import pytest

from evalray.types import EvalRecord


class RecordFactory(Protocol):
    def __call__(self, reference: str, **metadata: Any) -> EvalRecord: ...


@pytest.fixture
def record() -> RecordFactory:
    """A record with a reference and metadata."""

    def make(reference: str, **metadata: Any) -> EvalRecord:
        return EvalRecord("r1", "What?", reference, "reasoning", metadata=metadata)

    return make

"""A real sweep, scraped while it runs."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from evalray.api import run_plan
from evalray.definition import Benchmark
from evalray.deployments import Deployment, PlannedRun
from evalray.engines.base import EngineConfig
from evalray.plan import Plan
from evalray.prometheus import server
from evalray.runtime import SweepProgress
from evalray.suite.models import Telemetry
from evalray.types import RunConfig

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

_SAMPLES = 40


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    folder = tmp_path / "b"
    folder.mkdir()
    rows = [{"id": f"r{n}", "question": f"what is {n} {n}", "answer": str(n)} for n in range(_SAMPLES)]
    (folder / "sample.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {"id": "id", "reference": "answer"}
    benchmark = Benchmark("b", folder, fields=fields, prompt_template="{{ question }}", scorer="number")
    engine = "runtime.scripted_engine:ScriptedEngine"
    config = EngineConfig(
        "m", engine, max_concurrency=4, engine_args={"seconds": 0.2, "cost": 0.5}, max_retries=0
    )
    run = PlannedRun(RunConfig("b", "jarvis-direct", "m", scorer="number", max_tokens=16), benchmark)
    deployment = Deployment("m", config, cpus_per_replica=0.1, runs=[run])
    made = Plan("test", "", "sweep", tmp_path / "sweep", {}, [deployment], tracking_enabled=False)
    made.telemetry = Telemetry(prometheus_port=0)
    return made


def _samples(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=30) as reply:
        text = reply.read().decode()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_sweep_is_scraped_while_it_runs_and_no_longer(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(server, "COST_SHARE", float("inf"))
    progress, ended = SweepProgress(), threading.Event()
    seen: list[dict[str, float]] = []

    def scrape() -> None:
        while not ended.wait(0.05):
            if progress.prometheus_url is not None:
                seen.append(_samples(progress.prometheus_url))

    scraping = threading.Thread(target=scrape)
    scraping.start()
    try:
        said: list[str] = []
        result = run_plan(plan, progress=progress, on_message=said.append)
    finally:
        ended.set()
        scraping.join()
    assert (result.exit_code, result.errors) == (0, [])
    under_way = [each for each in seen if 0 < each.get("evalray_samples_done_total", 0) < _SAMPLES]
    assert under_way
    assert any(each["evalray_replica_requests_in_flight"] > 0 for each in under_way)
    assert all(each["evalray_samples_planned"] == _SAMPLES for each in under_way)
    assert all(
        each["evalray_output_tokens_total"] == 4 * each["evalray_cost_usd_total"] for each in under_way
    )
    done = [each["evalray_samples_done_total"] for each in under_way]
    assert done == sorted(done)
    url = progress.prometheus_url
    assert url is not None
    assert any(url in line for line in said)
    with pytest.raises(urllib.error.URLError):
        _samples(url)


def test_a_port_in_use_costs_the_metrics_and_nothing_else(plan: Plan) -> None:
    other = server.MetricsServer(SweepProgress(), "127.0.0.1", 0)
    try:
        port = int(other.url.rpartition(":")[2].removesuffix("/metrics"))
        plan.telemetry = Telemetry(prometheus_port=port)
        said: list[str] = []
        progress = SweepProgress()
        result = run_plan(plan, progress=progress, on_message=said.append)
    finally:
        other.close()
    assert result.exit_code == 0
    assert sum(str(port) in line for line in said) == 1
    assert progress.prometheus_url is None

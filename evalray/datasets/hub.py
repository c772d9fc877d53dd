"""Reaching the Hugging Face hub: who may read what, and what to do where it is out of reach.

One request tells, before anything is downloaded, whether a data set is there and open to this
account.  Where the hub cannot be reached, or a token is missing, only what is in the local cache
is tried: that takes no network, and fails at once instead of after half a minute of retries.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from evalray.errors import DatasetError

Loaded = TypeVar("Loaded")

#: For the one request that asks whether a data set may be read.
REACH_SECONDS = 8.0
_OUT_OF_REACH = {"OfflineModeIsEnabled", "ConnectionError", "ConnectError", "LocalEntryNotFoundError"}
_switch = threading.RLock()


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A data set's name on the hub, and what its benchmark says about it."""

    name: str
    revision: str | None = None
    gated: bool = False


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a data set can be read from, and why not from the hub."""

    place: Literal["hub", "cache"]
    reason: str = ""


def import_hub() -> Any:
    """The ``huggingface_hub`` package, silenced.  Raises :class:`DatasetError` without it."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise DatasetError(f"the hub needs the package huggingface_hub: {error}") from error
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    # what it says of retries would break into the display; errors reach the user as exceptions
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    return huggingface_hub


def has_token() -> bool:
    """Whether an account is known: ``HF_TOKEN``, or a login on this machine."""
    return bool(import_hub().get_token())


def is_offline() -> bool:
    """Whether the user forbids the network: ``HF_HUB_OFFLINE`` or ``HF_DATASETS_OFFLINE``."""
    asked = (os.environ.get(name, "") for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"))
    return bool(import_hub().constants.HF_HUB_OFFLINE) or any(
        value.strip().upper() in ("1", "ON", "YES", "TRUE") for value in asked
    )


def reach(dataset: HubDataset) -> Reach:
    """Asks the hub whether this account may read the data set; nothing is downloaded.

    Raises :class:`DatasetError`: gated, or not there.
    """
    if is_offline():
        return Reach("cache", "offline mode is set")
    if dataset.gated and not has_token():
        return Reach("cache")
    error = _auth_check(dataset.name)
    if error is None:
        return Reach("hub")
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds or ("RepositoryNotFoundError" in kinds and dataset.gated):
        raise gated_error(dataset.name) from error
    if "RepositoryNotFoundError" in kinds:
        raise not_found_error(dataset.name) from error
    if kinds & {"HTTPStatusError", "HfHubHTTPError"}:
        # it answers, though not to this question: loading will tell
        return Reach("hub")
    return Reach("cache", " ".join(str(error).split())[:120] or type(error).__name__)


def _auth_check(name: str) -> BaseException | None:
    """What the hub says against reading ``name``.  In a thread: looking up a host has no deadline."""
    hub = import_hub()
    outcome: list[BaseException | None] = []

    def ask() -> None:
        try:
            hub.HfApi().auth_check(name, repo_type="dataset")
            outcome.append(None)
        except Exception as error:  # noqa: BLE001 -- told apart by the caller
            outcome.append(error)

    thread = threading.Thread(target=ask, name="evalray-hub-reach", daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    return outcome[0] if outcome else TimeoutError(f"no answer within {REACH_SECONDS:g} s")


def from_hub(dataset: HubDataset, load: Callable[[], Loaded]) -> Loaded:
    """``load()``, from the hub or from the local cache.

    What it raises itself is left to the caller where the hub was reached; where it was not, it is
    a :class:`DatasetError` that says so.
    """
    found = reach(dataset)
    if found.place == "hub":
        with _switch:
            return load()
    if not _may_be_cached(dataset.name):
        raise _not_here(dataset, found.reason)
    try:
        with _offline():
            return load()
    except Exception as error:
        if not is_unreachable(error):
            raise  # it is in the cache, and something else is wrong with it
        raise _not_here(dataset, found.reason) from error


def _not_here(dataset: HubDataset, reason: str) -> DatasetError:
    if dataset.gated and not has_token():
        return gated_error(dataset.name)
    return unreachable_error(dataset.name, reason)


def _may_be_cached(name: str) -> bool:
    """Whether either cache has anything of this data set's owner; false only where it has nothing."""
    import datasets

    owner = name.partition("/")[0]
    hub_cache, tables = Path(import_hub().constants.HF_HUB_CACHE), Path(datasets.config.HF_DATASETS_CACHE)
    return any(hub_cache.glob(f"datasets--{owner}*")) or any(tables.glob(f"{owner}*"))


def error_chain(error: BaseException) -> list[BaseException]:
    """An error and what it came from."""
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links


def is_unreachable(error: BaseException) -> bool:
    """Whether it was raised for want of a network."""
    return bool(_OUT_OF_REACH & {type(link).__name__ for link in error_chain(error)})


@contextmanager
def _offline() -> Iterator[None]:
    """Neither ``datasets`` nor ``huggingface_hub`` uses the network meanwhile.

    Their switches are the process's: no load from the hub runs at the same time.
    """
    import datasets

    constants = import_hub().constants
    with _switch:
        before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
        try:
            yield
        finally:
            constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def snapshot(dataset: HubDataset, patterns: list[str]) -> Path:
    """The files of a data set's repository that match ``patterns``, in the local cache.

    Raises :class:`DatasetError`.
    """
    hub = import_hub()

    def download() -> str:
        path: str = hub.snapshot_download(
            dataset.name, repo_type="dataset", revision=dataset.revision, allow_patterns=patterns
        )
        return path

    try:
        return Path(from_hub(dataset, download))
    except DatasetError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        if type(error).__name__ == "RevisionNotFoundError":
            text = f"no revision {dataset.revision!r}; set revision to a commit, tag or branch of it"
            raise DatasetError(f"{dataset.name}: {text}") from error
        raise DatasetError(f"{dataset.name} cannot be downloaded: {type(error).__name__}: {text}") from error


def gated_error(name: str) -> DatasetError:
    """What to accept, and which token is missing."""
    lacks = "the token that is set has no access" if has_token() else "HF_TOKEN is not set"
    return DatasetError(
        f"{name} is gated: accept its terms at https://huggingface.co/datasets/{name} "
        f"and set HF_TOKEN to a token of that account ({lacks})",
        gated=True,
    )


def not_found_error(name: str) -> DatasetError:
    return DatasetError(
        f"no dataset {name!r} on the hub, or it is private: check the name, or set HF_TOKEN if it is yours"
    )


def unreachable_error(name: str, reason: str = "") -> DatasetError:
    because = f" ({reason})" if reason else ""
    return DatasetError(
        f"the hub cannot be reached and {name} is not in the local cache: "
        f"connect once, or point data at a local file{because}"
    )

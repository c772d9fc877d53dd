"""One process at a time per sweep directory.

An advisory ``flock`` on ``.lock``: the kernel drops it when its holder dies, however it dies, so a
crash leaves nothing to clean up.  The file says who holds it, for the message a second process gets.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import warnings
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evalray.errors import StoreError
from evalray.store.jsonlines import store_errors

LOCK_NAME = ".lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()


class DirectoryLock:
    """Holds ``directory`` from construction to :meth:`release`.

    Raises :class:`StoreError` naming the holder, or that the directory is not writable.  Where the
    file system has no locks, it warns, and refuses only while a process of this host named in the file lives.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK_NAME
        with store_errors(self.path):
            self._descriptor: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._acquire(directory)
            with store_errors(self.path):
                _write_holder(self._descriptor)
        except BaseException:
            self._close()
            raise
        _held.add(self)

    def _acquire(self, directory: Path) -> None:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _locked(directory, _read_holder(self._descriptor)) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                with store_errors(self.path):
                    raise
            holder = _read_holder(self._descriptor)
            if _is_alive_here(holder):
                raise _locked(directory, holder) from error
            warnings.warn(
                f"{directory}: this file system has no file locks ({error.strerror}); "
                "make sure that no other evalray writes to this directory",
                RuntimeWarning,
                stacklevel=4,
            )

    def release(self) -> None:
        """Let go.  Safe to call twice."""
        if self._descriptor is not None:
            # For file systems without locks: an empty file names no holder.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
        self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        _held.discard(self)


def _close_inherited_locks() -> None:
    """A forked child must not keep the lock alive after its parent was killed."""
    for lock in list(_held):
        lock._close()


os.register_at_fork(after_in_child=_close_inherited_locks)


def _write_holder(descriptor: int | None) -> None:
    assert descriptor is not None
    now = datetime.now(UTC).isoformat(timespec="seconds")
    holder = {"host": socket.gethostname(), "pid": os.getpid(), "started_at": now}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _read_holder(descriptor: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _locked(directory: Path, holder: dict[str, Any]) -> StoreError:
    host, pid, since = (holder.get(key, "?") for key in ("host", "pid", "started_at"))
    return StoreError(
        f"{directory}: locked by {host} pid {pid} since {since}; "
        "wait for that process or stop it; a run of another --sweep-id can go beside it"
    )


def _is_alive_here(holder: dict[str, Any]) -> bool:
    pid = holder.get("pid")
    if holder.get("host") != socket.gethostname() or not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

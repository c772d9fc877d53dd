"""An object of the caller's own, packed for an actor that may be on another machine."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from evalray.errors import ConfigError, Problem


def pickled(value: Any) -> bytes:
    """``value`` as bytes, with the code of its module where that is no installed package.

    Raises :class:`ConfigError` for one that cannot be sent.
    """
    # By name: it has no types, and comes with MLflow.
    cloudpickle = importlib.import_module("cloudpickle")

    module = sys.modules.get(type(value).__module__)
    file = getattr(module, "__file__", None) or ""
    by_value = module is not None and bool(file) and not _is_installed(file, module.__name__)
    try:
        if by_value:
            cloudpickle.register_pickle_by_value(module)
        packed: bytes = cloudpickle.dumps(value)
    except Exception as error:  # whatever an object's own reduction raises
        hint = "open connections and locks in the first call, or give it as 'module:Class'"
        message = f"{type(value).__name__} cannot be sent to an engine actor: {error}"
        raise ConfigError([Problem("backend", "", message, hint)]) from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
    return packed


def _is_installed(file: str, name: str) -> bool:
    return "site-packages" in file or name.partition(".")[0] in {"evalray", *sys.stdlib_module_names}

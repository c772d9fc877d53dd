"""MLflow: a copy of the sweep directory that can be filled again at any time.

``sync_sweep`` brings it up to date, ``sync_sweeps`` with all of a folder; ``MlflowTracker`` does so while a sweep runs, from a process of
its own.  Importing this package imports no MLflow.
"""

from evalray.tracking.sync import SyncReport, sync_sweep
from evalray.tracking.sync_path import SyncedSweep, sync_sweeps
from evalray.tracking.tracker import MlflowTracker, TrackingStatus
from evalray.tracking.uri import (
    artifact_root,
    is_server,
    mask_uri,
    resolve_tracking_uri,
    ui_address,
    ui_command,
)

__all__ = [
    "MlflowTracker",
    "SyncReport",
    "SyncedSweep",
    "TrackingStatus",
    "artifact_root",
    "is_server",
    "mask_uri",
    "resolve_tracking_uri",
    "sync_sweep",
    "sync_sweeps",
    "ui_address",
    "ui_command",
]

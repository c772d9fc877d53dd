"""A running sweep's counters and its devices' readings, served to Prometheus by the driver's process."""

from evalray.prometheus.collector import SweepCollector
from evalray.prometheus.server import MetricsServer, serving_metrics

__all__ = ["MetricsServer", "SweepCollector", "serving_metrics"]

"""The endpoint that Prometheus scrapes: ``GET /metrics``, from a thread of its own in the driver's process.

It can neither slow nor outlive a sweep: the text is worked out at most once a second however many ask, a
reader has seconds to take it, only so many are served at once, and everything runs in daemon threads.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from evalray.prometheus.collector import SweepCollector
from evalray.runtime.progress import SweepProgress

PATH = "/metrics"
#: The text is worked out anew after so long, and after longer where that would take more than this share of the
#: interpreter from the driver: a thousand series take some 20 ms.
FRESH_SECONDS = 1.0
COST_SHARE = 0.02
#: A client has so long to ask, and so long to take the answer.
REQUEST_SECONDS = 5.0
#: Both together, also of one that asks or takes a byte at a time.
WHOLE_SECONDS = 10.0
MAX_REQUESTS = 8
_LOOK_SECONDS = 0.5
_CLOSE_SECONDS = 2.0
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@contextlib.contextmanager
def serving_metrics(
    progress: SweepProgress, host: str, port: int, say: Callable[[str], None]
) -> Iterator[None]:
    """Serve ``progress`` meanwhile, and say where.

    An address that cannot be had is said, and the sweep goes on: it is worth more than its metrics.
    """
    server = None
    try:
        server = MetricsServer(progress, host, port)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that no resolver takes
        reason = getattr(error, "strerror", None) or error
        say(f"no metrics for Prometheus, the sweep goes on: {host} port {port}: {reason}; {_advice(error)}")
    else:
        progress.prometheus_url = server.url
        say(f"metrics for Prometheus at {server.url}")
    try:
        yield
    finally:
        if server is not None:
            server.close()


def _advice(error: Exception) -> str:
    unknown = isinstance(error, socket.gaierror | UnicodeError)
    if unknown or (isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL):
        return "prometheus_host must be an address of this machine"
    return "--prometheus-port 0 takes any free one"


class MetricsServer:
    """Serves from its creation to :meth:`close`.  Raises ``OSError`` where it cannot listen."""

    def __init__(self, progress: SweepProgress, host: str, port: int) -> None:
        self._server = _Server(host, port, _Exposition(progress))
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}{PATH}"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="evalray-prometheus", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more.  Returns within seconds, whoever is still reading."""
        self._stopping.set()
        self._thread.join(_CLOSE_SECONDS)
        self._server.server_close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the socket is gone
            while not self._stopping.is_set():
                self._server.handle_request()


class _Exposition:
    """The metrics as text, at most some seconds old."""

    def __init__(self, progress: SweepProgress) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(SweepCollector(progress))
        self._lock = threading.Lock()
        self._text = b""
        self._stale_at = float("-inf")

    def text(self) -> bytes:
        with self._lock:
            began = time.monotonic()
            if began >= self._stale_at:
                self._text = generate_latest(self._registry)
                ended = time.monotonic()
                self._stale_at = ended + max(FRESH_SECONDS, (ended - began) / COST_SHARE)
            return self._text


class _Server(ThreadingMixIn, TCPServer):
    """A thread a request, so many at most; who comes on top is turned away."""

    allow_reuse_address = True
    daemon_threads = True
    timeout = _LOOK_SECONDS

    def __init__(self, host: str, port: int, exposition: _Exposition) -> None:
        self.exposition = exposition
        self._room = threading.BoundedSemaphore(MAX_REQUESTS)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, *_, address = found[0]
        super().__init__((str(address[0]), int(address[1])), _Handler)
        # A client that is gone before it is accepted must not leave the thread waiting for the next.
        self.socket.settimeout(_LOOK_SECONDS)

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:
            time.sleep(0.1)  # no descriptors left: without a pause it would be tried without end
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        hang_up = threading.Timer(WHOLE_SECONDS, _hang_up, [request])
        hang_up.daemon = True
        hang_up.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            hang_up.cancel()
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is nothing to speak of."""


def _hang_up(request: Any) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS
    server: _Server
    server_version = "evalray"
    sys_version = ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"The metrics are at {PATH}")
            return
        try:
            text = self.server.exposition.text()
        except Exception:  # noqa: BLE001 -- a scrape that fails is told to the scraper, and to nobody else
            self.send_error(500, "The metrics could not be read; the next scrape tries again")
            return
        self.send_response(200)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

from __future__ import annotations

import datetime
import importlib.util
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from evalray.engines.openai_compatible import OpenAICompatibleEngine

# Test folders are no packages, so their helpers are loaded by path, once.
for _name in ("stub_server", "scripted_server", "asking"):
    if _name not in sys.modules:
        _spec = importlib.util.spec_from_file_location(_name, Path(__file__).with_name(f"{_name}.py"))
        assert _spec is not None
        assert _spec.loader is not None
        sys.modules[_name] = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules[_name])

from asking import Connect, starting  # noqa: E402
from scripted_server import ScriptedServer  # noqa: E402
from stub_server import StubServer  # noqa: E402


@pytest.fixture
async def stub() -> AsyncIterator[StubServer]:
    server = StubServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """Answers ``script`` in order to whatever is posted; see :class:`ScriptedServer`."""
    server = ScriptedServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's TLS with a certificate that nobody but itself has signed."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@pytest.fixture
async def connect(stub: StubServer) -> AsyncIterator[Connect]:
    """Start an ``openai-compatible`` engine on the stub; closed at the end of the test."""
    defaults = {"base_url": stub.url, "max_concurrency": 4, "start_timeout_seconds": 0.3}
    async with starting(OpenAICompatibleEngine, **defaults) as start:
        yield start

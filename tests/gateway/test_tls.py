"""TLS for clients, with a real certificate authority and the clients that people use."""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import openai
import pytest
import trustme
from typer.testing import CliRunner

from gateway.cli import app
from gateway.config import Config
from gateway.exchange import Exchange
from gateway.http_types import HttpLimits
from gateway.lifecycle import StartupError, serve_until_stopped
from gateway.server import HttpServer
from gateway.tasks import Tasks
from gateway.tls import TlsError, server_context

ANSWER = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,'
    b'"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}]}'
)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return certificate, key


async def answer(exchange: Exchange) -> None:
    exchange.respond(200, ANSWER, [(b"content-type", b"application/json")])


async def test_the_official_client_and_aiohttp_are_served(
    authority: trustme.CA, files: tuple[Path, Path]
) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    tasks = Tasks()
    server = HttpServer(answer, HttpLimits(), tasks.spawn)
    port = await server.listen("127.0.0.1", 0, tls=server_context(*files))
    base = f"https://localhost:{port}/v1"
    try:
        async with openai.AsyncOpenAI(
            api_key="k",
            base_url=base,
            http_client=openai.DefaultAsyncHttpxClient(verify=trusting),
        ) as client:
            for _ in range(2):  # over one connection
                done = await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "hi"}]
                )
                assert done.choices[0].message.content == "hello"
        connector = aiohttp.TCPConnector(ssl=trusting)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(base + "/chat/completions", data=b"x" * 300_000) as response,
        ):
            assert await response.read() == ANSWER
    finally:
        await server.drain(1.0)
        await tasks.stop()


async def test_old_versions_of_tls_and_plain_http_get_no_answer(
    authority: trustme.CA, files: tuple[Path, Path]
) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(old)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    tasks = Tasks()
    server = HttpServer(answer, HttpLimits(), tasks.spawn)
    port = await server.listen("127.0.0.1", 0, tls=server_context(*files))
    try:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("localhost", port, ssl=old)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.close()
    finally:
        await server.drain(1.0)
        await tasks.stop()


def test_without_files_there_is_no_tls() -> None:
    assert server_context(None, None) is None


def test_files_that_are_no_certificate_and_key_are_named(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    certificate, key = files
    other = tmp_path / "other.pem"
    with pytest.raises(TlsError, match=r"cannot read the TLS key .*other.pem: No such file"):
        server_context(certificate, other)
    other.write_text("not a key")
    with pytest.raises(TlsError, match="are no certificate and its key"):
        server_context(certificate, other)
    stranger = trustme.CA().issue_cert("localhost").private_key_pem.bytes()
    other.write_bytes(stranger)
    with pytest.raises(TlsError, match="key values mismatch"):
        server_context(certificate, other)
    assert key.exists()


def test_an_encrypted_key_is_refused_instead_of_asking_for_its_passphrase(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization

    certificate, key = files
    plain = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        plain.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(TlsError, match="is encrypted"):
        server_context(certificate, locked)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_gateway_without_its_certificate_says_so_and_does_not_start(
    workers: int, tmp_path: Path
) -> None:
    missing = {"tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}
    backends = {"a": {"url": "http://127.0.0.1:9"}}
    config = Config.model_validate({"backends": backends, "http": missing, "workers": workers})
    async with asyncio.timeout(10):
        with pytest.raises(StartupError, match=r"cannot read the TLS certificate .*cert\.pem"):
            await serve_until_stopped(config)


def test_the_command_takes_certificate_and_key(files: tuple[Path, Path], tmp_path: Path) -> None:
    certificate, _ = files
    serve = ["serve", "--backend", "http://127.0.0.1:9", "--port", "0", "--workers", "1"]
    alone = CliRunner().invoke(app, [*serve, "--tls-cert", str(certificate)])
    assert (alone.exit_code, "give both, or neither" in alone.output) == (2, True)
    missing = str(tmp_path / "key.pem")
    ended = CliRunner().invoke(app, [*serve, "--tls-cert", str(certificate), "--tls-key", missing])
    assert (ended.exit_code, "cannot read the TLS key" in ended.output) == (2, True)

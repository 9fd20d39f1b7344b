"""The door on a port: TLS, and an end that does not wait for whoever listens."""

import asyncio
import contextlib
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx2
import pytest
import structlog
import trustme
from fastapi import Request
from fastapi.responses import StreamingResponse

from farmiq.plumbing import connections, http
from farmiq.plumbing.http import HttpError, HttpServer, protocol
from farmiq.plumbing.tls import Tls
from tests.support.until import until


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is still sending when the answer comes may be slow."""
    monkeypatch.setattr(protocol, "_LINGERS_S", 30.0)


@pytest.fixture
def server() -> HttpServer:
    return HttpServer(title="farmiq test", version="1.2.3")


@contextlib.asynccontextmanager
async def serving(
    server: HttpServer, port: int, tls: Tls | None = None
) -> AsyncIterator["asyncio.Task[None]"]:
    running = asyncio.create_task(http.serve(server, host="127.0.0.1", port=port, tls=tls))
    try:
        await until(lambda: running.done() or _listens(port))
        yield running
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@pytest.mark.parametrize(
    "said",
    [
        b"garbage\r\n\r\n",
        b"POST /taken HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000,
        b"POST /taken HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /taken HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n",
    ],
)
async def test_invalid_http_gets_the_standard_error_body(
    server: HttpServer,
    free_port: Callable[[], int],
    caplog: pytest.LogCaptureFixture,
    said: bytes,
) -> None:
    async def taken(request: Request) -> dict[str, int]:
        return {"size": len(await request.body())}

    server.app.add_api_route("/taken", taken, methods=["POST"])
    port = free_port()
    async with serving(server, port):
        head, body = await spoken(port, said)
        async with httpx2.AsyncClient(timeout=60) as client:
            good = await client.post(f"http://127.0.0.1:{port}/taken", content=b"abc")

    too_long = len(said) > 64 * 1024
    assert head.startswith(b"HTTP/1.1 431 " if too_long else b"HTTP/1.1 400 Bad Request")
    error = json.loads(body)["error"]
    assert error["code"] == ("HEADERS_TOO_LARGE" if too_long else "VALIDATION_ERROR")
    assert f"x-trace-id: {error['traceId']}".encode() in head
    assert good.json() == {"size": 3}
    assert [record.message for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("expects", ["", "Expect: 100-continue\r\n"])
@pytest.mark.parametrize("path", ["/closed", "/taken"])
async def test_route_of_a_request_that_was_refused_for_its_body_logs_no_error(
    server: HttpServer,
    free_port: Callable[[], int],
    caplog: pytest.LogCaptureFixture,
    path: str,
    expects: str,
) -> None:
    ended = asyncio.Event()

    async def closed() -> None:
        ended.set()
        raise HttpError(401, "nobody is let in")

    async def taken(request: Request) -> int:
        try:
            return len(await request.body())
        finally:
            ended.set()

    server.app.add_api_route("/closed", closed, methods=["POST"])
    server.app.add_api_route("/taken", taken, methods=["POST"])
    port = free_port()
    said = f"POST {path} HTTP/1.1\r\nHost: a\r\n{expects}Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    with structlog.testing.capture_logs() as lines:
        async with serving(server, port):
            head, _ = await spoken(port, said.encode())
            await ended.wait()
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert [record.message for record in caplog.records if record.exc_info] == []
    assert [line for line in lines if line["log_level"] == "error"] == []


async def test_client_that_leaves_during_its_body_logs_no_traceback(
    server: HttpServer, free_port: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    gone = asyncio.Event()

    async def taken(request: Request) -> dict[str, int]:
        try:
            return {"size": len(await request.body())}
        finally:
            gone.set()

    server.app.add_api_route("/taken", taken, methods=["POST"])
    port = free_port()
    async with serving(server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /taken HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
        writer.close()
        async with asyncio.timeout(60):
            await gone.wait()

    assert [record.message for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize(
    "said",
    [
        b"POST /taken HT",
        b"POST /taken HTTP/1.1\r\nHost: a\r\nX: ",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nPOST /taken HTTP/1.1\r\n",
        b"POST /taken HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
        b"POST /taken HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
    ],
)
async def test_request_that_does_not_end_gets_408_and_is_closed(
    free_port: Callable[[], int], said: bytes
) -> None:
    server = HttpServer(title="farmiq test", version="1.2.3", request_within_s=0.2)

    async def taken(request: Request) -> dict[str, int]:
        return {"size": len(await request.body())}

    server.app.add_api_route("/taken", taken, methods=["POST"])
    port = free_port()
    async with serving(server, port):
        answer, _, body = b"".join(await spoken(port, said)).rpartition(b'{"error"')

    assert b"HTTP/1.1 408 " in answer
    assert json.loads(b'{"error"' + body)["error"]["code"] == "REQUEST_TIMEOUT"


async def test_body_that_goes_on_after_the_response_is_closed(
    free_port: Callable[[], int],
) -> None:
    server = HttpServer(title="farmiq test", version="1.2.3", request_within_s=1.0)
    port = free_port()
    said = b"POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
    async with serving(server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said + b"123456789" + said + b"12345")
        answered = await reader.read()
        writer.close()

    assert answered.count(b"HTTP/1.1 404 ") == 2, "the first has ended, and is not hurried"


async def test_silent_connection_is_closed(free_port: Callable[[], int]) -> None:
    server = HttpServer(title="farmiq test", version="1.2.3", request_within_s=0.2)
    port = free_port()
    async with serving(server, port):
        assert await spoken(port, b"") == (b"", b"")


async def test_slow_response_and_idle_connection_are_not_closed(
    free_port: Callable[[], int],
) -> None:
    server = HttpServer(title="farmiq test", version="1.2.3", request_within_s=1.0)

    async def slow(request: Request) -> StreamingResponse:
        await request.body()

        async def parts() -> AsyncIterator[bytes]:
            yield b"a"
            await asyncio.sleep(1.5)
            yield b"b"

        return StreamingResponse(parts())

    server.app.add_api_route("/slow", slow, methods=["POST"], response_model=None)
    port = free_port()
    async with serving(server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
            async with asyncio.timeout(60):
                assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
                assert await reader.readuntil(b"0\r\n\r\n") == b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n"
            await asyncio.sleep(1.5)
        writer.close()


@pytest.mark.parametrize("expect", [b"", b"Expect: 100-continue\r\n"])
async def test_body_too_large_by_its_header_is_refused_before_it_comes(
    server: HttpServer, free_port: Callable[[], int], expect: bytes
) -> None:
    async def taken(request: Request) -> dict[str, int]:
        return {"size": len(await http.body(request, what="a thing", max_bytes=1000))}

    server.app.add_api_route("/taken", taken, methods=["POST"])
    port = free_port()
    said = (
        b"POST /taken HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Content-Length: 10000000000\r\n" + expect + b"\r\n"
    )
    async with serving(server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        async with asyncio.timeout(30):  # half of what a body may take
            head = await reader.readuntil(b"\r\n\r\n")
        writer.close()

    assert head.startswith(b"HTTP/1.1 413 ")
    assert (b"connection: close" in head.lower()) == bool(expect)


async def test_rejected_body_that_goes_on_is_closed(
    server: HttpServer, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "_MAX_UNREAD", 1_000_000)
    port = free_port()
    said = b"POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000000\r\n\r\n"
    async with serving(server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404 ")

        async def go_on() -> None:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()

        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            await go_on()
        writer.close()


async def spoken(port: int, said: bytes) -> tuple[bytes, bytes]:
    """Head and body of what is answered to these bytes."""
    head, _, body = (await asyncio.to_thread(answered, port, said)).partition(b"\r\n\r\n")
    return head, body


def answered(port: int, said: bytes) -> bytes:
    """All that came until the connection was closed, or reset, which a stream would not tell."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as opened:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            opened.sendall(said)
        with contextlib.suppress(ConnectionResetError):
            while more := opened.recv(65536):
                heard += more
    return heard


async def test_client_that_still_sends_too_long_headers_gets_431(
    server: HttpServer, free_port: Callable[[], int]
) -> None:
    """A connection closed with something unread is reset, and its answer may be lost with it."""
    port = free_port()

    def ask() -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as opened:
            opened.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
            for _ in range(20):
                opened.sendall(b"x" * 50_000)
                time.sleep(0.005)
            return opened.recv(64)

    async with serving(server, port):
        answer = await asyncio.to_thread(ask)
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")


def test_answers_do_not_wait_for_more_to_send() -> None:
    """Asyncio sets TCP_NODELAY only on sockets that name their protocol."""
    with connections.listening("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA, tmp_path: Path) -> Tls:
    issued = authority.issue_cert("localhost")
    files = Tls(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem")
    assert files.ca_file
    assert files.cert_file
    assert files.key_file
    authority.cert_pem.write_to_path(files.ca_file)
    for index, part in enumerate(issued.cert_chain_pems):
        part.write_to_path(files.cert_file, append=index > 0)
    issued.private_key_pem.write_to_path(files.key_file)
    return files


async def test_plain_http(server: HttpServer, free_port: Callable[[], int]) -> None:
    port = free_port()
    async with serving(server, port), httpx2.AsyncClient(timeout=60) as client:
        answer = await client.get(f"http://127.0.0.1:{port}/healthz")

        assert answer.json() == {"status": "ok"}
        assert "server" not in answer.headers


async def test_tls(server: HttpServer, tls: Tls, free_port: Callable[[], int]) -> None:
    port = free_port()
    trusting = Tls(tls.ca_file).client()
    async with (
        serving(server, port, tls),
        httpx2.AsyncClient(verify=trusting, timeout=60) as client,
    ):
        answer = await client.get(f"https://localhost:{port}/version")

        assert answer.json()["version"] == "1.2.3"


async def test_tls_older_than_1_2_is_refused(
    server: HttpServer, tls: Tls, free_port: Callable[[], int]
) -> None:
    port = free_port()
    old = ssl.create_default_context(cafile=tls.ca_file)
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with serving(server, port, tls):
        # Some builds of OpenSSL say why, others just hang up.
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await asyncio.open_connection("localhost", port, ssl=old)


async def test_a_server_of_an_unknown_authority_is_not_trusted(
    server: HttpServer, tls: Tls, free_port: Callable[[], int], tmp_path: Path
) -> None:
    port = free_port()
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    async with (
        serving(server, port, tls),
        httpx2.AsyncClient(verify=Tls(other).client(), timeout=60) as client,
    ):
        with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
            await client.get(f"https://localhost:{port}/healthz")


async def test_a_taken_port_is_named(server: HttpServer, free_port: Callable[[], int]) -> None:
    port = free_port()
    async with serving(server, port):
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}.*another port"):
            await http.serve(HttpServer(title="second", version="1"), host="127.0.0.1", port=port)

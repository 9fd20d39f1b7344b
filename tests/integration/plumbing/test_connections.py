"""A port under a flood of idle connections: it answers, and the log stays short."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable, Iterator

import httpx2
import pytest
import structlog
from fastapi import Request

from farmiq.device import page
from farmiq.plumbing import http
from farmiq.plumbing.connections import Limits
from farmiq.plumbing.http import HttpServer
from farmiq.plumbing.tls import Tls
from tests.integration.plumbing.test_http import authority, serving, tls  # noqa: F401 - fixtures
from tests.support.until import until


@pytest.fixture
def strangers() -> Iterator[Callable[..., list[socket.socket]]]:
    """Opens connections that say nothing, or a part of something."""
    with contextlib.ExitStack() as stack:

        def connected(
            port: int, count: int, *, say: bytes = b"", source: str = "127.0.0.1"
        ) -> list[socket.socket]:
            opened = []
            for _ in range(count):
                one = socket.create_connection(("127.0.0.1", port), source_address=(source, 0))
                one.settimeout(60)
                stack.callback(one.close)
                if say:
                    one.sendall(say)
                opened.append(one)
            return opened

        yield connected


def is_closed(one: socket.socket) -> bool:
    try:
        one.setblocking(False)
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "say",
    [b"", b"POST /known HT", b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"],
)
async def test_port_answers_while_strangers_hold_more_connections_than_fit(
    free_port: Callable[[], int], strangers: Callable[..., list[socket.socket]], say: bytes
) -> None:
    server = HttpServer(title="t", version="1", limits=Limits(total=20, per_address=20))
    answering, answer = asyncio.Event(), asyncio.Event()

    async def known(request: Request) -> dict[str, bool]:
        http.authenticated(request, "somebody")
        return {"known": True}

    async def slow(request: Request) -> dict[str, int]:
        return {"size": len(await request.body())}

    async def long(request: Request) -> dict[str, bool]:
        http.authenticated(request, "somebody")
        answering.set()
        await answer.wait()
        return {"long": True}

    for path, endpoint in (("/known", known), ("/slow", slow), ("/long", long)):
        server.app.add_api_route(path, endpoint, methods=["GET", "POST"])
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    async with serving(server, port), httpx2.AsyncClient(timeout=60) as client:
        assert (await client.get(f"{address}/known")).json() == {"known": True}
        held = await asyncio.to_thread(strangers, port, 10, say=say)
        working = asyncio.create_task(client.get(f"{address}/long"))
        await answering.wait()
        held += await asyncio.to_thread(strangers, port, 50, say=say)
        await until(lambda: sum(is_closed(one) for one in held) >= 41)

        (kept,) = await asyncio.to_thread(strangers, port, 1)
        async with httpx2.AsyncClient(timeout=60) as another:
            assert (await another.get(f"{address}/healthz")).json() == {"status": "ok"}
        answer.set()
        assert (await working).json() == {"long": True}
        # The same connection as before: it was idle for longest, and is not closed.
        assert (await client.get(f"{address}/known")).json() == {"known": True}
        assert not is_closed(kept)


async def test_new_connection_gets_503_while_all_are_at_work(
    free_port: Callable[[], int], strangers: Callable[..., list[socket.socket]]
) -> None:
    server = HttpServer(title="t", version="1", limits=Limits(total=2))
    answering, answer = asyncio.Semaphore(0), asyncio.Event()

    async def long() -> None:
        answering.release()
        await answer.wait()

    server.app.add_api_route("/long", long)
    port = free_port()
    async with serving(server, port):
        asked = b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n"
        working = await asyncio.to_thread(strangers, port, 2, say=asked)
        for _ in working:
            await answering.acquire()
        (late,) = await asyncio.to_thread(strangers, port, 1)
        told = await asyncio.to_thread(late.recv, 4096)
        answer.set()
        for one in working:
            assert (await asyncio.to_thread(one.recv, 4096)).startswith(b"HTTP/1.1 200 ")

    assert told.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 5" in told


async def test_flood_from_one_address_does_not_close_connections_of_another(
    free_port: Callable[[], int], strangers: Callable[..., list[socket.socket]]
) -> None:
    limits = Limits(total=20, per_address=5, proxies=())
    port = free_port()
    async with serving(HttpServer(title="t", version="1", limits=limits), port):
        (first,) = await asyncio.to_thread(strangers, port, 1, source="127.0.0.2")
        flood = await asyncio.to_thread(strangers, port, 40)
        await until(lambda: sum(is_closed(one) for one in flood) == 35)

        assert not is_closed(first)


async def test_connections_that_never_begin_tls_make_room(
    free_port: Callable[[], int],
    strangers: Callable[..., list[socket.socket]],
    tls: Tls,  # noqa: F811
) -> None:
    server = HttpServer(title="t", version="1", limits=Limits(total=10))
    port = free_port()
    async with serving(server, port, tls):
        held = await asyncio.to_thread(strangers, port, 30)
        await until(lambda: sum(is_closed(one) for one in held) >= 20)
        async with httpx2.AsyncClient(verify=Tls(tls.ca_file).client(), timeout=60) as client:
            answer = await client.get(f"https://localhost:{port}/healthz")

    assert answer.json() == {"status": "ok"}


@contextlib.contextmanager
def all_descriptors_in_use(port: int) -> Iterator[None]:
    """Open connections until this process, which also serves them, may open no more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe.fileno() + 4, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with contextlib.suppress(OSError):
            while True:
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        yield


async def test_no_free_descriptors_close_the_longest_idle_and_log_little(
    free_port: Callable[[], int],
    strangers: Callable[..., list[socket.socket]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    async with serving(HttpServer(title="t", version="1"), port):
        hello = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
        first, second = await asyncio.to_thread(strangers, port, 2, say=hello)
        for one in (first, second):
            assert (await asyncio.to_thread(one.recv, 4096)).startswith(b"HTTP/1.1 200")
        with all_descriptors_in_use(port), structlog.testing.capture_logs() as lines:
            await until(lambda: is_closed(first))
        async with httpx2.AsyncClient(timeout=60) as client:
            answer = await client.get(f"http://127.0.0.1:{port}/healthz")

    assert answer.json() == {"status": "ok"}
    assert {line["event"] for line in lines} == {"http.connections_full"}
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_page_of_a_station_answers_while_strangers_hold_its_port(
    free_port: Callable[[], int], strangers: Callable[..., list[socket.socket]]
) -> None:
    async def look() -> dict[str, object]:
        return {"state": "weighing"}

    port = free_port()
    serving_page = asyncio.create_task(page.serve(look, host="127.0.0.1", port=port))
    try:
        async with httpx2.AsyncClient(timeout=60) as client:

            async def answers() -> bool:
                with contextlib.suppress(httpx2.ConnectError):
                    return (await client.get(f"http://127.0.0.1:{port}/status.json")).is_success
                return False

            await until(answers)
            await asyncio.to_thread(strangers, port, 100)
            assert await answers()
    finally:
        serving_page.cancel()
        await asyncio.wait([serving_page])

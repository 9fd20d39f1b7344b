"""Requests over HTTP: the answer, or an end to waiting for it; over a real socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2
import pytest

from farmiq.plumbing import http_client

Serve = Callable[[asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def served(how: Serve) -> AsyncIterator[str]:
    serving: list[asyncio.Task[None]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await how(writer)
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.create_task(answer(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    server.close()
    for each in serving:
        each.cancel()
    await asyncio.gather(*serving, return_exceptions=True)


def saying(raw: bytes) -> Serve:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(raw), raw))
        await writer.drain()
        await asyncio.Event().wait()

    return serve


async def dripping(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b" ")
        await asyncio.sleep(0.02)


async def ask(url: str) -> http_client.Answer:
    async with httpx2.AsyncClient(timeout=60) as client:
        return await http_client.send(client, "PUT", url, content=b"x", headers={})


@pytest.mark.parametrize(
    ("raw", "value"), [(b'{"a":1}', {"a": 1}), (b"no", None), (b"[" * 200_000, None), (b"", None)]
)
async def test_response_is_returned_as_it_came(raw: bytes, value: object) -> None:
    async with served(saying(raw)) as url:
        said = await ask(url)
    assert (said.status, said.body, said.json()) == (200, raw, value)


async def test_response_that_drips_raises_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "PARTS", 0.01)
    async with served(dripping) as url:
        with pytest.raises(TimeoutError):
            await ask(url)


async def test_response_longer_than_the_limit_has_no_body() -> None:
    async with served(saying(b" " * (http_client.MAX_ANSWER + 1))) as url:
        assert (await ask(url)).body == b""


def test_why_names_the_type_of_an_error_without_text() -> None:
    errors = (httpx2.ReadError(""), httpx2.ConnectError("no route"), TimeoutError())

    assert [http_client.why(error) for error in errors] == [
        "ReadError", "ConnectError: no route", "TimeoutError",
    ]  # fmt: skip

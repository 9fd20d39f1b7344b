"""The local status page of the station: HTML and the same as JSON."""

import asyncio
import contextlib
import html
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from farmiq.plumbing import connections
from farmiq.plumbing.connections import Connection, Connections, Limits

GetStatus = Callable[[], Awaitable[dict[str, Any]]]

REQUEST_S = 5.0
# A few people at the station; there is no sign-in here.
LIMITS = Limits(total=32, per_address=16)
_MAX_HEAD_BYTES = 8192


async def serve(get_status: GetStatus, *, host: str, port: int) -> None:
    """Until cancelled. Raises OSError if the address is taken."""
    open_connections = Connections(LIMITS)

    async def begin(accepted: socket.socket, place: Connection) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            place.close = writer.transport.abort
            try:
                await _answer(get_status, reader, writer)
            finally:
                open_connections.release(place)

        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_MAX_HEAD_BYTES, loop=loop)
        await loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader, answer, loop=loop), accepted
        )

    with connections.listening(host, port) as listener:
        try:
            await connections.accept(listener, open_connections, begin)
        finally:
            open_connections.close_all()


async def _answer(
    get_status: GetStatus, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(await _response(get_status, head))
        except (asyncio.LimitOverrunError, ValueError):
            writer.write(_http("400 Bad Request", "text/plain", "this is no request\n"))
        await writer.drain()
    writer.close()


async def _response(get_status: GetStatus, head: bytes) -> bytes:
    method, _, rest = head.decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    if method not in ("GET", "HEAD"):
        return _http("405 Method Not Allowed", "text/plain", "only GET\n")
    if path == "/status.json":
        return _http("200 OK", "application/json", json.dumps(await get_status(), indent=2) + "\n")
    if path == "/":
        return _http("200 OK", "text/html", _page(await get_status()))
    return _http("404 Not Found", "text/plain", "there are / and /status.json\n")


def _http(status: str, kind: str, body: str) -> bytes:
    content = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\n"
        f"Content-Length: {len(content)}\r\nCache-Control: no-store\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content


def _page(status: dict[str, Any]) -> str:
    alarms = status["alarms"]
    station, state = html.escape(status["station_id"]), html.escape(status["state"])
    parts = [
        f"<h1>{station} <small>{state}</small></h1>",
        _table("Alarms", [{"alarm": name, **alarm} for name, alarm in alarms.items()]),
        _table("Now", _now(status)),
        _table("Failed sessions", status["failed_sessions"]),
        _table("Failed pictures", status["failed_pictures"]),
        _table("Refused by the edge", status["refused_events"]),
    ]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5>"
        "<meta name=viewport content='width=device-width'><title>FarmIQ weigh station</title>"
        "<style>body{font:16px system-ui;margin:1rem;max-width:60rem;color-scheme:light dark}"
        "table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:left;"
        "border-bottom:1px solid #8886}</style>" + "".join(parts) + "</html>\n"
    )


def _now(status: dict[str, Any]) -> list[dict[str, Any]]:
    problem = status["uploads_away"]
    facts = {
        "connected": status["connected"],
        "uploads": f"not possible: {problem}" if problem else "good",
        "events that wait": status["backlog"],
        "oldest waits since (s)": status["oldest_waiting_s"],
        "last receipt": status["last_receipt_at"],
        "pictures that wait": status["pictures"]["waiting"],
        "dropped so far": status["dropped_total"],
        "scale": status["scale_ok"],
        "camera": status["camera_ok"],
    }
    return [{"what": name, "is": value} for name, value in facts.items()]


def _table(title: str, rows: list[dict[str, Any]]) -> str:
    if not rows:
        return f"<h2>{title}</h2><p>none</p>"
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in rows[0])
    lines = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(_shown(value))}</td>" for value in row.values())
        + "</tr>"
        for row in rows
    )
    return f"<h2>{title}</h2><table><tr>{head}</tr>{lines}</table>"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)

"""A way to the cloud that minds one event, drips or answers nonsense; and a clock that lies."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta

import httpx2
import pytest

from farmiq.config import EdgeSettings
from farmiq.edge.sync import jobs, rules, store
from farmiq.edge.sync.cloud import Cloud
from farmiq.edge.sync.forwarder import Forwarder
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.edge.sync.owed import (
    Answer,
    accept,
    event,
    forwarder,
    make_due,
    move_clock,
    owe,
    owe_many,
    rows,
    sent,
)


def closed(_request: httpx2.Request) -> httpx2.Response:
    raise httpx2.RemoteProtocolError("closed without an answer")


def status(number: int) -> Answer:
    return lambda _request: httpx2.Response(number, text="<html>blocked</html>")


def minding(what: str, how: Answer, seen: list[int]) -> Answer:
    """A way that lets everything through but batches with this one event."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        events = [one["event_id"] for one in sent(request)["events"]]
        seen.append(len(events))
        return how(request) if what in events else accept(request)

    return answer


@pytest.mark.parametrize(
    ("how", "code"),
    [
        (closed, "ALONE_NETWORK_ERROR"),
        (status(502), "ALONE_HTTP_502"),
        (status(403), "ALONE_HTTP_403"),
        (status(418), "ALONE_NOT_OUR_CLOUD"),
    ],
)
async def test_event_that_a_proxy_rejects_ends_in_the_dlq_and_delays_no_other(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database, how: Answer, code: str
) -> None:
    events = [event(minutes=n) for n in range(60)]
    minded, *others = await owe(pool, *events)
    seen: list[int] = []
    async with forwarder(settings, pool, minding(str(minded), how, seen)) as it:
        await it.forward_once()
        delivered = rows(edge_db, "select id from sync_outbox where status = 'acked'")
        assert {row[0] for row in delivered} == set(others)
        assert len(seen) < 20
        found = rows(edge_db, "select status, attempt_count, last_error_code from sync_outbox "
                     "where status <> 'acked'")  # fmt: skip
        assert found == [("pending", 1, code)]
        assert rows(edge_db, "select consecutive_failures from sync_state") == [(0,)]
        for _ in range(9):
            await owe(pool, event(minutes=99))
            make_due(edge_db)
            await it.forward_once()
    found = rows(edge_db, "select status, attempt_count, last_error_code, dlq_reason from "
                 "sync_outbox where status <> 'acked'")  # fmt: skip
    assert found == [("dlq", 10, code, "max_attempts_exceeded")]
    assert rows(edge_db, "select kind from alerts where closed_at is null") == [("sync.dlq",)]


async def test_event_that_is_alone_in_an_outage_has_no_failure_counted(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    """It had failed alone, then the cloud goes away for long: only passing it by counts."""
    minded, _ = await owe(pool, event(minutes=1), event(minutes=2))
    async with forwarder(settings, pool, minding(str(minded), closed, [])) as it:
        await it.forward_once()
    async with forwarder(settings, pool, closed) as it:
        for _ in range(15):
            make_due(edge_db)
            await it.forward_once()
    found = rows(edge_db, "select status, attempt_count, last_error_code from sync_outbox "
                 "where status <> 'acked'")  # fmt: skip
    assert found == [("pending", 1, "ALONE_NETWORK_ERROR")]
    make_due(edge_db)
    async with forwarder(settings, pool, accept) as it:
        await it.forward_once()
    assert set(rows(edge_db, "select status from sync_outbox")) == {("acked",)}


@pytest.mark.parametrize(("how", "most"), [(closed, 3), (status(503), 1), (status(429), 1)])
async def test_outage_is_confirmed_by_two_more_requests_and_blames_no_event(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database, how: Answer, most: int
) -> None:
    await owe(pool, *[event(minutes=n) for n in range(40)])
    seen: list[int] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(len(sent(request)["events"]))
        return how(request)

    async with forwarder(settings, pool, answer) as it:
        await it.forward_once()
        assert len(seen) == most
        make_due(edge_db)
        await it.forward_once()  # in an outage a probe is one request
    assert len(seen) == most + 1
    codes = rows(edge_db, "select distinct last_error_code from sync_outbox")
    assert [code for (code,) in codes if rules.is_alone(code)] == []


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b" ")
        await asyncio.sleep(0.02)


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"[" * 65536)
        await writer.drain()


async def nested(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000)
    await writer.drain()
    await reader.read()  # until the other side has had enough


@pytest.mark.req("BK-10")
@pytest.mark.parametrize("how", [dripping, endless, nested])
async def test_an_answer_that_never_ends_or_makes_no_sense_is_an_outage_like_any_other(
    settings: EdgeSettings,
    pool: db.Pool,
    edge_db: Database,
    how: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    owe_many(edge_db, 1)

    serving: list[asyncio.Task[None]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                await how(reader, writer)
            finally:
                writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.create_task(answer(reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    short = settings.model_copy(
        update={"sync_timeout_s": 0.3, "cloud_url": f"http://127.0.0.1:{port}"}
    )
    async with Cloud(lambda: httpx2.AsyncClient(timeout=0.3), short) as cloud:
        assert await Forwarder(short, pool, cloud).forward_once() == 1
    server.close()
    for each in serving:
        each.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
    ((state, code),) = rows(edge_db, "select status, last_error_code from sync_outbox")
    assert (state, code in ("NETWORK_ERROR", "NOT_OUR_CLOUD")) == ("pending", True)


async def test_a_clock_that_was_ahead_silences_nobody_once_it_is_right(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    """A day ahead: a failed batch, an event that came then, and a forwarder that died."""
    move_clock(edge_db, timedelta(days=1))
    owe_many(edge_db, 3)
    async with forwarder(settings, pool, closed) as it:
        await it.forward_once()
    owe_many(edge_db, 2)
    async with db.transaction(pool) as tx:
        await tx.execute("update sync_state set paused_until = null")
        assert await store.claim(tx, "t-1", claimed_by="dead", limit=1, lease_s=30)
        await tx.execute("update sync_state set paused_until = fn_now() + interval '30 s'")
    move_clock(edge_db, timedelta(0))
    async with forwarder(settings, pool, accept) as it:
        assert await it.forward_once() == 0
        assert (await jobs.reset_clock(pool, settings))["count"] == 6
        assert (await jobs.reset_clock(pool, settings))["count"] == 0
        await jobs.reap(pool, settings)
        make_due(edge_db)
        while await it.forward_once():
            pass
    assert rows(edge_db, "select status, count(*) from sync_outbox group by 1") == [("acked", 5)]


async def test_one_odd_answer_does_not_end_compression(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    owe_many(edge_db, 30)
    packed: list[bool] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        packed.append(request.headers.get("content-encoding") == "gzip")
        odd = len(packed) <= 2
        return httpx2.Response(400, text="odd") if odd else accept(request)

    async with forwarder(settings, pool, answer) as it:
        await it.forward_once()
        make_due(edge_db)
        await it.forward_once()
    assert packed[:3] == [True, False, True]

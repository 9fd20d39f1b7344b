"""The buffer: limits, the drop order, the ledger, order under a clock that steps, age."""

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.device.buffer import store
from farmiq.device.buffer.recorder import BufferFullError, Recorder, RejectedError
from farmiq.device.buffer.store import Sending, Tx
from farmiq.plumbing import ids
from tests.support import station
from tests.support.properties import drawn
from tests.support.station import BEGAN, MovedClock

CRITICAL = {"weighvision.session.created", "weighvision.session.finalized"}


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
async def small(tmp_path: Path, clock: MovedClock) -> AsyncIterator[Recorder]:
    """Room for forty events."""
    book = await station.recorder(tmp_path, clock=clock, within=station.limits(events=40))
    yield book
    await book.buffer.close()


async def kept(book: Recorder) -> list[dict[str, Any]]:
    return await book.buffer.do(lambda tx: store.page(tx, after_seq=0, limit=100_000))


async def dropped(book: Recorder) -> int:
    lines = await book.buffer.do(store.unreported_drops)
    return sum(int(line["count"]) for line in lines)


async def send_all(book: Recorder) -> list[Sending]:
    """As the drain does, page by page, with the receipt at once."""
    sent: list[Sending] = []
    while page := await book.buffer.do(lambda tx: store.take(tx, limit=20)):
        sent += page
        await book.buffer.do(lambda tx: settle(tx, book, page))
    return sent


def settle(tx: Tx, book: Recorder, page: list[Sending]) -> None:
    for each in page:
        store.settle(tx, each.event_id, state="stored", now_s=book.buffer.now_s(), reason=None)


@pytest.mark.req("WV-19", "WV-20")
async def test_full_buffer_drops_middle_weights_and_no_critical_events(
    small: Recorder,
) -> None:
    for number in range(8):
        at = BEGAN + timedelta(minutes=number)
        await station.weighing(small, at=at, weights=7, pictures=0)
    rows = await kept(small)
    types = Counter(row["event_type"] for row in rows)
    assert len(rows) == 40
    assert types["weighvision.session.created"] == types["weighvision.session.finalized"] == 8
    for session_id in {row["session_id"] for row in rows}:
        own = [row for row in rows if row["session_id"] == session_id]
        weights = [
            msgspec.json.decode(row["raw"])["payload"]["weight_kg"]
            for row in own
            if row["event_type"] == "weighvision.weight.recorded"
        ]
        assert (weights[0], weights[-1]) == (98.0, 98.6)
    assert await dropped(small) == 8 * 9 - 40


@pytest.mark.req("WV-20")
async def test_buffer_full_of_critical_events_begins_no_session_and_ends_the_open_one(
    small: Recorder,
) -> None:
    for number in range(9):
        await station.weighing(small, at=BEGAN + timedelta(minutes=number), pictures=0)
    session_id = ids.new()
    await small.open(session_id, batch_id=None, initial_weight_kg=None, picture=None, at=BEGAN)
    with pytest.raises(BufferFullError, match="AGENT_BUFFER_EVENTS"):
        await station.weighing(small, pictures=0)
    assert small.full
    await small.weigh(session_id, weight_kg=50, at=BEGAN)
    await small.close(session_id, final_weight_kg=50, at=BEGAN)
    assert await dropped(small) == 0
    await send_all(small)
    await station.weighing(small, pictures=0)
    assert small.full is None


@pytest.mark.req("WV-19")
async def test_full_buffer_drops_stored_events_first(small: Recorder) -> None:
    for number in range(4):
        await station.weighing(small, at=BEGAN + timedelta(minutes=number), pictures=0)
    await send_all(small)
    for number in range(8):
        await station.weighing(small, at=BEGAN + timedelta(hours=1, minutes=number), pictures=0)
    assert (await small.buffer.do(store.tally))["waiting"] == 32
    assert len(await kept(small)) == 40
    assert await dropped(small) == 0


@pytest.mark.req("WV-19", "WV-20")
@drawn(25)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("weigh"), st.integers(0, 12)),
            st.tuples(st.just("send"), st.integers(1, 30)),
            st.tuples(st.just("lose"), st.just(0)),
            st.tuples(st.just("tell"), st.just(0)),
        ),
        max_size=25,
    )
)
def test_dropped_events_are_those_of_the_loss_ledger(script: list[tuple[str, int]]) -> None:
    """Weighings, sending and lost connections in any order, in a buffer that is far too small."""
    asyncio.run(_play(script))


async def _play(script: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        book = await station.recorder(Path(folder), within=station.limits(events=40))
        arrived: dict[int, bytes] = {}
        for what, number in script:
            if what == "weigh":
                with contextlib.suppress(BufferFullError):
                    await station.weighing(book, weights=number, pictures=0)
            elif what == "lose":
                await book.buffer.do(store.back_to_waiting)
            elif what == "tell":
                await book.buffer.do(book.writer.report_drops)
            else:
                arrived |= await _send_some(book, number)
        await book.buffer.do(store.back_to_waiting)
        arrived |= {each.seq: each.raw for each in await send_all(book)}
        made = await book.buffer.do(lambda tx: store.meta(tx, "last_seq")) or 0
        untold = await book.buffer.do(store.unreported_drops)
        await book.buffer.close()
    lines = [msgspec.json.decode(raw) for raw in arrived.values()]
    told = [each["payload"]["count"] for each in lines if "dropped" in each["event_type"]]
    assert made - len(arrived) == sum(told) + sum(line["count"] for line in untold)


async def _send_some(book: Recorder, most: int) -> dict[int, bytes]:
    """Half of the receipts get lost: those events come again."""
    page = await book.buffer.do(lambda tx: store.take(tx, limit=most))
    await book.buffer.do(lambda tx: settle(tx, book, page[::2]))
    return {each.seq: each.raw for each in page}


@pytest.mark.req("WV-21", "WV-23")
@drawn(25)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-100_000, 100_000)), max_size=30))
def test_session_is_sent_in_its_order_whatever_the_clock_does(
    steps: list[tuple[int, int]],
) -> None:
    asyncio.run(_clock_steps(steps))


async def _clock_steps(steps: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = MovedClock()
        book = await station.recorder(Path(folder), clock=clock)
        sessions = [ids.new() for _ in range(3)]
        for session_id in sessions:
            await book.open(
                session_id, batch_id=None, initial_weight_kg=None, picture=None, at=clock.now()
            )
        for which, wall_s in steps:
            clock.move(1, wall_s=wall_s)
            await book.weigh(sessions[which], weight_kg=40, at=clock.now())
        for session_id in sessions:
            await book.close(session_id, final_weight_kg=None, at=clock.now())
        sent = await send_all(book)
        rows = {row["seq"]: row for row in await kept(book)}
        await book.buffer.close()
    for session_id in sessions:
        own = [each.seq for each in sent if rows[each.seq]["session_id"] == str(session_id)]
        assert own == sorted(own)
        assert rows[own[-1]]["event_type"] == "weighvision.session.finalized"
    if all(wall_s >= 0 for _, wall_s in steps):
        times = [msgspec.json.decode(each.raw)["ts"] for each in sent]
        assert times == sorted(times)


@pytest.mark.req("WV-19")
async def test_old_events_are_dropped_only_if_tried_and_not_critical(
    small: Recorder, clock: MovedClock
) -> None:
    session = await station.weighing(small, weights=4, pictures=0)
    clock.move(80 * 3600)
    await compact(small)
    assert await dropped(small) == 0, "never sent: an outage of 72 h loses nothing"
    await small.buffer.do(lambda tx: store.take(tx, limit=20))
    await small.buffer.do(store.back_to_waiting)
    await compact(small)
    assert await dropped(small) == 2, "the two middle weights: sent, and no receipt in 72 h"
    assert {row["session_id"] for row in await kept(small)} == {str(session)}
    assert len(await kept(small)) == 4


@pytest.mark.req("WV-19", "WV-32")
async def test_jumping_wall_clock_drops_no_events(small: Recorder, clock: MovedClock) -> None:
    await station.weighing(small, weights=4, pictures=0)
    await small.buffer.do(lambda tx: store.take(tx, limit=3))
    await send_all(small)
    clock.move(1, wall_s=400 * 24 * 3600)
    await compact(small)
    clock.move(1, wall_s=-900 * 24 * 3600)
    await compact(small)
    assert len(await kept(small)) == 6


@pytest.mark.req("WV-25")
async def test_stored_events_are_kept_for_a_day(small: Recorder, clock: MovedClock) -> None:
    await station.weighing(small, pictures=0)
    await send_all(small)
    clock.move(23 * 3600)
    await compact(small)
    assert len(await kept(small)) == 4
    clock.move(2 * 3600)
    await compact(small)
    assert await kept(small) == []
    assert await small.buffer.do(lambda tx: tx.execute("select * from sessions").fetchall()) == []


async def compact(book: Recorder) -> None:
    await book.buffer.do(book.writer.purge)


async def test_full_picture_space_drops_pictures_without_a_session(tmp_path: Path) -> None:
    book = await station.recorder(tmp_path, within=station.limits(picture_bytes=2000))
    for _ in range(5):
        await book.photograph(station.picture(None))
    assert await dropped(book) == 1
    await station.weighing(book, pictures=4)
    assert await dropped(book) == 5
    with pytest.raises(BufferFullError, match="AGENT_PICTURE_BYTES"):
        await book.photograph(station.picture(None))
    assert len([*book.buffer.pictures.ids()]) == 4
    await book.buffer.close()


async def test_picture_without_room_deletes_no_other_picture(tmp_path: Path) -> None:
    book = await station.recorder(tmp_path, within=station.limits(picture_bytes=2000))
    for _ in range(2):
        await book.photograph(station.picture(None))
    await station.weighing(book, pictures=2)
    with pytest.raises(BufferFullError, match="AGENT_PICTURE_BYTES"):
        await book.photograph(station.picture(None, size=1900))
    assert (await book.buffer.do(store.tally))["pictures"] == 4
    assert len([*book.buffer.pictures.ids()]) == 4
    assert await dropped(book) == 0
    await book.buffer.close()


@pytest.mark.req("WV-02")
async def test_rejected_capture_leaves_no_rows_and_no_files(small: Recorder) -> None:
    session_id = ids.new()
    for weight in (float("nan"), 0.0, -3.0, 1e6):
        with pytest.raises(RejectedError):
            await small.open(
                session_id, batch_id=None, initial_weight_kg=weight, picture=None, at=BEGAN
            )
    with pytest.raises(RejectedError, match="no session"):
        await small.weigh(session_id, weight_kg=3, at=BEGAN)
    assert await kept(small) == []


async def test_second_boot_continues_seq_and_cancels_open_sessions(
    tmp_path: Path,
) -> None:
    first = await station.recorder(tmp_path)
    session_id = ids.new()
    await first.open(session_id, batch_id=None, initial_weight_kg=None, picture=None, at=BEGAN)
    await first.weigh(session_id, weight_kg=50, at=BEGAN)
    await first.buffer.close()
    second = await station.recorder(tmp_path)
    assert await second.cancel_left_open(at=BEGAN) == 1
    rows = await kept(second)
    envelopes = [msgspec.json.decode(row["raw"]) for row in rows]
    assert [each["seq"] for each in envelopes] == [1, 2, 3]
    assert envelopes[-1]["event_type"] == "weighvision.session.cancelled"
    assert len({each["boot_id"] for each in envelopes}) == 2
    await second.buffer.close()

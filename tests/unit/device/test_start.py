"""Start, damage and a full disk: what opening a buffer costs, and what a bad one comes to."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from farmiq.device.buffer import database as buffers
from farmiq.device.buffer import jobs, salvage, store
from farmiq.device.buffer.database import FILE
from farmiq.device.buffer.jobs import BufferJobs
from farmiq.device.buffer.recorder import BufferFullError, Recorder
from farmiq.device.buffer.store import Tx
from farmiq.device.capture.station import Station
from farmiq.device.capture.weighing import Finish, Weigh
from farmiq.device.uplink.drain import SendGate
from farmiq.device.uplink.heartbeat import Heartbeat
from farmiq.plumbing import ids
from tests.support import station

STEP = 10


async def many(folder: Path, count: int) -> Recorder:
    """A buffer with so many waiting events, one session for ten of them."""
    book = await station.recorder(folder, within=station.limits(events=count + 100))
    await station.weighing(book, weights=3, pictures=0)
    await book.buffer.do(lambda tx: _multiply(tx, count))
    return book


def _multiply(tx: Tx, count: int) -> None:
    """The row of the last event so many times, each with its own number and id."""
    tx.execute(
        """
        with recursive more(n) as (select 6 union all select n + 1 from more where n < ?)
        insert into events (seq, event_id, event_type, session_id, rank, order_us, topic, raw,
                            state, kept_s)
        select n, 'copy-' || n, event_type, 'session-' || (n / 10), rank, order_us + n, topic,
               raw, 'waiting', kept_s
        from more, (select * from events where seq = 3)
        """,
        (count,),
    )
    store.set_meta(tx, "last_seq", count)


async def steps_at_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Instructions of SQLite's machine until the buffer is open and the first page is taken."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += STEP
        return 0

    connect = sqlite3.connect

    def counted(*args: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)  # type: ignore[call-overload]
        connection.set_progress_handler(count, STEP)
        return connection

    monkeypatch.setattr(sqlite3, "connect", counted)
    book = await station.recorder(folder)
    await book.cancel_left_open(at=station.BEGAN)
    page = await book.buffer.do(lambda tx: store.take(tx, limit=20))
    await book.buffer.close()
    monkeypatch.undo()
    assert page
    return steps


@pytest.mark.req("WV-18")
async def test_start_with_ten_thousand_events_costs_as_with_ten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    # With 10 the first page is not full; with 30 it is, as with more.
    for count in (10, 30, 10_000):
        book = await many(tmp_path / str(count), count)
        await book.buffer.close()
        found[count] = await steps_at_start(tmp_path / str(count), monkeypatch)
    print(f"SQLite's instructions at start, by events: {found}")  # noqa: T201
    assert found[10_000] <= found[30] * 1.2 + 100, found


LOOK = """
import asyncio, sys
from pathlib import Path
from farmiq.device import service
from farmiq.device.buffer import store
from tests.support import station

async def main():
    settings = station.settings(
        Path(sys.argv[1]), mqtt_url="mqtt://nobody@127.0.0.1:9", edge_url="http://127.0.0.1:9",
        AGENT_BUFFER_EVENTS=2_000_000,
    )
    ready = asyncio.Event()
    async def source(book):
        await station.weighing(book, pictures=0)
        ready.set()
        await asyncio.Event().wait()
    task = asyncio.create_task(service.run(settings, [source]))
    await ready.wait()
    # The full check of the file is part of what a start costs.
    from farmiq.device.buffer import database
    await asyncio.to_thread(database.integrity_problem, Path(sys.argv[1]) / database.FILE)
    words = Path("/proc/self/status").read_text().split()
    print(words[words.index("VmRSS:") + 1], words[words.index("VmHWM:") + 1])
    task.cancel()

asyncio.run(main())
"""


def memory_kib(folder: Path) -> tuple[int, int]:
    """(resident, most resident) of a real agent that has opened the buffer and checked it."""
    answer = subprocess.run(
        [sys.executable, "-c", LOOK, str(folder)],
        capture_output=True, text=True, check=False, timeout=170,
    )  # fmt: skip
    assert answer.stdout, answer.stderr
    now, most = answer.stdout.split()[-2:]
    return int(now), int(most)


async def _memory(tmp_path: Path, count: int) -> tuple[int, int]:
    for name, events in (("empty", 10), ("full", count)):
        book = await many(tmp_path / name, events)
        await book.buffer.close()
    empty, full = memory_kib(tmp_path / "empty"), memory_kib(tmp_path / "full")
    print(f"kB (now, most): {empty} with 10 events, {full} with {count}")  # noqa: T201
    return empty[1], full[1]


@pytest.mark.req("WV-34")
async def test_full_buffer_takes_at_most_forty_megabytes_more_than_an_empty_one(
    tmp_path: Path,
) -> None:
    empty, full = await _memory(tmp_path, 10_000)
    assert full - empty < 40 * 1024


@pytest.mark.long
@pytest.mark.req("WV-34")
async def test_million_events_cost_neither_memory_nor_a_longer_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty, full = await _memory(tmp_path, 1_000_000)
    assert full - empty < 40 * 1024
    await (await many(tmp_path / "few", 30)).buffer.close()
    few = await steps_at_start(tmp_path / "few", monkeypatch)
    steps = await steps_at_start(tmp_path / "full", monkeypatch)
    print(f"steps at start: {few} with 30, {steps} with 1,000,000")  # noqa: T201
    assert steps <= few * 1.2 + 400


async def test_every_query_of_the_loops_uses_an_index(tmp_path: Path) -> None:
    """Nothing that runs by the second may read the whole table."""
    book = await many(tmp_path, 100)
    statements: list[str] = []

    def loops(tx: Tx) -> None:
        tx.set_trace_callback(statements.append)
        now_s = book.buffer.now_s()
        page = store.take(tx, limit=20)
        store.published(tx, [each.seq for each in page])
        store.settle(tx, page[0].event_id, state="stored", now_s=now_s, reason=None)
        store.back_to_waiting(tx)
        store.oldest_waiting(tx)
        store.count_droppable(tx, limit=4)
        store.drop_untried(tx, limit=1)
        store.next_image(tx, now_s=now_s, fresh_after_s=0)
        store.unsettled(tx, after="", limit=10)
        store.open_of_other_boots(tx, "x", limit=10)
        store.rejected_events(tx, limit=10)
        store.sessions_with_problem(tx, limit=10)
        store.count_sessions_with_problem(tx)
        store.unreported_drops(tx)
        store.send_stored_again(tx, since_s=0)
        book.writer.purge(tx)
        tx.set_trace_callback(None)

    await book.buffer.do(loops)
    asked = {each for each in statements if not each.startswith("--")}

    def plans(tx: Tx) -> dict[str, list[str]]:
        return {
            each: [str(row[3]) for row in tx.execute(f"explain query plan {each}")]
            for each in asked
            if each.split()[0] in ("select", "update", "delete")
        }

    for statement, plan in (await book.buffer.do(plans)).items():
        small = any(name in statement for name in ("tally", "ledger"))
        assert small or not any(
            line.startswith("SCAN") and "INDEX" not in line and "more" not in line
            for line in plan
            if "SCAN (subquery" not in line and "CONSTANT ROW" not in line
        ), (statement, plan)
    await book.buffer.close()


# --- damage


async def _filled(folder: Path) -> list[str]:
    book = await station.recorder(folder)
    for _ in range(60):
        await station.weighing(book, weights=4, pictures=0)
    rows = await book.buffer.do(lambda tx: store.page(tx, after_seq=0, limit=1000))
    await book.buffer.close()
    assert len(rows) == 360
    return [row["event_id"] for row in rows]


async def _left(folder: Path) -> tuple[Recorder, list[str]]:
    book = await station.recorder(folder)
    rows = await book.buffer.do(lambda tx: store.page(tx, after_seq=0, limit=1000))
    return book, [row["event_id"] for row in rows]


def names_in(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


@pytest.mark.req("WV-18")
@pytest.mark.parametrize("damage", ["header", "first page", "garbage", "nothing", "half"])
async def test_file_that_is_no_database_is_set_aside_and_the_agent_goes_on(
    tmp_path: Path, damage: str
) -> None:
    before = await _filled(tmp_path)
    path = tmp_path / FILE
    raw = bytearray(path.read_bytes())
    if damage == "header":
        raw[:16] = b"not a database!!"
    elif damage == "first page":
        raw[:4096] = b"\xff" * 4096
    elif damage == "half":
        del raw[len(raw) // 2 :]
        raw[:100] = bytes(100)
    else:
        raw[:] = os.urandom(len(raw)) if damage == "garbage" else b"x"
    path.write_bytes(raw)
    book, left = await _left(tmp_path)
    assert book.buffer.salvaged is not None
    assert book.buffer.salvaged.damaged_file.exists()
    if damage in ("header", "first page"):
        assert left == before, "the first page is the same in every buffer"
    elif damage == "half":
        assert 100 < len(left) < 360
    else:
        assert left == []
    await station.weighing(book, pictures=0)
    await book.buffer.close()
    assert not {f"{FILE}{end}" for end in (salvage.FRESH, salvage.REPAIRED)} & names_in(tmp_path)


@pytest.mark.req("WV-18")
@pytest.mark.parametrize("left", ["an empty file", "no file", "its journal alone"])
async def test_missing_buffer_file_is_damage_and_its_pictures_stay(
    tmp_path: Path, left: str
) -> None:
    book = await station.recorder(tmp_path)
    await station.weighing(book, pictures=2)
    journal = (tmp_path / f"{FILE}-wal").read_bytes()
    await book.buffer.close()
    (tmp_path / FILE).unlink()
    if left == "an empty file":
        (tmp_path / FILE).touch()
    elif left == "its journal alone":
        (tmp_path / f"{FILE}-wal").write_bytes(journal)
    book = await station.recorder(tmp_path)
    await BufferJobs(book.buffer, book.writer, book, lambda: None).delete_unknown_files()
    assert len([*book.buffer.pictures.ids()]) == 2
    settings = station.settings(tmp_path, mqtt_url="mqtt://127.0.0.1", edge_url="http://127.0.0.1")
    said = Heartbeat(settings, book.buffer, book, SendGate(20)).describe()["alarms"][
        "buffer_salvaged"
    ]
    found = await book.buffer.do(store.tally)
    if left == "its journal alone":
        assert (found["pictures"], found["waiting"]) == (2, 1)
        assert "seq goes on behind 1" in said["text"]
    else:
        assert "begins anew" in said["text"]
    await station.weighing(book, pictures=0)
    await book.buffer.close()


async def test_first_start_is_no_damage(tmp_path: Path) -> None:
    book = await station.recorder(tmp_path)
    assert book.buffer.salvaged is None
    await book.buffer.close()


@pytest.mark.parametrize("step", ["building", "set aside", "journal moved"])
async def test_power_cut_during_the_salvage_costs_nothing(tmp_path: Path, step: str) -> None:
    before = await _filled(tmp_path)
    path, fresh = tmp_path / FILE, tmp_path / f"{FILE}{salvage.FRESH}"
    if step == "building":
        fresh.write_bytes(path.read_bytes()[:5000])
    else:
        path.rename(fresh)
        (tmp_path / f"{FILE}-wal").write_bytes(b"of the old file")
        if step == "journal moved":
            (tmp_path / f"{FILE}-wal").unlink()
    book, left = await _left(tmp_path)
    assert left == before
    await book.buffer.close()


async def test_damaged_file_has_every_readable_row_salvaged(tmp_path: Path) -> None:
    before = await _filled(tmp_path)
    path = tmp_path / FILE
    raw = bytearray(path.read_bytes())
    page = 4096
    # A page of events in the middle of the file, as a bad card leaves it.
    middle = next(
        at for at in range(len(raw) // 2 // page * page, len(raw), page)
        if raw[at] == 13 and b"weighvision" in raw[at : at + page]
    )  # fmt: skip
    raw[middle : middle + page] = os.urandom(page)
    path.write_bytes(raw)
    assert buffers.integrity_problem(path) is not None
    found = await asyncio.to_thread(
        salvage.salvage, path, buffers.connect, reason="as the check said"
    )
    book, left = await _left(tmp_path)
    assert set(left) <= set(before)
    assert len(left) >= len(before) - 12, found
    assert found.damaged_file.exists()
    assert await book.buffer.do(lambda tx: store.meta(tx, "last_seq")) == 360
    good = await book.buffer.do(lambda tx: jobs.verify(tx, tmp_path))
    assert good["problems"] == []
    await station.weighing(book, pictures=0)
    assert (await book.buffer.do(store.tally))["waiting"] == len(left) + 4
    await book.buffer.close()


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9, 0.999])
async def test_journal_that_is_cut_off_costs_only_what_was_cut(tmp_path: Path, cut: float) -> None:
    """SQLite's own journal, torn as by a power cut: the good part is there, in order."""
    first = await station.recorder(tmp_path)
    for _ in range(10):
        await station.weighing(first, weights=4, pictures=0)
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / FILE).write_bytes((tmp_path / FILE).read_bytes())
    wal = (tmp_path / f"{FILE}-wal").read_bytes()
    (torn / f"{FILE}-wal").write_bytes(wal[: int(len(wal) * cut)])
    await first.buffer.close()
    book = await station.recorder(torn)
    rows = await book.buffer.do(lambda tx: store.page(tx, after_seq=0, limit=1000))
    numbers = [row["seq"] for row in rows]
    assert numbers == list(range(1, len(numbers) + 1))
    await station.weighing(book, pictures=0)
    await book.buffer.close()


async def test_verify_finds_a_changed_event_and_a_changed_picture(tmp_path: Path) -> None:
    book = await station.recorder(tmp_path)
    await station.weighing(book, pictures=2)

    def rot(tx: Tx) -> None:
        raw = store.page(tx, after_seq=0, limit=1)[0]["raw"]
        tx.execute("update events set raw = ? where seq = 1", (raw.replace(b"lot-1", b"lot-2"),))

    await book.buffer.do(rot)
    name = next(book.buffer.pictures.ids())
    book.buffer.pictures.path(name).write_bytes(b"rot")
    found = await book.buffer.do(lambda tx: jobs.verify(tx, tmp_path))
    assert len(found["problems"]) == 2
    await book.buffer.close()


# --- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte and a half."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1536k", "tmpfs", str(folder)], check=False
    ).returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def until_full(book: Recorder, *, size: int) -> int:
    """How many pictures were kept before one was refused."""
    for kept in range(500):
        try:
            await book.photograph(station.picture(None, size=size))
        except BufferFullError:
            return kept
    raise AssertionError("the disk took everything")


@pytest.mark.req("WV-02", "WV-18")
async def test_full_disk_rejects_captures_and_loses_nothing_stored(small_disk: Path) -> None:
    book = await station.recorder(small_disk)
    kept = await until_full(book, size=20_000)
    assert kept > 10
    assert "disk" in str(book.full) or "space" in str(book.full)
    names = [*book.buffer.pictures.ids()]
    assert len(names) == kept
    for name in names[:10]:
        book.buffer.pictures.delete(name)
    await book.photograph(station.picture(None, size=4_000))
    assert await book.buffer.do(store.tally) == {
        **await book.buffer.do(store.tally),
        "pictures": kept + 1,
    }
    await book.buffer.close()


def fill(path: Path) -> None:
    handle = os.open(path, os.O_CREAT | os.O_WRONLY)
    with contextlib.suppress(OSError):
        while os.write(handle, bytes(4096)):
            pass
    os.close(handle)


async def test_disk_that_was_full_takes_captures_again(small_disk: Path) -> None:
    book = await station.recorder(small_disk)
    await station.weighing(book, pictures=0)
    fill(small_disk / "filler")
    await until_full(book, size=400)
    (small_disk / "filler").unlink()
    await station.weighing(book, pictures=0)
    good = await book.buffer.do(lambda tx: jobs.verify(tx, small_disk))
    assert good["problems"] == []
    await book.buffer.close()


@pytest.mark.req("WV-18")
@pytest.mark.parametrize("restarted", [False, True])
async def test_session_that_ends_on_a_full_disk_is_closed_when_there_is_room(
    small_disk: Path, *, restarted: bool
) -> None:
    clock = station.MovedClock()
    book = await station.recorder(small_disk, clock=clock)
    session_id, there = ids.new(), Station(book, None)
    await book.open(session_id, batch_id=None, initial_weight_kg=50, picture=None, at=station.BEGAN)
    await book.weigh(session_id, weight_kg=50, at=station.BEGAN)
    there.session_id = session_id
    fill(small_disk / "filler")
    await until_full(book, size=400)
    # As the disk refuses a row: the journal has no room left either.
    await book.buffer.do(lambda tx: tx.execute("pragma max_page_count = 1").fetchall())
    await there.act(Weigh(51.0))
    await there.act(Finish(51.0))
    assert await book.pending.flush() == 0
    left = clock.now()
    clock.move(600)
    (small_disk / "filler").unlink()
    if restarted:
        await book.buffer.close()
        book = await station.recorder(small_disk, clock=clock)
        await book.cancel_left_open(at=clock.now())
    else:
        await book.buffer.do(lambda tx: tx.execute("pragma max_page_count = 1073741823").fetchall())
        assert await book.pending.flush() == 1
    session = await book.buffer.do(lambda tx: store.session(tx, str(session_id)))
    assert session is not None
    if restarted:
        assert session["state"] == "cancelled"
        assert "stopped before the end" in session["reason"]
        assert "1 weights, 0 pictures" in session["reason"]
    else:
        assert (session["state"], session["final_weight_kg"]) == ("closed", 51.0)
        assert datetime.fromisoformat(session["ended_at"]) == left
        assert await book.buffer.do(lambda tx: store.count_weights(tx, str(session_id))) == 2
    await book.buffer.close()


async def test_buffer_is_not_full_any_more_when_there_is_room(small_disk: Path) -> None:
    book = await station.recorder(small_disk)
    fill(small_disk / "filler")
    await until_full(book, size=4000)
    await book.check_room()
    assert book.full
    (small_disk / "filler").unlink()
    await book.check_room()
    after: str | None = book.full
    assert after is None
    await book.buffer.close()


async def test_disk_reserve_leaves_room_for_open_sessions(tmp_path: Path) -> None:
    book = await station.recorder(tmp_path, within=station.limits(disk_reserve_bytes=2**60))
    with pytest.raises(BufferFullError, match="AGENT_DISK_RESERVE_BYTES"):
        await station.weighing(book)
    await book.buffer.close()


@pytest.mark.parametrize("salvaged", [False, True])
async def test_files_without_a_row_are_deleted_unless_a_salvage_lost_rows(
    tmp_path: Path, *, salvaged: bool
) -> None:
    book = await station.recorder(tmp_path)
    await station.weighing(book)
    book.buffer.pictures.store("of-nobody", b"bytes")
    await book.buffer.close()
    if salvaged:
        salvage.salvage(tmp_path / FILE, buffers.connect, reason="for the test")
    book = await station.recorder(tmp_path)
    upkeep = BufferJobs(book.buffer, book.writer, book, lambda: None)
    await upkeep.delete_unknown_files()
    assert len([*book.buffer.pictures.ids()]) == (2 if salvaged else 1)
    await book.buffer.close()

"""The journal: what is written is counted once, also while it is still being written."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from farmiq.lab.simulate.journal import Journal, Tally


def test_every_act_is_counted_under_its_name(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "journal.jsonl"
    with contextlib.closing(Journal(file)) as journal:
        journal.write("sent", "a", "what a carried")
        journal.write("ok", "a")
        journal.write("stored", "a")
        journal.write("sent", "b")
        journal.write("unknown", "b")
        journal.write("refused", "b")

    tally = Tally(file).look()

    assert tally.events == {
        "sent": {"a", "b"},
        "ok": {"a"},
        "unknown": {"b"},
        "stored": {"a"},
        "refused": {"b"},
    }
    assert tally.contents == {"a": "what a carried", "b": ""}
    assert tally.unconfirmed == {"b"}
    assert tally.count("sent") == 2


def test_tally_of_an_open_journal_counts_all_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    tally = Tally(file)
    assert tally.look().count("sent") == 0  # there is no file yet

    with contextlib.closing(Journal(file)) as journal:
        for number in range(5):
            journal.write("sent", str(number))
            assert tally.look().count("sent") == number + 1
    assert tally.look().count("sent") == 5


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    line = b'{"act":"sent","event_id":"a"}\n{"act":"sent","event_id":"b"}\n'
    tally = Tally(file)

    for end in range(len(line) + 1):
        file.write_bytes(line[:end])
        assert tally.look().count("sent") == line[:end].count(b"\n")


def test_a_journal_is_continued_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    for event_id in ("a", "b"):
        with contextlib.closing(Journal(file)) as journal:
            journal.write("sent", event_id)

    assert Tally(file).look().events["sent"] == {"a", "b"}


def test_journal_entry_written_twice_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    with contextlib.closing(Journal(file)) as journal:
        journal.write("sent", "a")
        journal.write("sent", "a")

    assert Tally(file).look().count("sent") == 1


async def test_journal_on_disk_is_flushed_and_callers_share_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes = 0
    fsync = os.fsync

    def counting(file: int) -> None:
        nonlocal flushes
        flushes += 1
        fsync(file)

    monkeypatch.setattr(os, "fsync", counting)
    journal = Journal(tmp_path / "journal.jsonl")

    async def send(name: str) -> None:
        journal.write("sent", name)
        await journal.on_disk()

    await asyncio.gather(*(send(str(number)) for number in range(50)))
    assert 1 <= flushes <= 3
    await journal.on_disk()
    assert flushes <= 3
    journal.close()

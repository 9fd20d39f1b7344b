"""The journal: what is written is counted once, also while it is still being written."""

import contextlib
from pathlib import Path

from farmiq.simulate.journal import Journal, Tally


def test_every_act_is_counted_under_its_name(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "journal.jsonl"
    with contextlib.closing(Journal(file)) as journal:
        for act in ("sent", "ok", "stored"):
            journal.write(act, "a")
        journal.write("sent", "b")
        journal.write("refused", "b")

    tally = Tally(file).look()

    assert tally.events == {"sent": {"a", "b"}, "ok": {"a"}, "stored": {"a"}, "refused": {"b"}}
    assert tally.count("sent") == 2


def test_a_look_sees_what_was_written_until_now(tmp_path: Path) -> None:
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


def test_a_repeat_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    with contextlib.closing(Journal(file)) as journal:
        journal.write("sent", "a")
        journal.write("sent", "a")

    assert Tally(file).look().count("sent") == 1

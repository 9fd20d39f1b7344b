"""The account of a fleet: every fault of the cloud is found, and nothing else."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from farmiq.lab.simulate import camera_account, captures
from farmiq.lab.simulate.captures import Account, Act, Entry, Stored

AT = datetime(2026, 11, 15, 7, tzinfo=UTC)


def line(act: Act, number: int) -> Entry:
    at = AT + timedelta(seconds=number)
    return Entry(
        act=act, mac="02AA", at=at, number=number, name="IMG_001.jpg", captured_at=at,
        sha256=f"hash {number}", size=9,
    )  # fmt: skip


def row(number: int) -> Stored:
    return Stored(
        mac="02AA", name="IMG_001.jpg", captured_at=AT + timedelta(seconds=number),
        status="complete", payloads=1, payload_status="complete", sha256=f"hash {number}",
    )  # fmt: skip


def account(*lines: Entry) -> Account:
    made = Account()
    for each in lines:
        made.take(each)
    return made


BOTH = [line(act, number) for number in (1, 2) for act in ("captured", "acked")]
KEYS = [row(number).key for number in (1, 2)]


def test_captures_stored_once_are_clean() -> None:
    found = captures.compare(account(*BOTH), [row(1), row(2)])
    assert (found.sent, found.stored, found.clean) == (2, 2, True)


def test_acknowledged_image_without_a_row_is_lost() -> None:
    assert captures.compare(account(*BOTH), [row(1)]).lost == (KEYS[1],)
    failed = replace(row(2), payload_status="failed")
    assert captures.compare(account(*BOTH), [row(1), failed]).lost == (KEYS[1],)


def test_image_waiting_on_a_card_is_not_lost() -> None:
    waiting = account(*BOTH[:3])
    assert captures.compare(waiting, [row(1)]).clean
    assert waiting.waiting == {("02AA", 2)}


def test_complete_without_bytes_or_with_others_is_changed() -> None:
    for wrong in (None, "hash 3"):
        found = captures.compare(account(*BOTH), [row(1), replace(row(2), sha256=wrong)])
        assert found.changed == (KEYS[1],)


def test_a_wake_counted_twice_or_a_picture_in_two_rows_is_twice() -> None:
    found = captures.compare(account(*BOTH), [row(1), replace(row(2), payloads=2)])
    assert found.twice == (KEYS[1],)
    found = captures.compare(account(*BOTH), [row(1), replace(row(2), sha256="hash 1")])
    assert found.twice == tuple(KEYS)


def test_image_that_no_camera_captured_is_invented() -> None:
    found = captures.compare(account(*BOTH), [row(1), row(2), row(3)])
    assert found.invented == (row(3).key,)


def test_a_journal_that_is_still_written_is_read(tmp_path: Path) -> None:
    raw = b"".join(msgspec.json.encode(each) + b"\n" for each in BOTH)
    (tmp_path / "j").write_bytes(raw[:-9])
    assert camera_account.read(tmp_path / "j").acked == {("02AA", 1)}

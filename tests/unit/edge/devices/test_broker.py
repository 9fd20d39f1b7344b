"""The broker's files on our side: a log that is followed, a pid that must be a broker's."""

import os
from pathlib import Path

import pytest

from farmiq.plumbing.broker import follow
from farmiq.plumbing.broker import users as broker
from farmiq.plumbing.broker.follow import Follower


def test_only_a_running_broker_is_ever_signalled(tmp_path: Path) -> None:
    pid_file = tmp_path / "nats.pid"
    with pytest.raises(broker.NotReloadedError, match="names no running broker"):
        broker.reload(pid_file)
    for text in ("", "soon", "999999999", "-1"):
        pid_file.write_text(text)
        with pytest.raises(broker.NotReloadedError, match="names no running broker"):
            broker.reload(pid_file)
    pid_file.write_text(str(os.getpid()))
    with pytest.raises(broker.NotReloadedError, match="and no broker"):
        broker.reload(pid_file)


def test_the_users_file_is_replaced_whole_and_closed_to_others(tmp_path: Path) -> None:
    file = tmp_path / "users.conf"
    broker.replace(file, "one")
    broker.replace(file, "two")
    assert file.read_text() == "two"
    assert file.stat().st_mode & 0o007 == 0
    assert [each.name for each in tmp_path.iterdir()] == ["users.conf"]


def test_a_log_is_followed_from_its_end_line_by_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    follower = Follower(log)
    assert follower.look() == ([], 0)
    with log.open("a") as writing:
        writing.write("one\ntw")
        writing.flush()
        assert follower.look() == (["one"], 0)
        writing.write("o\n")
    assert follower.look() == (["two"], 0)
    assert follower.look() == ([], 0)


def test_a_log_that_is_rotated_truncated_or_late_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    follower = Follower(log)
    assert follower.look() == ([], 0)
    log.write_text("first, longer\n")
    assert follower.look() == (["first, longer"], 0)
    log.write_text("short\n")
    assert follower.look() == (["short"], 0)
    log.rename(tmp_path / "log.1")
    log.write_text("another file\n")
    assert follower.look() == (["another file"], 0)


def test_a_flood_is_read_a_little_at_a_time_and_skipped_when_hopeless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MAX_BYTES", 100)
    monkeypatch.setattr(follow, "MAX_BEHIND", 500)
    log = tmp_path / "log"
    log.touch()
    follower = Follower(log)
    follower.look()
    log.write_text("".join(f"line {n:04}\n" for n in range(200)))
    lines, skipped = follower.look()
    assert skipped == 1500
    assert len(lines) <= 10
    while found := follower.look()[0]:
        lines += found
    assert lines[-1] == "line 0199"

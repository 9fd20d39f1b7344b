"""What a stack remembers."""

import os
from pathlib import Path

import pytest

from farmiq.stack import StackError, attach, processes, record, states, stop
from farmiq.stack.stack import downloads_of


def test_passwords_are_made_once_kept_and_closed_to_others(tmp_path: Path) -> None:
    first = record.passwords(tmp_path, ["a"])
    second = record.passwords(tmp_path, ["a", "b"])

    assert second["a"] == first["a"]
    assert second["a"] != second["b"]
    assert (tmp_path / "passwords.json").stat().st_mode & 0o777 == 0o600


def test_a_run_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    engine = record.Running(
        name="s3", version="S 1", host="h", port=1, urls={"U": "u"}, process=processes.myself()
    )
    run = record.Run(owner=processes.myself(), engines=(engine,))

    record.write_run(tmp_path, run)

    assert record.read_run(tmp_path) == run
    assert run.owned
    assert run.environment == {"U": "u"}


def test_a_broken_record_says_which_file_to_remove(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")

    with pytest.raises(StackError, match=r"run\.json cannot be read .*: remove it"):
        record.read_run(tmp_path)


def test_a_recorded_pid_that_belongs_to_a_stranger_counts_as_gone(tmp_path: Path) -> None:
    stranger = processes.Process(pid=os.getpid(), started="another boot:1")
    engine = record.Running(
        name="s3", version="", host="h", port=1, urls={}, stop_signal=15, process=stranger
    )
    record.write_run(tmp_path, record.Run(owner=stranger, engines=(engine,)))

    with pytest.raises(StackError, match="farmiq stack up"):
        attach(tmp_path)
    assert stop(tmp_path) == []


def test_where_nothing_was_started_there_is_nothing_to_see_or_stop(tmp_path: Path) -> None:
    assert states(tmp_path) == []
    assert stop(tmp_path) == []
    with pytest.raises(StackError, match="farmiq stack up"):
        attach(tmp_path)


def test_stacks_of_one_state_directory_share_their_downloads(tmp_path: Path) -> None:
    one, two = tmp_path / "stacks" / "one", tmp_path / "stacks" / "two"

    assert downloads_of(one) == downloads_of(two) == tmp_path / "engines"

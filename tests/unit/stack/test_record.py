"""What a stack remembers."""

import os
from pathlib import Path

import pytest

from farmiq import config
from farmiq.lab.stack import StackError, announce, attach, find, processes, record, states, stop
from farmiq.lab.stack.stack import downloads_of


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


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands are typed in a folder that has no stack."""
    monkeypatch.delenv("FARMIQ_STATE_DIR", raising=False)
    monkeypatch.setattr(config, "running_stacks_dir", lambda: tmp_path / "running")
    monkeypatch.setattr(config, "state_dir", lambda: tmp_path / "elsewhere")
    monkeypatch.setattr(config, "given_urls", dict)
    return tmp_path


def _running(root: Path) -> Path:
    root.mkdir(parents=True)
    record.write_run(root, record.Run(owner=processes.myself(), engines=()))
    announce(root)
    return root


def test_running_stack_is_found_from_any_folder(elsewhere: Path) -> None:
    root = _running(elsewhere / "a" / "stacks" / "demo")

    assert find() == find("demo") == root
    assert find("other") is None


def test_only_running_stack_is_found_whatever_its_name(elsewhere: Path) -> None:
    assert find() is None
    root = _running(elsewhere / "a" / "stacks" / "mine")

    assert find() == root


def test_stack_that_ended_is_not_found_and_its_note_is_removed(elsewhere: Path) -> None:
    root = _running(elsewhere / "a" / "stacks" / "demo")
    record.remove_run(root)

    assert find() is None
    assert list((elsewhere / "running").iterdir()) == []


def test_several_running_stacks_are_named_with_how_to_choose(elsewhere: Path) -> None:
    _running(elsewhere / "a" / "stacks" / "demo")
    _running(elsewhere / "b" / "stacks" / "demo")

    with pytest.raises(StackError, match="FARMIQ_STATE_DIR") as error:
        find()
    assert str(elsewhere / "a") in str(error.value)
    assert str(elsewhere / "b") in str(error.value)


def test_stack_of_this_folder_wins_over_others(elsewhere: Path) -> None:
    _running(elsewhere / "a" / "stacks" / "demo")
    here = _running(elsewhere / "elsewhere" / "stacks" / "demo")

    assert find() == here


def test_named_servers_or_a_named_state_directory_keep_other_stacks_out(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _running(elsewhere / "a" / "stacks" / "demo")

    monkeypatch.setattr(config, "given_urls", lambda: {"FARMIQ_EDGE_DB_URL": "postgresql://"})
    assert find() is None
    assert find("demo") == root

    monkeypatch.setenv("FARMIQ_STATE_DIR", str(elsewhere))
    assert find("demo") is None


def test_remedy_names_the_stack_and_its_folder(elsewhere: Path) -> None:
    root = elsewhere / "a" / "stacks" / "mine"
    root.mkdir(parents=True)
    gone = processes.Process(pid=2**22, started="another boot:1")
    engine = record.Running(
        name="mqtt-edge", version="", host="127.0.0.1", port=9, process=gone,
        urls={"FARMIQ_EDGE_MQTT_URL": "mqtt://u:p@127.0.0.1:9"},
    )  # fmt: skip
    record.write_run(root, record.Run(owner=None, engines=(engine,)))

    remedy = states(root)[0].remedy

    assert f"FARMIQ_STATE_DIR={elsewhere / 'a'} farmiq stack up --name mine" in remedy

"""`farmiq stack` and `farmiq doctor` as a person types them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from farmiq import config
from farmiq.cli import app
from farmiq.lab import stack


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    downloads = config.state_dir() / "engines"
    downloads.mkdir(parents=True, exist_ok=True)
    (tmp_path / "engines").symlink_to(downloads)
    monkeypatch.setattr(config, "state_dir", lambda: tmp_path)
    monkeypatch.setattr(config, "running_stacks_dir", lambda: tmp_path / "running")
    monkeypatch.setattr(config, "state_dir_given", lambda: False)
    monkeypatch.setattr(config, "given_urls", dict)
    yield tmp_path
    stack.stop(tmp_path / "stacks" / "demo")
    stack.remove(tmp_path / "stacks" / "demo")


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and stdout; stderr is for progress and errors."""
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout


@pytest.mark.timeout(300)
def test_up_status_doctor_down(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run("stack", "up")
    assert code == 0, output
    assert "FARMIQ_AMQP_URL=amqp://farmiq:" in output
    assert all("=" in line for line in output.splitlines()), "progress on stdout"

    code, output = run("stack", "status", "--json")
    assert code == 0, output
    assert {engine["name"] for engine in json.loads(output)} == set(stack.ENGINES)

    code, output = run("stack", "up", "--json")
    assert json.loads(output) == stack.attach(state / "stacks" / "demo")

    code, output = run("doctor")
    assert code == 0, output
    assert "RabbitMQ" in output

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(config, "state_dir", lambda: state / "another folder")
        code, output = run("stack", "status")
        assert code == 0, output
        code, output = run("stack", "down")
        assert f"FARMIQ_STATE_DIR={state} farmiq stack down --name demo" in output

    code, output = run("stack", "down", "--delete-data")
    assert code == 0, output
    assert "stopped mqtt-edge, postgres-edge" in output
    assert not (state / "stacks" / "demo").exists()


def test_without_a_stack_status_says_how_to_start_one(state: Path) -> None:
    code, output = run("stack", "status", "--name", "nothing")

    assert code == 3, state
    assert "farmiq stack up --name nothing" in output


def test_without_a_stack_doctor_says_what_a_start_would_use(state: Path) -> None:
    code, output = run("doctor", "--json")

    assert code == 0, state
    assert {engine["detail"] for engine in json.loads(output)} == {"not running, ready to start"}


def test_doctor_names_the_remedy_for_half_given_addresses(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "given_urls", lambda: {"FARMIQ_EDGE_S3_URL": "http://a"})

    code, output = run("doctor")

    assert code == 3, state
    assert "FARMIQ_CLOUD_S3_URL" in output


def test_a_name_that_leaves_the_folder_is_refused(state: Path) -> None:
    code, _ = run("stack", "down", "--name", "../other")

    assert code == 2, state

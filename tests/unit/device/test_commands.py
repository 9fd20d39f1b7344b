"""`farmiq agent …` as a technician types it, with the exit codes that a script sees."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from farmiq.cli import agent, app, terminal
from farmiq.device import status
from farmiq.device.buffer import store
from farmiq.device.buffer.store import Tx
from tests.support import station


def ask(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["agent", *words, "--dir", str(folder)])


def said(result: Result) -> Any:
    return json.loads(result.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A weighing whose picture failed and whose first event was refused."""

    async def work() -> None:
        book = await station.recorder(tmp_path)
        await station.weighing(book)

        def trouble(tx: Tx) -> None:
            row = store.page(tx, after_seq=0, limit=1)[0]
            store.settle(tx, row["event_id"], state="refused", now_s=1, reason="odd")
            image = store.next_image(tx, now_s=1e9, fresh_after_s=1e9)
            assert image is not None
            store.set_image(tx, image.image_id, state="failed", problem="400", attempts=3)

        await book.buffer.do(trouble)
        await book.buffer.close()

    asyncio.run(work())
    return tmp_path


def test_status_of_a_buffer_with_failures_exits_3(folder: Path) -> None:
    result = ask(folder, "status", "--json")
    found = said(result)
    assert result.exit_code == 3
    assert found["running"] is False
    assert (found["events"]["refused"], found["pictures"]["failed"]) == (1, 1)
    assert "1 refused" in ask(folder, "status").stdout


AT = "2026-03-01T06:00:00Z"
GOOD = {
    "running": True,
    "state": "online",
    "connected": True,
    "uploads_away": None,
    "scale_ok": True,
    "camera_ok": None,
    "alarms": {},
    "last_receipt_at": None,
}


@pytest.mark.parametrize(
    ("wrong", "line", "code"),
    [
        ({}, "edge       connected", 0),
        ({"connected": False, "state": "offline"}, "edge       NOT connected", 3),
        ({"uploads_away": "503 BUSY"}, "uploads    NOT possible: 503 BUSY", 3),
        ({"scale_ok": False}, "scale      NOT good", 3),
        ({"camera_ok": False}, "camera     NOT good", 3),
        ({}, "receipt    none yet", 0),
        ({"last_receipt_at": AT}, f"receipt    {terminal.local(AT)}", 0),
    ],
)
def test_status_of_a_running_agent_comes_from_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], line: str, code: int
) -> None:
    async def work() -> dict[str, Any]:
        book = await station.recorder(tmp_path)
        found = await book.buffer.do(status.summary)
        await book.buffer.close()
        return found

    found = {**asyncio.run(work()), **GOOD, **wrong}
    monkeypatch.setattr(agent, "fetch_status", lambda: found)
    result = CliRunner().invoke(app, ["agent", "status"])
    assert line in result.stdout.splitlines()
    assert result.exit_code == code


def test_buffer_ls_show_and_export_print_the_same_events(folder: Path, tmp_path: Path) -> None:
    (row,) = said(ask(folder, "buffer", "ls", "--state", "refused", "--json"))
    assert row["reason"] == "odd"
    shown = said(ask(folder, "buffer", "show", row["event_id"], "--json"))
    assert json.loads(shown["envelope"])["event_id"] == row["event_id"]
    assert ask(folder, "buffer", "show", "nothing").exit_code == 1
    assert ask(folder, "buffer", "ls", "--state", "odd").exit_code == 2
    out = tmp_path / "events.jsonl"
    assert said(ask(folder, "buffer", "export", str(out), "--json"))["events"] == 1
    assert json.loads(out.read_text())["topic"] == shown["topic"]


def test_buffer_redrive_sends_again_and_verify_finds_damage(folder: Path) -> None:
    assert said(ask(folder, "buffer", "verify", "--json"))["problems"] == []
    assert ask(folder, "buffer", "redrive").stdout.startswith("1 events and 1 pictures")
    assert said(ask(folder, "status", "--json"))["backlog"] == 1
    for each in (folder / "pictures").iterdir():
        each.write_bytes(b"rot")
    assert ask(folder, "buffer", "verify").exit_code == 3


def test_missing_buffer_or_event_is_said_in_a_sentence(tmp_path: Path) -> None:
    result = ask(tmp_path, "buffer", "redrive")
    assert result.exit_code == 1
    assert "AGENT_BUFFER_DIR" in result.output


@pytest.mark.req("WV-19")
def test_buffer_plan_says_whether_an_outage_fits() -> None:
    run = CliRunner().invoke
    good = run(app, ["agent", "buffer", "plan", "--sessions-per-hour", "10", "--json"])
    assert good.exit_code == 0
    assert json.loads(good.stdout)["fits"]
    assert run(app, ["agent", "buffer", "plan", "--sessions-per-hour", "100"]).exit_code == 3


def test_missing_settings_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_TENANT_ID", raising=False)
    result = CliRunner().invoke(app, ["agent", "run"])
    assert result.exit_code == 1
    assert "AGENT_TENANT_ID is not set" in result.output
    assert "AGENT_TOKEN is not set" in result.output

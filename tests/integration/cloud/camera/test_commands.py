"""`farmiq camera`: an integrator's first day, against a cloud that listens."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from farmiq.cli import app, camera, terminal
from farmiq.cloud.camera.accounts import service
from farmiq.cloud.camera.accounts.api import ROOT
from tests.integration.cloud.camera.conftest import Accounts
from tests.support import any_request

AT = "2026-03-01T06:00:00Z"


def test_the_first_day_on_the_command_line(
    accounts: Accounts,
    free_port: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("FARMIQ_CLOUD_URL", url)
    monkeypatch.setenv("FARMIQ_CLOUD_DB_ADMIN_URL", accounts.database.admin_url)
    environment = {
        "FARMIQ_CLOUD_DB_URL": accounts.database.url,
        "FARMIQ_AMQP_URL": "amqp://unused",
        "FARMIQ_EDGE_KEYS_FILE": str(tmp_path / "keys.json"),
        "FARMIQ_CLOUD_HTTP_PORT": str(port),
    }
    there: dict[str, Any] = {"paths": {f"{ROOT}/programs": {}}}
    with any_request.running(service.NAME, there, url, environment, tmp_path):
        first_day()


def run(*words: str, who: str = "admin@one.farm", code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["camera", "--as", who, *words])
    assert result.exit_code == code, result.output
    return json.loads(result.output) if "--json" in words and not code else result.output


def test_image_in_a_list_has_the_time_of_this_machine() -> None:
    known = dict.fromkeys(("image_id", "quality", "device_name", "image_name"), "x")
    row = {**known, "captured_at": AT, "status": "complete", "resend_requested_at": None}
    assert f"  {terminal.local(AT)}  complete" in camera.image_line(row)[0]


def first_day() -> None:
    run("program", "add", "Trial", "--type", "control")
    run("site", "add", "Barn", "--program", "Trial", "--timezone", "Asia/Bangkok")
    device = run(
        "device", "add", "Device-001", "--mac", "a0:b1:c2:d3:e4:f5", "--site", "Barn",
        "--cron", "0 8,16 * * *", "--json",
    )  # fmt: skip
    assert device["mac"] == "A0B1C2D3E4F5"
    assert "Barn" in run("device", "ls")
    assert terminal.local(device["created_at"]) in run("device", "show", "Device-001")
    assert (run("device", "update", "Device-001", "--slot", "3", "--json"))["slot_index"] == 3
    assert (run("site", "show", "Barn", "--json"))["program_name"] == "Trial"
    assert (run("program", "update", "Trial", "--inactive", "--json"))["is_active"] is False
    assert "at midnight" in run("schedule", "preview", "Device-001", "0 9 * * *")
    change = run("schedule", "change", "Device-001", "0 9 * * *", "--json")
    assert "waiting" in run("schedule", "ls", "Device-001")
    assert "cancelled" in run("schedule", "cancel", change["change_id"])
    assert "nothing" in run("session", "ls", "--site", "Barn")
    assert "nothing" in run("image", "ls", "--status", "failed")
    assert "is none of" in run("image", "ls", "--status", "lost", code=1)
    assert "no site" in run("site", "show", "Elsewhere", code=1)
    refused = run("device", "retire", "Device-001", who="viewer@one.farm", code=1)
    assert "technician" in refused
    assert (run("device", "retire", "Device-001", "--json"))["is_active"] is False

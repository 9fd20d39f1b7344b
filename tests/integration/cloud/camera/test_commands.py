"""`farmiq camera`: an integrator's first day, against a cloud that listens."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from farmiq.cli import app
from farmiq.cloud.camera.accounts.api import Api
from farmiq.cloud.identity.desk import Desk
from farmiq.plumbing import db, http
from tests.integration.cloud.camera.conftest import HOUR, Accounts


async def test_the_first_day_on_the_command_line(
    accounts: Accounts, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("FARMIQ_CLOUD_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("FARMIQ_CLOUD_DB_ADMIN_URL", accounts.database.admin_url)

    async def run(*words: str, who: str = "admin@one.farm", code: int = 0) -> Any:
        command = ["camera", "--as", who, *words]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
        assert result.exit_code == code, result.output
        return json.loads(result.output) if "--json" in words and not code else result.output

    door = http.Door(title="cloud", version="0")
    async with db.pool(accounts.database.url, name="test") as pool, asyncio.TaskGroup() as group:
        Api(pool, Desk(pool, lasts=HOUR)).add_to(door.app)
        serving = group.create_task(http.serve(door, host="127.0.0.1", port=port))
        try:
            await first_day(run)
        finally:
            serving.cancel()


async def first_day(run: Callable[..., Any]) -> None:
    await run("program", "add", "Trial", "--type", "control")
    await run("site", "add", "Barn", "--program", "Trial", "--timezone", "Asia/Bangkok")
    camera = await run(
        "device", "add", "Device-001", "--mac", "a0:b1:c2:d3:e4:f5", "--site", "Barn",
        "--cron", "0 8,16 * * *", "--json",
    )  # fmt: skip
    assert camera["mac"] == "A0B1C2D3E4F5"
    assert "Barn" in await run("device", "ls")
    assert (await run("device", "update", "Device-001", "--slot", "3", "--json"))["slot_index"] == 3
    assert (await run("site", "show", "Barn", "--json"))["program_name"] == "Trial"
    assert (await run("program", "update", "Trial", "--inactive", "--json"))["is_active"] is False
    assert "at midnight" in await run("schedule", "preview", "Device-001", "0 9 * * *")
    change = await run("schedule", "change", "Device-001", "0 9 * * *", "--json")
    assert "waiting" in await run("schedule", "ls", "Device-001")
    assert "cancelled" in await run("schedule", "cancel", change["change_id"])
    assert "there are none" in await run("session", "ls", "--site", "Barn")
    assert "there are none" in await run("image", "ls", "--status", "failed")
    assert "is none of" in await run("image", "ls", "--status", "lost", code=1)
    assert "no site" in await run("site", "show", "Elsewhere", code=1)
    refused = await run("device", "retire", "Device-001", who="viewer@one.farm", code=1)
    assert "technician" in refused
    assert (await run("device", "retire", "Device-001", "--json"))["is_active"] is False

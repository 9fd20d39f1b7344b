"""`farmiq record` and `farmiq feed` on a real database; what they add is published as any other."""

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from farmiq.cli import app
from tests.integration.cloud.postings.conftest import Cloud
from tests.support.until import until

WHERE = ("--tenant", "t-001", "--farm", "hill", "--barn", "b-1")


async def farmiq(*arguments: str, expect: int = 0) -> Any:
    run = CliRunner().invoke
    result = await asyncio.to_thread(run, app, [*arguments, "--json"])
    assert result.exit_code == expect, result.output
    return json.loads(result.stdout) if expect == 0 else result.stderr


async def printed(*arguments: str) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, app, [*arguments])
    return result.stdout


@pytest.fixture(autouse=True)
def database(api: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARMIQ_CLOUD_DB_URL", api.site.database.url)


async def test_record_command_adds_once_by_key_and_lists(api: Cloud) -> None:
    cure = ("treatment", "40", *WHERE, "--product", "amoxicillin", "--withdrawal-days", "14")
    first = await farmiq("record", "add", *cure, "--key", "k")
    again = await farmiq("record", "add", *cure, "--key", "k")
    await until(lambda: api.count("barn_events") == 1)

    fixed = await farmiq(
        "record", "add", "treatment", "4", *WHERE, "--product", "x",
        "--replaces", first["record_id"],
    )  # fmt: skip
    await until(lambda: api.count("barn_events") == 2)
    listed = await farmiq("record", "ls", "--tenant", "t-001", "--batch", "flock-1")

    assert again == first
    assert listed["records"][0]["record_id"] == fixed["record_id"]
    assert listed["records"][1]["replaced_by"] == fixed["record_id"]
    text = await printed("record", "ls", "--tenant", "t-001")
    assert f"(replaced by {fixed['record_id']})" in text


async def test_feed_commands_receive_take_and_say_what_is_left(api: Cloud) -> None:
    await farmiq("feed", "receive", "lot-1", "500", *WHERE, "--silo", "silo-1")
    await farmiq("feed", "take", "20", *WHERE, "--lot", "lot-1", "--at", "2026-02-01")
    await until(lambda: api.count("feed_events") == 2)

    (left,) = await farmiq("feed", "stock", "--tenant", "t-001", "--by", "silo")

    assert (left["silo_id"], left["stock_kg"], left["days_left"]) == ("silo-1", 480, 24)
    await farmiq("feed", "take", "30", *WHERE, "--at", "2026-02-02")
    await until(lambda: api.count("feed_events") == 3)
    of_one = ("--tenant", "t-001", "--limit", "1")
    newest = await farmiq("feed", "ls", *of_one)
    before = await farmiq("feed", "ls", *of_one, "--cursor", newest["next_cursor"])
    pages = [[row["quantity_kg"] for row in page["intakes"]] for page in (newest, before)]
    assert (pages, before["next_cursor"]) == ([[30], [20]], None)
    lots = await farmiq("feed", "lots", *of_one)
    assert [lot["feed_lot_id"] for lot in lots["lots"]] == ["lot-1"]
    text = await printed("feed", "stock", "--tenant", "t-001")
    assert "480 kg left of 500" in text


@pytest.mark.usefixtures("api")
async def test_wrong_entry_is_answered_in_a_sentence() -> None:
    assert "whole animals" in await farmiq("record", "add", "cull", "1.5", *WHERE, expect=2)
    assert "must be a number" in await farmiq("record", "add", "cull", "two", *WHERE, expect=2)
    assert "no lot 'x'" in await farmiq("feed", "take", "5", *WHERE, "--lot", "x", expect=1)
    for kg in ("nan", "-5"):
        assert f"{kg} is no weight" in await farmiq("feed", "take", kg, *WHERE, expect=2)
    record = ("record", "add", "mortality")
    assert "must be a number" in await farmiq(*record, "nan", *WHERE, expect=2)
    assert "must not be negative" in await farmiq(*record, "-5", *WHERE, expect=2)
    elsewhere = ("--tenant", "t-9", *WHERE[2:])
    assert "no company 't-9'" in await farmiq("feed", "take", "5", *elsewhere, expect=1)
    assert "--type" in await farmiq("record", "ls", "--tenant", "t", "--type", "death", expect=2)

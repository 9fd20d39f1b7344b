"""What goes over the wire, over HTTP: commands for cameras, and what was refused of them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from farmiq.cloud.camera import command_queue
from tests.integration.cloud.camera.conftest import Accounts


@pytest.mark.req("DB2-20")
async def test_who_may_ask_for_images_again_tells_cameras_other_things_too(
    accounts: Accounts,
) -> None:
    with accounts.days() as days:
        device = days.camera(None, "C")
    path, at = f"devices/{device}/commands", datetime.now(UTC) + timedelta(hours=2)
    for said in (
        {"name": "capture_image"},
        {"name": "send_image", "image_name": "IMG_001.jpg"},
        {"name": "send_image"},
        {"name": "next_wake", "wake_at": at.isoformat()},
    ):
        made = await accounts.done("POST", path, said, who="operator")
        assert (made["state"], made["created_by"]) == ("queued", "operator@one.farm")
        assert await accounts.got(f"commands/{made['command_id']}") == made
    found = await accounts.got("commands", device=device, state="queued", name="next_wake")
    assert [row["wake_at"] for row in found["commands"]] == [at.isoformat().replace("+00:00", "Z")]
    assert (await accounts.got("commands", who="other"))["commands"] == []
    assert (await accounts.send("POST", path, said, who="viewer")).status_code == 403
    assert (await accounts.send("POST", path, said, who="other")).status_code == 404


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"name": "next_wake"}, "wake_at"),
        ({"name": "next_wake", "wake_at": "2020-01-01T00:00:00Z"}, "wake_at"),
        ({"name": "next_wake", "wake_at": "2030-01-01T00:00:00"}, "wake_at"),
        ({"name": "capture_image", "image_name": "a.jpg"}, "image_name"),
        ({"name": "send_image", "image_name": "../a"}, "image_name"),
        ({"name": "format_card"}, "name"),
    ],
)
async def test_what_no_camera_understands_is_refused_by_field(
    accounts: Accounts, said: dict[str, Any], field: str
) -> None:
    with accounts.days() as days:
        device = days.camera(None, "C")
    answer = await accounts.send("POST", f"devices/{device}/commands", said)
    assert answer.status_code == 400
    assert [each["field"] for each in answer.json()["error"]["details"]] == [field]


async def test_a_camera_that_sleeps_collects_so_many_commands_and_a_retired_one_none(
    accounts: Accounts,
) -> None:
    with accounts.days() as days:
        device, gone = days.camera(None, "C"), days.camera(None, "D")
        for _ in range(command_queue.MAX_QUEUED):
            days.command(device)
        days.connection.execute(
            "update devices set is_active = false where device_id = %s", (gone,)
        )
    for each in (device, gone):
        answer = await accounts.send("POST", f"devices/{each}/commands", {"name": "capture_image"})
        assert answer.status_code == 409


async def test_people_see_what_was_refused_of_their_cameras_and_super_admins_the_unknown(
    accounts: Accounts,
) -> None:
    with accounts.days() as days:
        device = days.camera(None, "C")
        message = days.message(device)
        days.message(None, "00000000AAAA")
    ((row),) = (await accounts.got("quarantine", device=device, kind="format"))["messages"]
    assert (row["quarantine_id"], row["reasons"]) == (str(message), ["not a JSON object"])
    assert (await accounts.got(f"quarantine/{message}"))["raw_base64"] == "/3s="
    assert (await accounts.got("quarantine", who="other"))["messages"] == []
    assert (await accounts.get(f"quarantine/{message}", who="other")).status_code == 404
    assert (await accounts.get("unknown-cameras", who="admin")).status_code == 403
    found = (await accounts.got("unknown-cameras", who="sue"))["cameras"]
    assert [(each["mac"], each["messages"]) for each in found] == [("00000000AAAA", 1)]

"""When cameras wake: look first, ask, take back; by whom."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.integration.cloud.camera.conftest import Accounts

WISH = {"new_wake_schedule_cron": "0 6,12,18 * * *"}


def camera(accounts: Accounts) -> UUID:
    with accounts.days() as days:
        return days.camera(days.site(days.program("P"), "S"), "Device-001")


@pytest.mark.req("DB2-01", "DB2-02")
async def test_a_change_is_looked_at_asked_for_and_taken_back(accounts: Accounts) -> None:
    changes = f"devices/{camera(accounts)}/schedule-changes"
    preview = await accounts.done("POST", f"{changes}/preview", WISH, who="viewer")
    assert preview["text"].startswith("This change will take effect at midnight (")
    assert (await accounts.got(changes))["changes"] == []
    first = await accounts.done("POST", changes, WISH, who="technician")
    assert (first["state"], first["effective_date"]) == ("waiting", preview["effective_date"])
    assert first["text"] == preview["text"]
    (listed,) = (await accounts.got(changes, state="waiting"))["changes"]
    assert listed["change_id"] == first["change_id"]
    path = f"schedule-changes/{first['change_id']}/cancel"
    for _ in range(2):
        assert (await accounts.done("POST", path, who="technician"))["state"] == "cancelled"
    assert (await accounts.got(changes, state="waiting"))["changes"] == []


async def test_who_may_change_when_a_camera_wakes(accounts: Accounts) -> None:
    changes = f"devices/{camera(accounts)}/schedule-changes"
    made = await accounts.done("POST", changes, WISH, who="sue")
    cancel = f"schedule-changes/{made['change_id']}/cancel"
    for path in (changes, cancel):
        body = WISH if path == changes else {}
        for who, status in (("viewer", 403), ("operator", 403), ("other", 404)):
            assert (await accounts.send("POST", path, body, who=who)).status_code == status, who
    foreign = await accounts.send("POST", f"{changes}/preview", WISH, who="other")
    assert foreign.status_code == 404
    assert (
        await accounts.send("POST", f"schedule-changes/{uuid4()}/cancel", {})
    ).status_code == 404


@pytest.mark.parametrize(
    "body",
    [{}, {"new_wake_schedule_cron": "every morning"}, {"new_wake_schedule_cron": "61 * * * *"},
     {"new_wake_schedule_cron": 5}, {"new_wake_schedule_cron": "0 8 * * *", "now": True}],
)  # fmt: skip
async def test_what_is_no_schedule_is_refused(accounts: Accounts, body: dict[str, Any]) -> None:
    changes = f"devices/{camera(accounts)}/schedule-changes"
    for path in (changes, f"{changes}/preview"):
        answer = await accounts.send("POST", path, body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["details"]


async def test_a_retired_cameras_schedule_stays(accounts: Accounts) -> None:
    which = camera(accounts)
    await accounts.done("POST", f"devices/{which}/retire")
    refused = await accounts.send("POST", f"devices/{which}/schedule-changes", WISH)
    assert (refused.status_code, "retired" in refused.text) == (409, True)

"""Days, wakes, images and alerts, as people of the company see them."""

from datetime import date, timedelta
from uuid import UUID

import pytest
from PIL import Image

from farmiq.cloud.camera.accounts.api import ROOT
from farmiq.plumbing.images import pictures
from tests.integration.cloud.camera.conftest import Accounts
from tests.support import databases

DAY = date(2025, 1, 15)
JPEG = pictures.as_jpeg(Image.new("RGB", (8, 6)))


def filled(accounts: Accounts) -> dict[str, UUID]:
    """Device-001 has 5 of 6, Device-002 woke twelve times where ten were expected."""
    with accounts.days() as days:
        site = days.site(days.program("Trial"), "Barn")
        one, two = days.camera(site, "Device-001"), days.camera(site, "Device-002")
        session = days.day(site, DAY, {one: 6, two: 10})
        for index in range(1, 6):
            days.wake(session, one, index, temperature=20 + index)
        failed = days.wake(session, one, 6, status="failed")
        for index in range(1, 11):
            days.wake(session, two, index)
        extra = days.wake(session, two)
        days.wake(session, two, status="pending")
        alert = days.alert(one, DAY)
        later = days.day(site, DAY + timedelta(days=1), {})
    return {
        "site": site, "one": one, "two": two, "session": session, "failed": failed, "extra": extra,
        "alert": alert, "later": later,
    }  # fmt: skip


@pytest.mark.req("DB2-04", "DB2-05", "DB2-07")
async def test_a_day_says_how_complete_it_is_camera_by_camera(accounts: Accounts) -> None:
    made = filled(accounts)
    found = await accounts.got(f"sessions/{made['session']}")
    assert (found["status"], found["expected_wake_count"], found["extra_wake_count"]) == (
        "pending", 16, 2,
    )  # fmt: skip
    assert found["completeness"] == {"pct": 100.0, "shown_pct": 100, "band": "complete"}
    assert found["text"].splitlines()[:2] == [
        "Device Session: Jan 15, 2025", "Expected: 16 | Completed: 16 | Failed: 1 | Extra: 2",
    ]  # fmt: skip
    first, second = found["devices"]
    assert first["text"] == "Device-001 (6 received / 6 expected)"
    assert second["text"] == "Device-002 (12 received / 10 expected) ⚠️"
    assert (first["completed"], first["failed"], first["avg_temperature"]) == (5, 1, 23.0)
    assert first["completeness"] == {"pct": 83.33, "shown_pct": 83, "band": "acceptable"}
    assert (second["extra"], second["pending"], second["on_schedule"]) == (2, 1, 10)
    assert second["completeness"] == {"pct": 110.0, "shown_pct": 100, "band": "complete"}


async def test_days_by_site_status_and_date(accounts: Accounts) -> None:
    made = filled(accounts)
    listed = (await accounts.got("sessions", site=made["site"]))["sessions"]
    assert [each["session_date"] for each in listed] == ["2025-01-16", "2025-01-15"]
    assert listed[0]["completeness"] == {"pct": None, "shown_pct": None, "band": "n/a"}
    one = await accounts.got("sessions", from_="2025-01-15", to="2025-01-15", status="pending")
    assert [each["session_id"] for each in one["sessions"]] == [str(made["session"])]
    assert (await accounts.got("sessions", status="locked"))["sessions"] == []
    page = await accounts.got("sessions", limit=1)
    following = await accounts.got("sessions", limit=1, cursor=page["next_cursor"])
    assert [each["session_date"] for each in following["sessions"]] == ["2025-01-15"]
    assert following["next_cursor"] is None


async def test_wakes_by_day_camera_and_what_became_of_them(accounts: Accounts) -> None:
    made = filled(accounts)
    assert len((await accounts.got("wakes", session=made["session"]))["wakes"]) == 18
    assert len((await accounts.got("wakes", device=made["two"], overage="true"))["wakes"]) == 2
    assert (await accounts.got("wakes", from_="2025-01-16"))["wakes"] == []
    (failed,) = (await accounts.got("wakes", status="failed"))["wakes"]
    assert failed["payload_id"] == str(made["failed"])
    whole = await accounts.got(f"wakes/{made['failed']}")
    assert (whole["telemetry_data"], whole["device_name"]) == ({}, "Device-001")
    assert whole["image_status"] == whole["payload_status"] == "failed"


@pytest.mark.parametrize(
    "said", ['{"temperature": 1e5000}', "[" * 3000 + "]" * 3000, '{"n": 1.50, "\u00e9": "\u00e9"}']
)
async def test_whatever_a_camera_said_is_told_as_it_is(accounts: Accounts, said: str) -> None:
    made = filled(accounts)
    with databases.connected(accounts.database.admin_url) as owner:
        owner.execute("set local session_replication_role = replica")
        row = owner.execute(
            "update device_wake_payloads set telemetry_data = %s where payload_id = %s"
            " returning telemetry_data::text",
            (said, made["failed"]),
        ).fetchone()
    answer = await accounts.get(f"wakes/{made['failed']}")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert row
    assert f'"telemetry_data":{row[0]}' in answer.text
    for path in ("wakes", f"sessions/{made['session']}", "rollups/payload"):
        assert (await accounts.get(path)).status_code == 200


@pytest.mark.req("DB2-20")
async def test_an_image_that_failed_is_asked_for_again(accounts: Accounts) -> None:
    made = filled(accounts)
    (failed,) = (await accounts.got("images", status="failed"))["images"]
    assert (await accounts.got(f"images/{failed['image_id']}")) == failed
    path = f"images/{failed['image_id']}/resend"
    assert (await accounts.send("POST", path, {}, who="viewer")).status_code == 403
    assert (await accounts.send("POST", path, {}, who="other")).status_code == 404
    asked = await accounts.done("POST", path, who="operator")
    assert (asked["status"], asked["retry_count"]) == ("failed", 1)
    assert asked["resend_requested_at"] is not None
    (session,) = (await accounts.got("sessions", to="2025-01-15"))["sessions"]
    assert session["failed_wake_count"] == 1, "counters stay until it comes (C-79)"
    complete = await accounts.done("POST", f"images/{made['extra']}/resend", who="operator")
    assert (complete["status"], complete["retry_count"]) == ("complete", 0)


async def test_images_say_how_good_they_are(accounts: Accounts) -> None:
    made = filled(accounts)
    with accounts.days() as days:
        days.connection.execute(
            "select fn_image_completion_handler(image_id => %s, image_url => 'x')",
            (made["extra"],),
        )
        days.connection.execute(
            "update petri_observations set quality = 'blurred', sharpness = 12, width_px = 640"
        )
    (image,) = (await accounts.got("images", quality="blurred"))["images"]
    assert (image["image_id"], image["sharpness"], image["width_px"]) == (
        str(made["extra"]), 12.0, 640,
    )  # fmt: skip
    assert (await accounts.got("images", quality="blurred", who="other"))["images"] == []
    assert (await accounts.get("images", quality="nice")).status_code == 400
    plain = await accounts.got(f"images/{made['failed']}")
    assert (plain["quality"], plain["judged_at"]) == (None, None)


async def test_the_bytes_of_an_image_are_for_its_company_and_come_once(accounts: Accounts) -> None:
    made = filled(accounts)
    path = f"images/{made['extra']}/content"
    assert (await accounts.get(path)).status_code == 404, "its address is not of our store"
    key = f"camera/{accounts.one}/{made['extra']}.jpg"
    with databases.connected(accounts.database.admin_url) as owner:
        owner.execute("set local session_replication_role = replica")
        owner.execute(
            "update device_images set image_url = %s where image_id = %s", (key, made["extra"])
        )
    assert (await accounts.get(path)).status_code == 404, "its bytes are not there"
    await accounts.bucket.put(key, JPEG, content_type="image/jpeg")
    answer = await accounts.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/jpeg")
    assert answer.content == pictures.bare(JPEG)
    assert (await accounts.get(path, who="other")).status_code == 404
    assert (await accounts.get(path, who="")).status_code == 401
    assert (await accounts.get(f"images/{made['failed']}/content")).status_code == 404
    again = await accounts.client.get(
        f"{ROOT}/{path}",
        headers={
            "Authorization": f"Bearer {accounts.tokens['viewer']}",
            "If-None-Match": answer.headers["etag"],
        },
    )
    assert (again.status_code, again.content) == (304, b"")


async def test_alert_is_resolved_once(accounts: Accounts) -> None:
    made = filled(accounts)
    (alert,) = (await accounts.got("alerts", open="true", device=made["one"]))["alerts"]
    path = f"alerts/{alert['alert_id']}/resolve"
    assert (await accounts.send("POST", path, {}, who="viewer")).status_code == 403
    assert (await accounts.send("POST", path, {}, who="other")).status_code == 404
    first = await accounts.done("POST", path, who="operator")
    assert first["resolved_at"] is not None
    assert await accounts.done("POST", path, who="operator") == first
    assert (await accounts.got("alerts", open="true"))["alerts"] == []


@pytest.mark.req("DB2-08")
async def test_days_of_another_company_are_not_found(accounts: Accounts) -> None:
    made = filled(accounts)
    for path in (
        f"sessions/{made['session']}", f"wakes/{made['failed']}", f"images/{made['failed']}",
        f"devices/{made['one']}/trend", f"sites/{made['site']}/summary",
        f"devices/{made['one']}/schedule-changes",
    ):  # fmt: skip
        assert (await accounts.get(path, who="other")).status_code == 404, path
        assert (await accounts.get(path)).status_code == 200, path
    for kind in ("sessions", "wakes", "images", "alerts"):
        assert (await accounts.got(kind, who="other"))[kind] == []


async def test_invalid_id_is_not_found(accounts: Accounts) -> None:
    for path in ("sessions/x", "wakes/-", "images/%00", "rollups/farm", "sites/x/summary"):
        assert (await accounts.get(path)).status_code == 404, path

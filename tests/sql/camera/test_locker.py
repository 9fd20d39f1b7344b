"""A day is locked when it is over by its own clock, with the alerts of its exact limits."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.sql.camera.farm import Farm, call

HOURLY = "0 * * * *"
AFTER = "2026-03-11T00:00:30+07:00"


def locked(farm: Farm, site: UUID) -> dict[str, Any]:
    answer: dict[str, Any] = farm.call("fn_end_of_day_locker", site_id=site)
    return answer


def status_at(farm: Farm, instant: str, site: UUID) -> Any:
    """The day's status after the locker ran at exactly this instant: a transaction has one time."""
    with farm.owner.transaction():
        farm.at(instant)
        farm.value("select fn_end_of_day_locker(%s)", site)
    return farm.value("select status from site_device_sessions")


def alerts(farm: Farm) -> list[tuple[Any, ...]]:
    return farm.rows("select alert_type, device_id from device_alerts order by alert_type")


def wakes(farm: Farm, device: UUID, *, completed: int = 0, failed: int = 0, **said: Any) -> None:
    """So many of the day's hourly wakes, from midnight on; some complete, some failed."""
    farm.at("2026-03-10T23:50:00+07:00")
    for hour in range(completed + failed):
        captured_at = f"2026-03-10T{hour:02}:00:00+07:00"
        wake = farm.wake(device, captured_at, f"{device}-{hour}.jpg", **said)
        if hour < completed:
            farm.call("fn_image_completion_handler", image_id=wake["image_id"], image_url="s3://x")
        else:
            farm.call(
                "fn_image_failure_handler",
                image_id=wake["image_id"], error_code="LOST", error_message="m",
            )  # fmt: skip


@pytest.mark.req("FN-03")
def test_a_day_is_locked_from_its_last_second_on_and_stays_so(farm: Farm) -> None:
    site = farm.site()
    farm.device(site)
    farm.call("fn_midnight_session_opener", site_id=site)
    assert locked(farm, site)["expected_wake_count"] == 2
    assert status_at(farm, "2026-03-10T23:59:58.999999+07:00", site) == "pending"
    assert status_at(farm, "2026-03-10T23:59:59+07:00", site) == "locked"
    assert locked(farm, site) == {
        "alerts_created": 0,
        "completed_wake_count": 0,
        "failed_wake_count": 0,
        "expected_wake_count": 2,
    }
    first = farm.value("select status, locked_at from site_device_sessions")
    assert first[0] == "locked"
    farm.at(AFTER)
    locked(farm, site)
    assert farm.value("select status, locked_at from site_device_sessions") == first


def test_a_site_without_days_has_no_counts(farm: Farm) -> None:
    assert locked(farm, farm.site()) == {
        "alerts_created": 0,
        "completed_wake_count": None,
        "failed_wake_count": None,
        "expected_wake_count": None,
    }


@pytest.mark.req("FN-03")
@pytest.mark.parametrize(("completed", "raised"), [(22, 0), (21, 1)])
def test_three_missed_wakes_are_told_two_are_not(farm: Farm, completed: int, raised: int) -> None:
    site = farm.site()
    device = farm.device(site, HOURLY)
    wakes(farm, device, completed=completed)
    farm.at(AFTER)
    assert locked(farm, site) == {
        "alerts_created": raised,
        "completed_wake_count": completed,
        "failed_wake_count": 0,
        "expected_wake_count": 24,
    }
    assert alerts(farm) == [("missed_wakes", device)] * raised


def test_a_wake_that_failed_or_came_extra(farm: Farm) -> None:
    """Failed is not missed; extra does not make up for a missed one."""
    site = farm.site()
    device = farm.device(site, HOURLY)
    wakes(farm, device, completed=16, failed=5)
    farm.wake(device, "2026-03-10T03:05:00+07:00", "extra.jpg")
    farm.at(AFTER)
    locked(farm, site)
    details = "select details from device_alerts where alert_type = 'missed_wakes'"
    assert farm.value(details) == {"missed": 3, "expected": 24}


@pytest.mark.req("FN-03")
@pytest.mark.parametrize(("completed", "failed", "raised"), [(7, 3, 0), (16, 7, 1), (0, 1, 1)])
def test_more_than_thirty_percent_failed(
    farm: Farm, completed: int, failed: int, raised: int
) -> None:
    site = farm.site()
    wakes(farm, farm.device(site, HOURLY), completed=completed, failed=failed)
    farm.owner.execute("delete from device_alerts")
    farm.at(AFTER)
    locked(farm, site)
    assert alerts(farm).count(("high_failure_rate", None)) == raised


@pytest.mark.req("FN-03")
def test_just_above_thirty_percent_of_ten_thousand(farm: Farm) -> None:
    """3000 of 10000 is the limit itself, 3001 of 10001 is above it."""
    site = farm.site()
    session = farm.call("fn_midnight_session_opener", site_id=site)["session_id"]
    for failed, completed, above in ((3000, 7000, False), (3001, 7000, True), (3001, 6999, True)):
        farm.unguarded(
            "update site_device_sessions set failed_wake_count = %s, completed_wake_count = %s",
            failed,
            completed,
        )
        found = farm.rows("select alert_type from fn_day_alerts(%s)", session)
        assert (("high_failure_rate",) in found) == above


@pytest.mark.req("FN-03")
@pytest.mark.parametrize(("volt", "raised"), [(3.6, 0), (3.59, 1)])
def test_the_last_reading_of_the_day_is_the_batterys(farm: Farm, volt: float, raised: int) -> None:
    site = farm.site()
    device = farm.device(site)
    # Late images come in any order: what counts is when they were taken.
    farm.wake(device, "2026-03-10T16:00:00+07:00", "b.jpg", battery_voltage=volt)
    farm.wake(device, "2026-03-10T16:10:00+07:00", "c.jpg")
    farm.wake(device, "2026-03-10T08:00:00+07:00", "a.jpg", battery_voltage=3.0)
    farm.at(AFTER)
    locked(farm, site)
    assert alerts(farm).count(("low_battery", device)) == raised


def test_an_alert_is_opened_once(farm: Farm) -> None:
    site = farm.site()
    wakes(farm, farm.device(site, HOURLY), completed=1, battery_voltage=3.1)
    farm.at(AFTER)
    with ThreadPoolExecutor(8) as many:
        connections = [farm.connect() for _ in range(8)]
        answers = list(
            many.map(lambda each: call(each, "fn_end_of_day_locker", site_id=site), connections)
        )
        for each in connections:
            each.close()
    assert sum(answer["alerts_created"] for answer in answers) == 2
    assert [kind for kind, _ in alerts(farm)] == ["low_battery", "missed_wakes"]


@pytest.mark.req("FN-03")
def test_what_is_pending_too_long_fails_first(farm: Farm) -> None:
    site = farm.site()
    device = farm.device(site)
    farm.wake(device, "2026-03-10T08:00:00+07:00", "old.jpg")
    farm.at("2026-03-10T23:58:00+07:00")
    farm.wake(device, "2026-03-10T16:00:00+07:00", "young.jpg")
    farm.at(AFTER)
    assert locked(farm, site)["failed_wake_count"] == 1
    assert farm.value("select error_code from device_images where image_name = 'old.jpg'") == (
        "TIMEOUT"
    )
    farm.at("2026-03-11T00:03:30+07:00")
    assert farm.call("fn_fail_pending_payloads", older_than="5 minutes") == 1
    assert farm.call("fn_fail_pending_payloads", older_than="5 minutes") == 0
    session = farm.value("select session_id from site_device_sessions")
    assert farm.counters(session) == (0, 2, 0)
    assert farm.value("select late_updates from site_device_sessions") == 1


def transfer(farm: Farm, wake: dict[str, Any], *, heard: str, due: str) -> None:
    """What the gateway has of an image on its way."""
    farm.owner.execute(
        "insert into camera_transfers as t (transfer_id, company_id, device_id, image_id,"
        " image_name, dialect, spelling, state, total_chunks, opened_at, heard_at, due_at)"
        " select image_id, company_id, device_id, image_id, image_name, 'standard', 'A',"
        "  'receiving', 9, created_at, %s, %s from device_images where image_id = %s"
        " on conflict on constraint camera_transfers_pkey do update"
        " set heard_at = excluded.heard_at, due_at = excluded.due_at",
        (heard, due, wake["image_id"]),
    )


@pytest.mark.req("FN-03")
def test_an_image_of_which_chunks_still_come_is_not_given_up(farm: Farm) -> None:
    site = farm.site()
    wake = farm.wake(farm.device(site), farm.now())
    transfer(farm, wake, heard="2026-03-10T23:58:00+07:00", due="2026-03-10T23:58:05+07:00")
    farm.at("2026-03-11T00:01:00+07:00")
    assert farm.call("fn_fail_pending_payloads", older_than="5 minutes") == 0
    assert locked(farm, site)["failed_wake_count"] == 0
    # The gateway is gone: its next step has been due for five minutes.
    farm.at("2026-03-11T00:03:06+07:00")
    assert farm.call("fn_fail_pending_payloads", older_than="5 minutes") == 1


def test_what_the_gateway_still_asks_for_is_the_gateways(farm: Farm) -> None:
    """Its own timeout may be longer, and while the store is away it waits with a whole image."""
    wake = farm.wake(farm.device(farm.site()), farm.now())
    transfer(farm, wake, heard="2026-03-10T12:00:00+07:00", due="2026-03-10T12:30:00+07:00")
    farm.at("2026-03-10T12:20:00+07:00")
    assert farm.call("fn_fail_pending_payloads", older_than="5 minutes") == 0
    farm.owner.execute("update camera_transfers set state = 'failed'")
    assert farm.call("fn_fail_pending_payloads", older_than="5 minutes") == 1


def test_metadata_that_come_again_are_a_sign_of_life(farm: Farm) -> None:
    camera = farm.device(farm.site())
    farm.wake(camera, "2026-03-10T11:00:00+07:00")
    farm.at("2026-03-10T12:04:00+07:00")
    farm.wake(camera, "2026-03-10T11:00:00+07:00")
    farm.at("2026-03-10T12:08:00+07:00")
    assert farm.call("fn_fail_pending_payloads", older_than="5 minutes") == 0
    farm.at("2026-03-10T12:09:01+07:00")
    assert farm.call("fn_fail_pending_payloads", older_than="5 minutes") == 1


def test_a_camera_misses_nothing_where_it_does_not_stand(farm: Farm) -> None:
    farm.at("2026-03-10T00:00:30+07:00")
    here, there = farm.site(), farm.site()
    camera = farm.device(here, HOURLY)
    farm.call("fn_midnight_session_opener_all")
    farm.at("2026-03-10T01:00:00+07:00")
    farm.owner.execute("update devices set site_id = %s", (there,))
    farm.at("2026-03-10T23:50:00+07:00")
    for hour in range(2, 24):
        farm.wake(camera, f"2026-03-10T{hour:02}:00:00+07:00", f"{hour}.jpg")
    farm.at(AFTER)
    farm.call("fn_end_of_day_locker_all")
    assert farm.value("select count(*) from device_alerts where alert_type = 'missed_wakes'") == 0
    assert farm.rows("select expected_wake_count, extra_wake_count from site_device_sessions") in (
        [(24, 0), (0, 22)], [(0, 22), (24, 0)],
    )  # fmt: skip


def test_moved_camera_misses_the_wakes_before_its_move(farm: Farm) -> None:
    site = farm.site()
    camera = farm.device(site, HOURLY)
    farm.call("fn_midnight_session_opener_all")
    farm.owner.execute("update devices set site_id = %s", (farm.site(),))
    farm.at(AFTER)
    farm.call("fn_end_of_day_locker_all")
    assert farm.rows("select device_id, site_id, details from device_alerts") == [
        (camera, site, {"missed": 13, "expected": 13})
    ]


def test_a_retired_camera_misses_nothing(farm: Farm) -> None:
    site = farm.site()
    farm.device(site, HOURLY)
    farm.call("fn_midnight_session_opener_all")
    farm.owner.execute("update devices set is_active = false")
    farm.at(AFTER)
    assert locked(farm, site)["alerts_created"] == 0


def test_fail_pending_payloads_without_a_valid_age_is_rejected(farm: Farm) -> None:
    for nonsense in (None, "-1 second"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="such as 5 minutes"):
            farm.call("fn_fail_pending_payloads", older_than=nonsense)


@pytest.mark.req("FN-04")
def test_all_days_that_are_over_and_no_other(farm: Farm) -> None:
    zones = ("Pacific/Kiritimati", "Asia/Bangkok", "UTC", "America/New_York")
    sites = {zone: farm.site(zone) for zone in zones}
    for site in sites.values():
        farm.device(site, HOURLY)
    farm.call("fn_midnight_session_opener_all")
    farm.owner.execute(
        "update sites set is_active = false where site_id = %s", (sites["Asia/Bangkok"],)
    )
    farm.at("2026-03-10T23:59:59Z")
    answer = farm.call("fn_end_of_day_locker_all")
    # In New York it is evening; Kiritimati had the 10th when we began, and now has the 11th.
    over = {str(sites[zone]) for zone in zones[:3]}
    assert {result["site_id"] for result in answer["results"]} == over
    assert (answer["total_alerts_created"], answer["success_count"]) == (3, 3)
    again = farm.call("fn_end_of_day_locker_all")
    assert again == {
        "total_alerts_created": 0, "success_count": 0, "error_count": 0, "results": [],
    }  # fmt: skip


@pytest.mark.req("FN-04")
def test_one_failing_site_does_not_stop_locking_others(farm: Farm) -> None:
    good, bad = farm.site(), farm.site()
    for site in (good, bad):
        farm.call("fn_midnight_session_opener", site_id=site)
    farm.owner.execute(
        f"create function fn_refuse() returns trigger language plpgsql as $$ begin"
        f" if new.site_id = '{bad}' then raise 'planted'; end if; return new; end $$;"
        " create trigger refuse before update on site_device_sessions"
        " for each row execute function fn_refuse()".encode()
    )
    farm.at(AFTER)
    answer = farm.call("fn_end_of_day_locker_all")
    assert (answer["success_count"], answer["error_count"]) == (1, 1)
    assert {"site_id": str(bad), "error": "planted"} in answer["results"]
    assert farm.rows("select site_id from site_device_sessions where status = 'locked'") == [
        (good,)
    ]


def test_several_days_are_locked_in_order_and_the_newest_is_counted(farm: Farm) -> None:
    site = farm.site()
    camera = farm.device(site, HOURLY)
    farm.call("fn_midnight_session_opener", site_id=site)
    farm.owner.execute("update devices set wake_schedule_cron = '0 8 * * *'")
    farm.at("2026-03-13T12:00:00+07:00")
    farm.call("fn_midnight_session_opener", site_id=site)
    answer = locked(farm, site)
    assert (answer["alerts_created"], answer["expected_wake_count"]) == (1, 1)
    assert farm.rows(
        "select status, count(*)::int from site_device_sessions group by 1 order by 1"
    ) == [("locked", 3), ("pending", 1)]
    assert alerts(farm) == [("missed_wakes", camera)]


def test_the_last_hour_that_comes_twice_is_not_locked_at_its_first(farm: Farm) -> None:
    """In São Paulo the clock went from 24:00 back to 23:00."""
    farm.at("2018-02-17T12:00:00-02:00")
    site = farm.site("America/Sao_Paulo")
    farm.call("fn_midnight_session_opener", site_id=site)
    assert status_at(farm, "2018-02-18T01:59:59Z", site) == "pending"
    assert status_at(farm, "2018-02-18T02:59:58.999999Z", site) == "pending"
    assert status_at(farm, "2018-02-18T02:59:59Z", site) == "locked"


@pytest.mark.parametrize("locked", [False, True])
def test_counters_that_differ_are_told_and_set_right(farm: Farm, *, locked: bool) -> None:
    site = farm.site()
    wakes(farm, farm.device(site, HOURLY), completed=2, failed=1)
    if locked:
        status_at(farm, "2026-03-11T00:00:30+07:00", site)
    assert farm.call("fn_alert_counters_differing") == 0
    farm.unguarded("update site_device_sessions set extra_wake_count = 5, failed_wake_count = 0")
    differing = "select counted ->> 'extra', recounted ->> 'extra' from fn_counters_differing()"
    assert farm.rows(differing) == [("5", "0")]
    assert farm.call("fn_alert_counters_differing") == 1
    assert farm.call("fn_alert_counters_differing") == 0
    assert farm.counters(farm.value("select session_id from site_device_sessions")) == (2, 1, 0)
    assert alerts(farm).count(("counters_differ", None)) == 1
    said = farm.value("select message from device_alerts where alert_type = 'counters_differ'")
    assert (
        said == "the counters of 2026-03-10 were not what its wakes add up to; they were set right"
    )


def test_what_a_day_expects_is_told_and_stays(farm: Farm) -> None:
    site = farm.site()
    farm.device(site, HOURLY)
    farm.call("fn_midnight_session_opener", site_id=site)
    farm.unguarded("update site_device_sessions set expected_wake_count = 5")
    for _ in range(2):
        assert farm.call("fn_alert_counters_differing") == 1
    assert farm.value("select expected_wake_count from site_device_sessions") == 5


def test_counters_may_be_set_right_by_hand_and_to_nothing_else(farm: Farm) -> None:
    wakes(farm, farm.device(farm.site(), HOURLY), completed=2, failed=1)
    farm.unguarded("update site_device_sessions set extra_wake_count = 5")
    for wrong in ("extra_wake_count = 4", "completed_wake_count = 3", "late_updates = 1"):
        with pytest.raises(psycopg.errors.CheckViolation, match="not by hand"):
            farm.owner.execute(f"update site_device_sessions set {wrong}".encode())  # noqa: S608
    farm.owner.execute("update site_device_sessions set extra_wake_count = 0")
    assert farm.rows("select * from fn_counters_differing()") == []

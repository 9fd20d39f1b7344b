"""A site's day opens at its own midnight, once, with the changes that are due."""

import asyncio
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from farmiq.plumbing import ids
from tests.sql.camera.farm import Farm

DAY = "select expected_wake_count, config_changed_flag from site_device_sessions where site_id = %s"


def opened(farm: Farm, site: UUID) -> dict[str, Any]:
    answer: dict[str, Any] = farm.call("fn_midnight_session_opener", site_id=site)
    return answer


def days(farm: Farm, site: UUID) -> dict[str, int]:
    rows = farm.rows(
        "select session_date::text, expected_wake_count from site_device_sessions"
        " where site_id = %s order by 1",
        site,
    )
    return dict(rows)


def change(farm: Farm, device: UUID, cron: str, effective: str, *, requested: str) -> UUID:
    """A request as somebody once made it."""
    made = ids.new()
    farm.owner.execute(
        "insert into device_schedule_changes (change_id, company_id, device_id,"
        " new_wake_schedule_cron, requested_at, effective_date) values (%s, %s, %s, %s, %s, %s)",
        (made, farm.company, device, cron, requested, effective),
    )
    return made


@pytest.mark.req("FN-01", "DB2-03")
def test_it_expects_the_wakes_of_active_cameras_of_the_site(farm: Farm) -> None:
    site, other = farm.site(), farm.site()
    camera = farm.device(site, "0 8,16 * * *")
    farm.device(site, "0 * * * *")
    farm.device(site, None)
    farm.device(site, "0 8 * * *", is_active=False)
    farm.device(other, "0 8 * * *")
    answer = opened(farm, site)
    assert answer == {
        "session_id": answer["session_id"],
        "expected_wake_count": 26,
        "config_changed": False,
    }
    assert farm.rows(
        "select wake_window_index, expected_at::text from expected_wakes"
        " where session_id = %s and device_id = %s order by 1",
        answer["session_id"],
        camera,
    ) == [(1, "2026-03-10 01:00:00+00"), (2, "2026-03-10 09:00:00+00")]
    assert farm.value(
        "select session_date::text, status, timezone, locked_at from site_device_sessions"
    ) == ("2026-03-10", "pending", "Asia/Bangkok", None)


@pytest.mark.req("FN-01")
def test_a_second_call_finds_the_day_as_it_is(farm: Farm) -> None:
    site = farm.site()
    farm.device(site)
    first = opened(farm, site)
    farm.device(site, "0 * * * *")
    assert opened(farm, site) == {**first, "config_changed": True}
    assert days(farm, site) == {"2026-03-10": 2}


@pytest.mark.req("DS-04")
async def test_fifty_at_once_make_one_day(farm: Farm) -> None:
    site = farm.site()
    camera = farm.device(site)
    change(farm, camera, "0 * * * *", "2026-03-10", requested="2026-03-09T12:00Z")

    async def call() -> Any:
        async with await psycopg.AsyncConnection.connect(farm.database.url) as connection:
            cursor = await connection.execute("select fn_midnight_session_opener(%s)", (site,))
            return await cursor.fetchone()

    answers = await asyncio.gather(*(call() for _ in range(50)))
    assert len({str(answer) for answer in answers}) == 1
    assert farm.rows(DAY, site) == [(24, True)]
    assert farm.value("select count(*) from expected_wakes") == 24


@pytest.mark.req("FN-01", "DS-12")
def test_the_newest_of_three_requests_is_applied(farm: Farm) -> None:
    site = farm.site()
    camera = farm.device(site, "0 8 * * *")
    first, second, newest = (
        change(farm, camera, cron, "2026-03-10", requested=requested)
        for cron, requested in (
            ("0 1 * * *", "2026-03-09T01:00Z"),
            ("0 1,2 * * *", "2026-03-09T02:00Z"),
            ("0 1,2,3 * * *", "2026-03-09T02:00Z"),  # of the same moment: the later one
        )
    )
    assert opened(farm, site)["expected_wake_count"] == 3
    assert opened(farm, site)["config_changed"]
    assert farm.value("select wake_schedule_cron from devices") == "0 1,2,3 * * *"
    ends = farm.rows(
        "select change_id, applied_at is not null, applied_by_function,"
        " previous_wake_schedule_cron, superseded_at is not null from device_schedule_changes"
    )
    assert {row[0]: row[1:] for row in ends} == {
        newest: (True, "fn_midnight_session_opener", "0 8 * * *", False),
        first: (False, None, None, True),
        second: (False, None, None, True),
    }
    with pytest.raises(psycopg.errors.CheckViolation, match="stays as it is"):
        farm.owner.execute("update device_schedule_changes set applied_at = null")


def test_a_change_for_tomorrow_waits(farm: Farm) -> None:
    site = farm.site()
    camera = farm.device(site, "0 8 * * *")
    change(farm, camera, "0 * * * *", "2026-03-11", requested="2026-03-10T01:00Z")
    assert opened(farm, site)["expected_wake_count"] == 1
    for instant, expected in (("10T23:59:59.999999", 1), ("11T00:00:00", 24)):
        with farm.owner.transaction():  # which has one time
            farm.at(f"2026-03-{instant}+07:00")
            answer = farm.value("select fn_midnight_session_opener(%s)", site)
        assert answer["expected_wake_count"] == expected
    assert days(farm, site) == {"2026-03-10": 1, "2026-03-11": 24}


@pytest.mark.req("DS-12", "DB2-01")
def test_days_that_were_missed_open_one_by_one_with_their_own_changes(farm: Farm) -> None:
    site = farm.site()
    camera = farm.device(site, "0 8 * * *")
    opened(farm, site)
    change(farm, camera, "0 8,9 * * *", "2026-03-11", requested="2026-03-10T01:00Z")
    change(farm, camera, "0 8,9,10 * * *", "2026-03-13", requested="2026-03-12T01:00Z")
    farm.at("2026-03-13T09:00:00+07:00")
    farm.device(site, "0 * * * *")  # put there today: it was not missed before
    assert opened(farm, site)["expected_wake_count"] == 27
    assert days(farm, site) == {
        "2026-03-10": 1,
        "2026-03-11": 2,
        "2026-03-12": 2,
        "2026-03-13": 27,
    }
    assert farm.rows(
        "select config_changed_flag from site_device_sessions order by session_date"
    ) == [(False,), (True,), (False,), (True,)]


@pytest.mark.parametrize(
    "activate",
    ["update sites set is_active = %s", "update pilot_programs set is_active = %s"],
)
def test_what_was_not_active_missed_nothing(farm: Farm, activate: str) -> None:
    site = farm.site()
    farm.device(site)
    opened(farm, site)
    farm.owner.execute(activate.encode(), (False,))
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is not active"):
        opened(farm, site)
    assert farm.call("fn_midnight_session_opener_all")["results"] == []
    farm.at("2026-04-10T12:00:00+07:00")
    farm.owner.execute(activate.encode(), (True,))
    opened(farm, site)
    assert days(farm, site) == {"2026-03-10": 2, "2026-04-10": 2}


ACTIVE = "update pilot_programs set is_active = %s where program_id = %s"


def test_a_site_that_leaves_an_inactive_program_missed_nothing(farm: Farm) -> None:
    site = farm.site()
    farm.device(site, "0 * * * *")
    opened(farm, site)
    elsewhere = another_program(farm)
    farm.owner.execute(ACTIVE, (False, farm.program))
    farm.at("2026-03-20T22:30:00+07:00")
    farm.owner.execute("update sites set program_id = %s", (elsewhere,))
    opened(farm, site)
    assert days(farm, site) == {"2026-03-10": 24, "2026-03-20": 24}
    farm.at("2026-03-21T00:00:30+07:00")
    farm.call("fn_end_of_day_locker_all")
    # Of the hours since it is in use again it missed one only.
    assert farm.rows("select alert_date::text from device_alerts") == [("2026-03-10",)]


@pytest.mark.parametrize("who", ["site", "program", "move"])
def test_days_that_are_owed_open_before_nobody_owes_any_more(farm: Farm, who: str) -> None:
    """The calendar is off from the 11th on; the 12th ends it."""
    site = farm.site()
    farm.device(site)
    opened(farm, site)
    farm.at("2026-03-12T12:00:00+07:00")
    if who == "move":
        farm.owner.execute("update sites set program_id = %s", (another_program(farm),))
    else:
        table = {"site": "sites", "program": "pilot_programs"}[who]
        for active in (False, True):
            # As the API does it.
            farm.service.execute(f"update {table} set is_active = %s".encode(), (active,))  # noqa: S608
    assert days(farm, site) == {f"2026-03-{day}": 2 for day in (10, 11, 12)}
    assert farm.rows("select distinct program_id from site_device_sessions") == [(farm.program,)]


def another_program(farm: Farm) -> UUID:
    made = ids.new()
    farm.owner.execute(
        "insert into pilot_programs (program_id, company_id, program_name, program_type)"
        " values (%s, %s, 'another', 'control')",
        (made, farm.company),
    )
    return made


def test_a_site_that_never_had_a_day_gets_none_by_being_switched_off(farm: Farm) -> None:
    site = farm.site()
    farm.owner.execute("update sites set is_active = false")
    assert days(farm, site) == {}


def test_hours_before_a_camera_was_put_there_are_not_expected(farm: Farm) -> None:
    site = farm.site()
    camera = farm.device(site, "0 * * * *", put_now=True)
    farm.at("2026-03-10T18:00:00+07:00")
    assert opened(farm, site)["expected_wake_count"] == 11
    windows = "select min(wake_window_index), max(wake_window_index) from expected_wakes"
    assert farm.value(windows) == (14, 24)
    # It is the 14th of the day, as at any other place of its schedule.
    assert farm.wake(camera, "2026-03-10T13:00:00+07:00")["wake_index"] == 14
    farm.at("2026-03-11T00:00:30+07:00")
    opened(farm, site)
    assert days(farm, site) == {"2026-03-10": 11, "2026-03-11": 24}


def test_first_day_opened_late_expects_nothing_before_the_camera_came(farm: Farm) -> None:
    site = farm.site()
    camera = farm.device(site, "0 * * * *", put_now=True)
    farm.at("2026-03-11T12:00:00+07:00")
    for hour in (10, 13):
        farm.wake(camera, f"2026-03-10T{hour}:00:00+07:00", pending=True)
    farm.wake(camera, "2026-03-09T13:00:00+07:00", pending=True)
    # Nothing was expected of it before it was there (C-120).
    assert days(farm, site) == {"2026-03-09": 0, "2026-03-10": 11, "2026-03-11": 24}
    farm.call("fn_end_of_day_locker_all")
    assert farm.rows("select alert_date::text, details from device_alerts") == [
        ("2026-03-10", {"missed": 10, "expected": 11})
    ]


def test_days_before_the_first_camera_expect_nothing(farm: Farm) -> None:
    """C-120: also if the site was there and its days were opened, or images of that time come."""
    site = farm.site()
    for day in (8, 9, 10):
        farm.at(f"2026-03-{day:02}T12:00:00+07:00")
        opened(farm, site)
    camera = farm.device(site, "0 * * * *", put_now=True)
    farm.at("2026-03-11T12:00:00+07:00")
    opened(farm, site)
    waited = farm.wake(camera, "2026-03-07T13:00:00+07:00", pending=True)
    farm.call("fn_end_of_day_locker_all")
    assert days(farm, site) == {
        "2026-03-07": 0,
        "2026-03-08": 0,
        "2026-03-09": 0,
        "2026-03-10": 0,
        "2026-03-11": 24,
    }
    assert farm.counters(waited["session_id"]) == (0, 0, 1)
    reason = "select overage_reason, wake_window_index from device_wake_payloads"
    assert farm.rows(reason) == [("no_schedule", None)]
    assert farm.rows("select alert_type from device_alerts") == []


def test_a_day_before_one_camera_came_expects_what_the_other_owed(farm: Farm) -> None:
    site = farm.site()
    farm.device(site, "0 8 * * *")
    farm.at("2026-03-12T12:00:00+07:00")
    late = farm.device(site, "0 * * * *", put_now=True)
    farm.wake(late, "2026-03-11T09:00:00+07:00", pending=True)
    farm.wake(late, "2026-03-09T09:00:00+07:00", pending=True)
    assert days(farm, site) == {"2026-03-09": 0, "2026-03-11": 1, "2026-03-12": 12}


def test_opening_a_day_of_an_unknown_site_is_rejected(farm: Farm) -> None:
    for function in ("fn_midnight_session_opener", "fn_end_of_day_locker"):
        with pytest.raises(psycopg.errors.NoDataFound, match="there is no site"):
            farm.call(function, site_id=ids.new())
        with pytest.raises(psycopg.errors.NoDataFound, match="there is no site null"):
            farm.call(function, site_id=None)


@pytest.mark.req("FN-02")
def test_one_failing_site_does_not_stop_the_others(farm: Farm) -> None:
    good = [farm.site(zone) for zone in ("Asia/Bangkok", "America/New_York")]
    bad = farm.site()
    for site in (*good, bad):
        farm.device(site)
    with farm.owner.transaction():
        farm.owner.execute("set local session_replication_role = replica")
        farm.owner.execute("update sites set timezone = 'Nowhere' where site_id = %s", (bad,))
    answer = farm.call("fn_midnight_session_opener_all")
    assert (answer["success_count"], answer["error_count"]) == (2, 1)
    results = {UUID(result.pop("site_id")): result for result in answer["results"]}
    assert set(results) == {*good, bad}
    assert results[bad].keys() == {"error"}
    assert "Nowhere" in results[bad]["error"]
    for site in good:
        assert results[site] == opened(farm, site)


def test_nothing_opens_before_its_own_midnight(farm: Farm) -> None:
    sites = {zone: farm.site(zone) for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC")}
    farm.at("2026-06-01T00:00:00Z")
    farm.call("fn_midnight_session_opener_all")
    assert {zone: [*days(farm, site)] for zone, site in sites.items()} == {
        "Pacific/Kiritimati": ["2026-06-01"],
        "Pacific/Pago_Pago": ["2026-05-31"],
        "UTC": ["2026-06-01"],
    }


@pytest.mark.req("DS-05", "DS-06", "XC-06")
def test_status_goes_forward_only(farm: Farm) -> None:
    session = opened(farm, farm.site())["session_id"]
    set_status = "update site_device_sessions set status = %s, locked_at = %s where session_id = %s"
    for status, locked_at, error in (
        ("incomplete", None, psycopg.errors.CheckViolation),
        ("locked", farm.now(), psycopg.errors.CheckViolation),
        ("in_progress", None, None),
        ("pending", None, psycopg.errors.CheckViolation),
        ("locked", farm.now(), None),
        ("in_progress", None, psycopg.errors.CheckViolation),
    ):
        if error is None:
            farm.owner.execute(set_status, (status, locked_at, session))
        else:
            with pytest.raises(error):
                farm.owner.execute(set_status, (status, locked_at, session))


def by_wake(farm: Farm, site: UUID, day: str) -> Any:
    """The day as the handler of a wake gets it."""
    with farm.owner.transaction():
        farm.owner.execute("set local role farmiq_jobs")
        return farm.value("select fn_open_session(%s, %s)", site, day)


def test_a_past_day_is_opened_by_what_held_then(farm: Farm) -> None:
    site, elsewhere = farm.site(), farm.site()
    stays, moved, retired = (farm.device(site, "0 8 * * *") for _ in range(3))
    opened(farm, site)
    change(farm, stays, "0 8,9 * * *", "2026-03-20", requested="2026-03-19T01:00Z")
    farm.at("2026-03-12T12:00:00+07:00")
    # Nobody calls for days: the calendar is down.
    farm.owner.execute("update devices set site_id = %s where device_id = %s", (elsewhere, moved))
    farm.owner.execute("update devices set is_active = false where device_id = %s", (retired,))
    farm.at("2026-03-20T12:00:00+07:00")
    session = by_wake(farm, site, "2026-03-12")
    assert session == by_wake(farm, site, "2026-03-12")
    assert days(farm, site) == {
        "2026-03-10": 3,
        "2026-03-11": 2,
        "2026-03-12": 2,  # moved at noon: counted where it began
        **{f"2026-03-{day}": 1 for day in range(13, 20)},
        "2026-03-20": 2,
    }
    assert by_wake(farm, site, "2026-03-01")
    assert days(farm, site)["2026-03-01"] == 0
    status = farm.value("select status from site_device_sessions where session_id = %s", session)
    assert status == "pending"
    farm.call("fn_end_of_day_locker_all")
    status = farm.value("select status from site_device_sessions where session_id = %s", session)
    assert status == "locked"


def test_a_future_day_is_not_opened_but_for_a_clock_that_is_a_little_ahead(farm: Farm) -> None:
    site = farm.site()
    farm.at("2026-03-10T23:49:00+07:00")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="has not begun"):
        by_wake(farm, site, "2026-03-11")
    farm.at("2026-03-10T23:55:00+07:00")
    assert by_wake(farm, site, "2026-03-11")
    assert [*days(farm, site)] == ["2026-03-11"]
    opened(farm, site)
    assert [*days(farm, site)] == ["2026-03-10", "2026-03-11"]


@pytest.mark.parametrize(
    ("zone", "day", "begins"),
    [
        ("Asia/Bangkok", "2026-03-10", "2026-03-09 17:00:00+00"),
        ("Africa/Cairo", "2026-04-24", "2026-04-23 22:00:00+00"),  # 00:00 does not exist
        ("America/Havana", "2026-11-01", "2026-11-01 04:00:00+00"),  # 00:00 comes twice
        ("America/Sao_Paulo", "2018-02-18", "2018-02-18 03:00:00+00"),  # 23:00 came twice
        ("America/St_Johns", "2010-11-07", "2010-11-07 03:30:00+00"),  # the date came twice
        ("Australia/Lord_Howe", "2026-04-05", "2026-04-04 13:00:00+00"),
        ("CET", "2026-07-01", "2026-06-30 22:00:00+00"),  # also an abbreviation without summer
    ],
)
def test_when_a_date_begins(farm: Farm, zone: str, day: str, begins: str) -> None:
    farm.owner.execute("set timezone = 'UTC'")
    assert farm.value("select fn_midnight(%s, %s)::text", zone, day) == begins


def test_a_date_that_a_place_skipped_has_no_day(farm: Farm) -> None:
    farm.at("2011-12-29T12:00:00-10:00")
    site = farm.site("Pacific/Apia")
    farm.device(site)
    opened(farm, site)
    farm.at("2012-01-01T12:00:00+14:00")
    opened(farm, site)
    assert [*days(farm, site)] == ["2011-12-29", "2011-12-31", "2012-01-01"]


@pytest.mark.parametrize(
    "statement",
    [
        "update devices set site_id = null",
        "update devices set is_active = false",
        "update devices set wake_schedule_cron = '0 9 * * *'",
    ],
)
def test_a_camera_changed_in_mid_day_marks_the_day(farm: Farm, statement: str) -> None:
    site = farm.site()
    farm.device(site)
    assert not opened(farm, site)["config_changed"]
    farm.owner.execute("update devices set device_name = 'other', site_id = site_id")
    assert not opened(farm, site)["config_changed"]
    farm.owner.execute(statement.encode())
    assert opened(farm, site)["config_changed"]
    with pytest.raises(psycopg.errors.CheckViolation):
        farm.owner.execute("update site_device_sessions set config_changed_flag = false")


def test_dates_follow_the_clock_for_a_year(farm: Farm) -> None:
    """Hourly cameras of places whose clocks change: 23, 24 or 25 wakes, each day once."""
    farm.at("2026-01-01T12:00:00Z")
    sites = [farm.site(zone) for zone in ("Europe/Berlin", "America/Havana", "Africa/Cairo")]
    for site in sites:
        farm.device(site, "0 * * * *")
        opened(farm, site)
    farm.at("2026-12-31T12:00:00Z")
    farm.call("fn_midnight_session_opener_all")
    year = {str(date(2026, 1, 1) + timedelta(days=n)) for n in range(365)}
    for site in sites:
        found = days(farm, site)
        assert set(found) == year
        assert sorted(count for count in found.values() if count != 24) == [23, 25]

"""Schedules change at midnight of the site: on request, the newest wins, taken back until then."""

import asyncio
from typing import Any
from uuid import UUID

import psycopg
import pytest

from farmiq.cloud.identity.accounts import add_company
from farmiq.plumbing import ids
from tests.sql import two_companies
from tests.sql.camera.farm import Farm, call
from tests.sql.camera.people import person
from tests.support.until import until

WAITING = """
select count(*)::int from pg_locks where locktype = 'advisory' and not granted
  and database = (select oid from pg_database where datname = current_database())
"""


def request(farm: Farm, device: UUID, cron: str, **who: Any) -> dict[str, Any]:
    with person(farm, **who) as connection:
        answer: dict[str, Any] = call(
            connection, "fn_request_schedule_change", device_id=device, new_wake_schedule_cron=cron
        )
        return answer


def cancel(farm: Farm, change: str, **who: Any) -> dict[str, Any]:
    with person(farm, **who) as connection:
        answer: dict[str, Any] = call(connection, "fn_cancel_schedule_change", change_id=change)
        return answer


def next_wake(farm: Farm, device: UUID, after: str) -> str:
    found = farm.value("select fn_device_next_wake(%s, %s) at time zone 'UTC'", device, after)
    return f"{found:%Y-%m-%dT%H:%MZ}"


@pytest.mark.req("DB2-01", "DS-12")
def test_a_change_takes_effect_at_the_sites_midnight(farm: Farm) -> None:
    site = farm.site()
    device = farm.device(site, "0 8,16 * * *")
    farm.call("fn_midnight_session_opener", site_id=site)
    change = request(farm, device, "0 * * * *")
    assert (change["effective_date"], change["takes_effect_at"]) == (
        "2026-03-11",
        "2026-03-10T17:00:00Z",
    )
    assert farm.value(
        "select company_id, requested_by is not null, applied_at from device_schedule_changes"
        " where change_id = %s",
        change["change_id"],
    ) == (farm.company, True, None)
    farm.at("2026-03-10T23:59:20+07:00")
    farm.call("fn_midnight_session_opener", site_id=site)
    assert farm.value("select wake_schedule_cron from devices") == "0 8,16 * * *"
    farm.at("2026-03-11T00:00:00+07:00")
    farm.call("fn_midnight_session_opener", site_id=site)
    assert farm.value("select wake_schedule_cron from devices") == "0 * * * *"
    assert farm.rows(
        "select expected_wake_count, config_changed_flag from site_device_sessions"
        " order by session_date"
    ) == [(2, False), (24, True)]


@pytest.mark.req("DS-12")
def test_the_last_request_wins_and_the_others_are_kept(farm: Farm) -> None:
    site = farm.site()
    device = farm.device(site)
    for cron in ("0 1 * * *", "0 1,2 * * *", "0 1,2,3 * * *"):
        request(farm, device, cron)
    farm.at("2026-03-11T00:00:00+07:00")
    assert farm.call("fn_midnight_session_opener", site_id=site)["expected_wake_count"] == 3
    assert farm.rows(
        "select applied_at is not null, superseded_at is not null from device_schedule_changes"
        " order by position"
    ) == [(False, True), (False, True), (True, False)]


def test_a_change_can_be_taken_back_until_it_is_applied(farm: Farm) -> None:
    site = farm.site()
    device = farm.device(site, "0 8 * * *")
    first, second = (request(farm, device, cron) for cron in ("0 1,2 * * *", "0 * * * *"))
    cancelled = cancel(farm, second["change_id"])
    assert cancelled.keys() == {"change_id", "cancelled_at"}
    assert cancel(farm, second["change_id"])["cancelled_at"] == cancelled["cancelled_at"]
    farm.at("2026-03-11T00:00:00+07:00")
    assert farm.call("fn_midnight_session_opener", site_id=site)["expected_wake_count"] == 2
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="was applied"):
        cancel(farm, first["change_id"])


def test_one_that_was_overtaken_cannot_be_taken_back(farm: Farm) -> None:
    site = farm.site()
    device = farm.device(site)
    first, _ = (request(farm, device, cron) for cron in ("0 1,2 * * *", "0 * * * *"))
    farm.at("2026-03-11T00:00:00+07:00")
    farm.call("fn_midnight_session_opener", site_id=site)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="overtaken"):
        cancel(farm, first["change_id"])


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_only_technicians_and_admins_change_schedules(farm: Farm, role: str) -> None:
    device = farm.device(farm.site())
    change = request(farm, device, "0 9 * * *", role="admin")["change_id"]
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="only technicians"):
        request(farm, device, "0 9 * * *", role=role)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="only technicians"):
        cancel(farm, change, role=role)


def test_nobody_reaches_another_companys_cameras(farm: Farm) -> None:
    other = add_company(farm.owner, "other", name="Company other")
    device = farm.device(farm.site())
    change = request(farm, device, "0 9 * * *")["change_id"]
    for function in ("fn_request_schedule_change", "fn_preview_schedule_change"):
        with (
            person(farm, company=other) as connection,
            pytest.raises(psycopg.errors.NoDataFound, match="your company has no camera"),
        ):
            call(connection, function, device_id=device, new_wake_schedule_cron="0 9 * * *")
    with pytest.raises(psycopg.errors.NoDataFound, match="your company has no schedule change"):
        cancel(farm, change, company=other)
    # A super admin reaches them by looking at that company, and not otherwise.
    with person(farm, "viewer", company=other, super_admin=True) as connection:
        with pytest.raises(psycopg.errors.NoDataFound), connection.transaction():
            call(connection, "fn_cancel_schedule_change", change_id=change)
        connection.execute("select set_active_company_context(%s)", (farm.company,))
        assert call(connection, "fn_cancel_schedule_change", change_id=change)
    with (
        two_companies.looking(farm.database.url) as connection,
        pytest.raises(psycopg.errors.InvalidAuthorizationSpecification, match="nobody"),
    ):
        call(connection, "fn_cancel_schedule_change", change_id=change)


@pytest.mark.parametrize("cron", ["", " ", "@daily", "0 25 * * *", "* * * * * *", None])
def test_invalid_schedule_is_rejected(farm: Farm, cron: str) -> None:
    device = farm.device(farm.site())
    problem = farm.value("select fn_cron_problem(nullif(trim(%s), ''))", cron)
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        request(farm, device, cron)
    assert refused.value.diag.message_primary == (
        problem or "The schedule is missing: write five fields, such as 0 8,16 * * *."
    )


def test_a_retired_camera_keeps_its_schedule(farm: Farm) -> None:
    device = farm.device(farm.site(), is_active=False)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="retired"):
        request(farm, device, "0 9 * * *")


def test_a_camera_without_a_site_follows_its_company(farm: Farm) -> None:
    farm.owner.execute("update companies set timezone = 'America/New_York'")
    device = farm.device(None, "0 8 * * *")
    # Noon in Bangkok is one o'clock at night in New York.
    change = request(farm, device, "0 9 * * *")
    assert change["takes_effect_at"] == "2026-03-11T04:00:00Z"
    assert next_wake(farm, device, "2026-03-10T15:00Z") == "2026-03-11T13:00Z"
    # The day after, it is put at a site whose day is open: what is due is applied, and told.
    farm.at("2026-03-12T12:00:00+07:00")
    site = farm.site()
    farm.call("fn_midnight_session_opener", site_id=site)
    farm.owner.execute("update devices set site_id = %s", (site,))
    assert farm.call("fn_midnight_session_opener", site_id=site)["config_changed"]
    assert farm.value("select wake_schedule_cron from devices") == "0 9 * * *"


async def test_requested_while_the_day_opens_is_for_the_next(farm: Farm) -> None:
    """Two connections: the request began before midnight and comes to the site after the opener."""
    site = farm.site()
    device = farm.device(site, "0 8 * * *")
    with psycopg.connect(farm.database.url) as opening:
        farm.at("2026-03-11T00:00:00+07:00")
        call(opening, "fn_midnight_session_opener", site_id=site)
        farm.at("2026-03-10T23:59:00+07:00")
        asked = asyncio.create_task(asyncio.to_thread(request, farm, device, "0 9 * * *"))
        await until(lambda: farm.value(WAITING))
        opening.commit()
        change = await asked
    assert change["effective_date"] == "2026-03-12"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("2026-03-10T05:00Z", "2026-03-10T09:00Z"),  # today at 16:00, by the old schedule
        ("2026-03-10T09:00Z", "2026-03-10T23:00Z"),  # after the last wake: tomorrow's, at 06:00
        ("2026-03-10T22:59Z", "2026-03-10T23:00Z"),
        ("2026-03-10T23:00Z", "2026-03-11T23:00Z"),
    ],
)
def test_after_the_last_wake_of_the_day_the_next_follows_what_waits(
    farm: Farm, after: str, expected: str
) -> None:
    device = farm.device(farm.site(), "0 8,16 * * *")
    request(farm, device, "0 7 * * *")
    request(farm, device, "0 6 * * *")
    assert next_wake(farm, device, after) == expected


def test_a_change_at_midnight_itself(farm: Farm) -> None:
    device = farm.device(farm.site(), "0 0 * * *")
    request(farm, device, "0 0,12 * * *")
    assert next_wake(farm, device, "2026-03-10T10:00Z") == "2026-03-10T17:00Z"
    assert next_wake(farm, device, "2026-03-10T17:00Z") == "2026-03-11T05:00Z"


def test_camera_without_schedule_or_retired_has_no_next_wake(farm: Farm) -> None:
    site = farm.site()
    for device in (farm.device(site, None), farm.device(site, is_active=False), ids.new()):
        assert farm.call("fn_device_next_wake", device_id=device) is None


@pytest.mark.req("DS-12")
def test_a_clock_that_is_ahead_applies_nothing_before_midnight(farm: Farm) -> None:
    """The day that its wake opens counts on the change; the camera gets it at midnight."""
    site = farm.site()
    device = farm.device(site, "0 8 * * *")
    farm.call("fn_midnight_session_opener", site_id=site)
    change = request(farm, device, "0 8,9,10 * * *")
    early = "select expected_wake_count, config_changed_flag from site_device_sessions"
    state = (
        "select d.wake_schedule_cron, c.applied_at is not null from devices d"
        " join device_schedule_changes c on c.change_id = %s"
    )
    farm.at("2026-03-10T23:55:00+07:00")
    farm.wake(device, "2026-03-11T00:01:00+07:00")
    farm.call("fn_midnight_session_opener", site_id=site)
    assert farm.rows(f"{early} where session_date = '2026-03-11'") == [(3, True)]
    assert farm.value(state, change["change_id"]) == ("0 8 * * *", False)
    assert next_wake(farm, device, "2026-03-11T08:00:00+07:00") == "2026-03-11T02:00Z"
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="open already"):
        cancel(farm, change["change_id"])
    assert request(farm, device, "0 7 * * *")["effective_date"] == "2026-03-12"
    farm.at("2026-03-11T00:00:01+07:00")
    farm.call("fn_midnight_session_opener", site_id=site)
    assert farm.value(state, change["change_id"]) == ("0 8,9,10 * * *", True)
    assert farm.rows(f"{early} where session_date = '2026-03-11'") == [(3, True)]

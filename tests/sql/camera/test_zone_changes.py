"""A site's time zone changes: days keep the zone they were opened in, the next one has the new."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.sql.camera.farm import Farm, call
from tests.sql.camera.people import person

WAKES = "0 8,16,20,22 * * *"


def opened(farm: Farm, site: UUID) -> dict[str, Any]:
    answer: dict[str, Any] = farm.call("fn_midnight_session_opener", site_id=site)
    return answer


def days(farm: Farm, site: UUID) -> list[tuple[str, str, int]]:
    return farm.rows(
        "select session_date::text, timezone, expected_wake_count from site_device_sessions"
        " where site_id = %s order by 1",
        site,
    )


def rezone(farm: Farm, site: UUID, zone: str) -> None:
    farm.service.execute("update sites set timezone = %s where site_id = %s", (zone, site))


def day_of(farm: Farm, wake: dict[str, Any]) -> tuple[str, str | None]:
    """The date under which a wake stands, and why it is extra."""
    found: tuple[str, str | None] = farm.value(
        "select s.session_date::text, p.overage_reason from device_wake_payloads p"
        " join site_device_sessions s on s.session_id = p.site_device_session_id"
        " where p.payload_id = %s",
        wake["payload_id"],
    )
    return found


@pytest.fixture
def eastward(farm: Farm) -> tuple[UUID, UUID]:
    """In New York it is noon of the 11th when the site becomes one of Tokyo."""
    farm.at("2026-03-11T12:00:00-04:00")
    site = farm.site("America/New_York")
    device = farm.device(site, WAKES)
    opened(farm, site)
    rezone(farm, site, "Asia/Tokyo")
    return site, device


@pytest.fixture
def westward(farm: Farm) -> tuple[UUID, UUID]:
    """In Bangkok the 11th is an hour old when the site becomes one of New York."""
    farm.at("2026-03-10T12:00:00+07:00")
    site = farm.site("Asia/Bangkok")
    device = farm.device(site, WAKES)
    opened(farm, site)
    farm.at("2026-03-11T01:00:00+07:00")
    opened(farm, site)
    farm.call("fn_end_of_day_locker", site_id=site)
    rezone(farm, site, "America/New_York")
    return site, device


@pytest.mark.req("DS-01", "DS-03")
def test_eastward_the_day_ends_as_it_began_and_the_next_is_short(
    farm: Farm, eastward: tuple[UUID, UUID]
) -> None:
    site, device = eastward
    assert opened(farm, site)["config_changed"]
    farm.at("2026-03-11T16:00:00-04:00")
    opened(farm, site)
    wake = farm.wake(device, "2026-03-11T16:00:00-04:00")
    assert day_of(farm, wake) == ("2026-03-11", None)
    farm.at("2026-03-11T23:59:00-04:00")
    opened(farm, site)
    farm.call("fn_end_of_day_locker", site_id=site)
    assert farm.value("select status from site_device_sessions") == "in_progress"
    assert days(farm, site) == [("2026-03-11", "America/New_York", 4)]
    # Midnight in New York is 13:00 of the 12th in Tokyo: three wakes of it are still to come.
    farm.at("2026-03-12T00:00:30-04:00")
    farm.call("fn_end_of_day_locker", site_id=site)
    opened(farm, site)
    assert days(farm, site)[1:] == [("2026-03-12", "Asia/Tokyo", 3)]
    wake = farm.wake(device, "2026-03-11T22:01:00-04:00", "late.jpg")
    assert day_of(farm, wake) == ("2026-03-11", None)
    farm.at("2026-03-12T16:00:00+09:00")
    wake = farm.wake(device, "2026-03-12T16:00:00+09:00", "next.jpg")
    assert day_of(farm, wake) == ("2026-03-12", None)
    farm.at("2026-03-13T00:00:00+09:00")
    opened(farm, site)
    assert days(farm, site)[2:] == [("2026-03-13", "Asia/Tokyo", 4)]


@pytest.mark.req("DS-01", "DS-03")
def test_westward_a_date_is_not_opened_twice(farm: Farm, westward: tuple[UUID, UUID]) -> None:
    site, device = westward
    started = [("2026-03-10", "Asia/Bangkok", 4), ("2026-03-11", "Asia/Bangkok", 4)]
    opened(farm, site)
    assert farm.value("select config_changed_flag from site_device_sessions where status='pending'")
    late = farm.wake(device, "2026-03-10T02:00:00+07:00", "late.jpg", pending=True)
    assert day_of(farm, late)[0] == "2026-03-10"
    farm.at("2026-03-11T08:00:00+07:00")
    assert day_of(farm, farm.wake(device, "2026-03-11T08:00:00+07:00")) == ("2026-03-11", None)
    # Bangkok's 11th is over, and New York has the 11th until midnight: nothing opens, and a wake
    # of these hours is an extra one of that date.
    farm.at("2026-03-11T14:00:00-04:00")
    farm.call("fn_end_of_day_locker", site_id=site)
    opened(farm, site)
    assert days(farm, site) == started
    between = farm.wake(device, "2026-03-11T14:00:00-04:00", "between.jpg")
    assert day_of(farm, between) == ("2026-03-11", "off_schedule")
    assert days(farm, site) == started
    farm.at("2026-03-12T00:00:00-04:00")
    opened(farm, site)
    assert days(farm, site) == [*started, ("2026-03-12", "America/New_York", 4)]


def test_a_camera_wakes_by_the_day_that_is_open_and_then_by_the_new_zone(
    farm: Farm, eastward: tuple[UUID, UUID]
) -> None:
    _, device = eastward

    def next_wake(after: str) -> str:
        found: str = farm.value(
            "select (fn_device_next_wake(%s, %s) at time zone 'UTC')::text", device, after
        )
        return found

    assert next_wake("2026-03-11T12:00:00-04:00") == "2026-03-11 20:00:00"  # 16:00 New York
    assert next_wake("2026-03-11T22:00:00-04:00") == "2026-03-12 07:00:00"  # 16:00 Tokyo


def test_a_change_of_schedule_waits_for_the_first_day_of_the_new_zone(
    farm: Farm, eastward: tuple[UUID, UUID]
) -> None:
    site, device = eastward
    with person(farm) as somebody:
        said = call(
            somebody,
            "fn_request_schedule_change",
            device_id=device,
            new_wake_schedule_cron="0 9,18 * * *",
        )
    assert said["effective_date"] == "2026-03-12"
    assert said["takes_effect_at"] == "2026-03-12T04:00:00Z"
    assert (said["hours_from_now"], said["expected_today"], said["expected_tomorrow"]) == (12, 4, 1)
    farm.at("2026-03-12T04:00:30Z")
    opened(farm, site)
    assert days(farm, site)[1:] == [("2026-03-12", "Asia/Tokyo", 1)]


def test_the_same_zone_again_changes_nothing(farm: Farm) -> None:
    site = farm.site()
    opened(farm, site)
    rezone(farm, site, "Asia/Bangkok")
    assert not opened(farm, site)["config_changed"]


@pytest.mark.parametrize("right", ["Asia/Bangkok", "Europe/Berlin", "Etc/UTC"])
def test_a_zone_is_spelled_as_the_database_of_zones_spells_it(farm: Farm, right: str) -> None:
    site = farm.site(right)
    for zone in (right.lower(), right.upper()):
        refused = f'"{zone}" is no time zone: it is spelled {right}'
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=refused):
            farm.site(zone)
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=refused):
            rezone(farm, site, zone)


@pytest.mark.parametrize("zone", ["Factory", "Asia/Nowhere", "cet"])
def test_invalid_time_zone_is_rejected(farm: Farm, zone: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        farm.site(zone)


def test_an_abbreviation_is_kept_as_the_place_that_it_means(farm: Farm) -> None:
    farm.site("CET")
    assert farm.value("select timezone from sites") == "Europe/Brussels"

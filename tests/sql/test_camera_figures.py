"""Trend, daily summary and comparison: what the functions say is what a recount says (C-60)."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest

from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from tests.conftest import Database
from tests.sql.two_companies import looking
from tests.support.camera_days import Days

TODAY = date(2026, 3, 10)
SINCE = TODAY - timedelta(days=30)


@pytest.fixture
def days(cloud_db: Database) -> Iterator[Days]:
    """The clock stands at noon of TODAY in UTC: in Kiritimati the next day has begun."""
    with psycopg.connect(cloud_db.admin_url, autocommit=True) as connection:
        noon = datetime(TODAY.year, TODAY.month, TODAY.day, 12, tzinfo=UTC)
        connection.execute("insert into test_clock (ahead) values (%s - now())", (noon,))
        company = add_company(connection, "figures", name="Figures")
        add_user(connection, "f@x.farm", company_id=company, password="long enough 1")
        yield Days(connection, company)


def asked(database: Database, made: Days, query: str, /, **values: Any) -> list[dict[str, Any]]:
    """As a viewer of the company."""
    token = open_sign_in(made.connection, "f@x.farm", lasts=timedelta(hours=1))
    with looking(database.url, token) as connection:
        cursor = connection.cursor(row_factory=psycopg.rows.dict_row)
        return cursor.execute(query.encode(), values).fetchall()


TREND = "select * from fn_device_trend(device_id => %(id)s, days => %(days)s)"
SUMMARY = "select * from fn_site_daily_summary(site_id => %(id)s, days => %(days)s)"
COMPARISON = "select * from fn_program_comparison(company_id => %(id)s, days => %(days)s)"


@pytest.mark.req("DB2-19")
def test_a_day_with_many_wakes_counts_once(cloud_db: Database, days: Days) -> None:
    """Joined to its wakes, a day of ten beside an empty one would average 9.09."""
    program = days.program("A")
    site = days.site(program, "s")
    camera = days.camera(site, "c")
    full, empty = (days.day(site, TODAY - timedelta(days=n), {camera: 10}) for n in (1, 2))
    for index in range(1, 11):
        days.wake(full, camera, index, temperature=20.0)
    (row,) = asked(cloud_db, days, COMPARISON, id=days.company_id, days=30)
    assert (row["total_sessions"], row["avg_completed_wakes"]) == (2, Decimal("5.00"))
    assert (row["avg_temperature"], row["program_type"]) == (Decimal("20.00"), "control")
    assert empty != full


@pytest.mark.req("DB2-18")
def test_a_day_that_expects_nothing_has_no_completeness(cloud_db: Database, days: Days) -> None:
    site = days.site(days.program("A"), "s")
    camera = days.camera(site, "c", cron=None)
    session = days.day(site, TODAY, {})
    days.wake(session, camera, temperature=21.239)
    (row,) = asked(cloud_db, days, SUMMARY, id=site, days=30)
    assert (row["expected_wake_count"], row["completed_wake_count"]) == (0, 1)
    assert row["completeness_pct"] is None
    assert row["avg_temp"] == Decimal("21.24")


@pytest.mark.req("DB2-17")
def test_a_days_wakes_are_those_of_the_sites_own_day(cloud_db: Database, days: Days) -> None:
    """Half past midnight in Bangkok is the evening before in UTC."""
    site = days.site(days.program("A"), "s")
    camera = days.camera(site, "c")
    session = days.day(site, TODAY, {camera: 2})
    evening = datetime(2026, 3, 9, 17, 30, tzinfo=UTC)
    days.wake(session, camera, 1, temperature=10, captured_at=evening)
    days.wake(session, camera, 2, temperature=20.5)
    (row,) = asked(cloud_db, days, TREND, id=camera, days=0)
    assert (row["date"], row["avg_temp"]) == (TODAY, Decimal("15.25"))
    assert (row["min_temp"], row["max_temp"], row["wakes"]) == (Decimal(10), Decimal("20.5"), 2)


def test_days_count_back_from_the_sites_own_today(cloud_db: Database, days: Days) -> None:
    program = days.program("A")
    ahead = days.site(program, "ahead", "Pacific/Kiritimati")
    behind = days.site(program, "behind", "UTC")
    for site in (ahead, behind):
        for back in range(-1, 3):
            days.day(site, TODAY - timedelta(days=back), {})
    found = {
        site: [row["session_date"] for row in asked(cloud_db, days, SUMMARY, id=site, days=1)]
        for site in (ahead, behind)
    }
    tomorrow = TODAY + timedelta(days=1)
    assert found[ahead] == [TODAY, tomorrow]
    assert found[behind] == [TODAY - timedelta(days=1), TODAY, tomorrow]


@pytest.mark.parametrize("far", [2**31 - 1, -(2**31)])
def test_any_number_of_days_may_be_asked_for(cloud_db: Database, days: Days, far: int) -> None:
    site = days.site(days.program("A"), "s")
    camera = days.camera(site, "c")
    days.wake(days.day(site, TODAY, {camera: 1}), camera, 1)
    for query, key in ((TREND, camera), (SUMMARY, site), (COMPARISON, days.company_id)):
        assert len(asked(cloud_db, days, query, id=key, days=far)) == 1


def test_measures_beyond_all_bounds_do_not_break_a_figure(cloud_db: Database, days: Days) -> None:
    site = days.site(days.program("A"), "s")
    camera = days.camera(site, "c")
    session = days.day(site, TODAY, {camera: 3})
    for index, value in enumerate((1.7e308, 1.7e308, float("inf")), 1):
        days.wake(session, camera, index, temperature=value, humidity=value)
    for query, key in ((TREND, camera), (SUMMARY, site), (COMPARISON, days.company_id)):
        assert len(asked(cloud_db, days, query, id=key, days=30)) == 1


class Wake(NamedTuple):
    session: UUID
    camera: UUID
    program: UUID
    at: date
    status: str
    degrees: Decimal | None


class Session(NamedTuple):
    session: UUID
    site: UUID
    program: UUID
    at: date
    expected: int


@dataclass
class Generated:
    """Days of four sites, six each; some lie further back than SINCE, some expect nothing."""

    days: Days
    wakes: list[Wake] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    chance: Random = field(default_factory=lambda: Random(7))

    def make(self) -> "Generated":
        for name, kind in (("A", "experimental"), ("B", "control")):
            program = self.days.program(name, kind)
            for zone in ("Asia/Bangkok", "America/St_Johns"):
                site = self.days.site(program, f"{name} {zone}", zone)
                cameras = [self.days.camera(site, f"{site} {n}") for n in range(2)]
                for back in range(6):
                    self._day(program, site, cameras, TODAY - timedelta(days=15 + back * 5))
        return self

    def _day(self, program: UUID, site: UUID, cameras: list[UUID], at: date) -> None:
        expected = {each: self.chance.randrange(3) for each in cameras}
        session = self.days.day(site, at, expected)
        self.sessions.append(Session(session, site, program, at, sum(expected.values())))
        for camera, windows in expected.items():
            for index in [*range(1, windows + 1), None]:
                degrees = self.chance.choice([None, round(self.chance.uniform(-5, 40), 3)])
                status = self.chance.choice(["complete", "failed", "pending"])
                self.days.wake(session, camera, index, status=status, temperature=degrees)
                said = None if degrees is None else Decimal(str(degrees))
                self.wakes.append(Wake(session, camera, program, at, status, said))

    def count(self, session: UUID, status: str) -> int:
        return sum(1 for each in self.wakes if (each.session, each.status) == (session, status))


@pytest.mark.req("DB2-17")
def test_a_trend_is_what_a_recount_says(cloud_db: Database, days: Days) -> None:
    made = Generated(days).make()
    for camera in {wake.camera for wake in made.wakes}:
        by_day = defaultdict(list)
        for each in made.wakes:
            if each.camera == camera and each.at >= SINCE:
                by_day[each.at].append(each.degrees)
        assert [
            (row["date"], row["avg_temp"], row["min_temp"], row["max_temp"], row["wakes"])
            for row in asked(cloud_db, days, TREND, id=camera, days=30)
        ] == [
            (at, mean(found), least(found), most(found), len(found))
            for at, found in sorted(by_day.items())
        ]


@pytest.mark.req("DB2-18")
def test_a_summary_is_what_a_recount_says(cloud_db: Database, days: Days) -> None:
    made = Generated(days).make()
    for site in {each.site for each in made.sessions}:
        assert [
            (row["session_date"], row["expected_wake_count"], row["completed_wake_count"],
             row["failed_wake_count"], row["completeness_pct"], row["avg_temp"])
            for row in asked(cloud_db, days, SUMMARY, id=site, days=30)
        ] == [
            (day.at, day.expected, done, made.count(day.session, "failed"),
             rounded(Decimal(done * 100) / day.expected) if day.expected else None,
             mean([wake.degrees for wake in made.wakes if wake.session == day.session]))
            for day in sorted(made.sessions, key=lambda each: each.at)
            if day.site == site and day.at >= SINCE
            for done in [made.count(day.session, "complete")]
        ]  # fmt: skip


@pytest.mark.req("DB2-19")
def test_a_comparison_is_what_a_recount_says(cloud_db: Database, days: Days) -> None:
    made = Generated(days).make()
    found = asked(cloud_db, days, COMPARISON, id=days.company_id, days=30)
    assert [row["program_type"] for row in found] == ["control", "experimental"]
    for row in found:
        program = row["program_id"]
        own = [each for each in made.sessions if each.program == program and each.at >= SINCE]
        done = [made.count(each.session, "complete") for each in own]
        assert row["total_sessions"] == len(own) == 8
        assert row["avg_completed_wakes"] == rounded(Decimal(sum(done)) / len(own))
        assert row["avg_temperature"] == mean(
            [each.degrees for each in made.wakes if each.program == program and each.at >= SINCE]
        )
        assert row["expected_wake_count"] == sum(each.expected for each in own)


def mean(values: list[Decimal | None]) -> Decimal | None:
    known = [value for value in values if value is not None]
    return rounded(sum(known, Decimal(0)) / len(known)) if known else None


def rounded(value: Decimal) -> Decimal:
    return value.quantize(Decimal("0.01"), rounding="ROUND_HALF_UP")


def least(values: list[Decimal | None]) -> Decimal | None:
    return min((value for value in values if value is not None), default=None)


def most(values: list[Decimal | None]) -> Decimal | None:
    return max((value for value in values if value is not None), default=None)

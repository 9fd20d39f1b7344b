"""When cameras wake: PostgreSQL agrees with cronsim, also on the days on which clocks change.

With one correction (C-119): what the wall shows exactly once and matches is always a wake.
"""

import zoneinfo
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import psycopg
import pytest
from cronsim import CronSim, CronSimError
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.conftest import Database
from tests.sql import by_cronsim
from tests.sql.by_cronsim import Change, StuckError, Wakes
from tests.support.properties import drawn

Read = Callable[[str], zoneinfo.ZoneInfo]

# Cases that tell the rules apart: schedule, zone, date, and the wakes on the wall.
TELLING = {
    # A time that is left out runs when the clock goes on; with regular ones then it is one wake.
    ("30 2 * * *", "Europe/Berlin", "2026-03-29"): "03:00+0200",
    ("0,30 2,3 * * *", "Europe/Berlin", "2026-03-29"): "03:00+0200 03:30+0200",
    ("30 2 * * *", "Europe/Berlin", "2026-10-25"): "02:30+0200",
    # Minute or hour begins with a star: left out is left out, twice is twice.
    ("*/30 2 * * *", "Europe/Berlin", "2026-03-29"): "",
    ("*/30 2 * * *", "Europe/Berlin", "2026-10-25"): "02:00+0200 02:30+0200 02:00+0100 02:30+0100",
    ("1,*/40 2 * * *", "Europe/Berlin", "2026-10-25"): "02:00+0200 02:01+0200 02:40+0200",
    ("0 */12 * * *", "Antarctica/Troll", "2026-03-29"): "00:00+0000 12:00+0200",
    # Midnight does not exist, or comes twice.
    ("0 0 * * *", "America/Sao_Paulo", "2018-11-04"): "01:00-0200",
    ("*/30 23 * * *", "America/Sao_Paulo", "2018-02-17"): (
        "23:00-0200 23:30-0200 23:00-0300 23:30-0300"
    ),
    ("15 0 * * *", "Asia/Beirut", "2026-03-29"): "01:00+0300",
    ("*/20 0 * * *", "Africa/Cairo", "2026-04-24"): "",
    # From a day that does not match, cronsim jumps to midnight, and so to when the clock goes on.
    ("*/20 0 * * 5", "Africa/Cairo", "2026-04-24"): "01:00+0300",
    # Lost in a gap at midnight: it counts in the day on which it happens.
    ("30 23 * * *", "America/Nuuk", "2026-03-28"): "",
    ("30 23 * * *", "America/Nuuk", "2026-03-29"): "00:00-0100 23:30-0100",
    ("0 23 28 * *", "America/Nuuk", "2026-03-29"): "00:00-0100",
    ("45 23 * * *", "Asia/Pyongyang", "2018-05-05"): "00:00+0900 23:45+0900",
    # Half an hour.
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04"): "02:30+1100",
    ("*/10 2 * * *", "Australia/Lord_Howe", "2026-10-04"): "02:30+1100 02:40+1100 02:50+1100",
    # The wall shows these once, so they are wakes, though cronsim steps over some of them (C-119).
    ("*/10 3 * * *", "Australia/Lord_Howe", "2026-10-04"): (
        "03:00+1100 03:10+1100 03:20+1100 03:30+1100 03:40+1100 03:50+1100"
    ),
    ("45 2 * * *", "Australia/Lord_Howe", "2026-10-04"): "02:45+1100",
    ("45 */2 4 10 *", "Australia/Lord_Howe", "2026-10-04"): " ".join(
        f"{hour:02}:45{'+1030' if hour < 2 else '+1100'}" for hour in range(0, 24, 2)
    ),
    ("0 */6 * * *", "Australia/Lord_Howe", "2024-04-07"): (
        "00:00+1100 06:00+1030 12:00+1030 18:00+1030"
    ),
    ("*/15 1 * * *", "Australia/Lord_Howe", "2026-04-05"): (
        "01:00+1100 01:15+1100 01:30+1100 01:45+1100 01:30+1030 01:45+1030"
    ),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-05"): "01:45+1100",
    # A whole day is left out.
    ("0 3 * * *", "Pacific/Apia", "2011-12-30"): "",
    ("0 3 * * *", "Pacific/Apia", "2011-12-31"): "00:00+1400 03:00+1400",
    ("0 */8 * * *", "Pacific/Apia", "2011-12-30"): "",
    ("0 */8 * * *", "Pacific/Apia", "2011-12-31"): "00:00+1400 08:00+1400 16:00+1400",
    # Day of month and day of week: both if one begins with a star, else either.
    ("0 6 13 * 5", "UTC", "2026-11-13"): "06:00+0000",
    ("0 6 13 * 5", "UTC", "2026-11-20"): "06:00+0000",
    ("0 6 13 * */5", "UTC", "2026-11-20"): "",
    ("0 6 */13 * 5", "UTC", "2026-11-27"): "06:00+0000",
    ("0 6 L * *", "UTC", "2028-02-29"): "06:00+0000",
    ("0 6 LW * *", "UTC", "2026-10-30"): "06:00+0000",
    ("0 6 * * 7L", "UTC", "2026-11-29"): "06:00+0000",
    ("0 6 * * FRI#2", "UTC", "2026-11-13"): "06:00+0000",
}

# At least one of every kind that a person would write, and of those that break.
SCHEDULES = (
    *(
        "* 0-4,22-23 * * *",
        "*/5 * * * *",
        "7,*/11 * * * *",
        "0 * * * *",
        "30 * * * *",
        "45 * * * *",
        "15,45 * * * *",
    ),
    *("0 */2 * * *", "0 */3 * * *", "50 */3 * * *", "20 */6 * * *", "0 0-23 * * *", "0 0/1 * * *"),
    *("0 0 * * *", "1 0 * * *", "30 0 * * *", "30 1 * * *", "45 1 * * *", "0 2 * * *"),
    *("30 2 * * *", "15 2,3 * * *", "0 3 * * *", "30 1,2,3 * * *", "17 4 * * *", "30 23 * * *"),
    *("59 23 * * *", "0 6,12,18 * * *", "0 8-18/2 * * *", "*/10 0 * * *", "*/10 2 * * *"),
    *("*/10 3 * * *", "*/15 1-3 * * *", "1,* 2 * * *", "*/20 23 * * *", "0,30 0,23 * * *"),
    *("*/15 0 * * 0", "*/30 0 * * 5", "5 * * * 0", "*/15 * * * SUN", "0 0 * * 0", "0 1 * * 7#1"),
    *("0 12 * * 0L", "0 4 LW * *", "15 0 L * *", "0 0 1 * *", "0 0 1-15 * 1-5", "0 2 */2 * 0"),
    *("*/30 * 25-31 3,10 *", "*/10 0 1 * *", "0 3 29 2 *", "40 2 * APR,NOV *", "58,59 * * * *"),
)
ZONES = (
    *("Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Beirut", "Africa/Cairo"),
    *("Australia/Lord_Howe", "Pacific/Apia", "America/Nuuk", "Asia/Tehran", "Asia/Bangkok", "CET"),
    *("Pacific/Chatham", "Antarctica/Casey", "Africa/Casablanca", "America/St_Johns"),
)


# Of the long comparison, so that they can run side by side.
PARTS = 4


@pytest.fixture
def read(cloud_db: Database) -> Read:
    return by_cronsim.reader(cloud_db.admin_url)


@pytest.fixture
def connection(cloud_db: Database) -> Iterator[psycopg.Connection]:
    with psycopg.connect(cloud_db.url, autocommit=True) as opened:
        yield opened


def value(connection: psycopg.Connection, query: str, *args: object) -> object:
    row = connection.execute(query.encode(), args).fetchone()
    return row[0] if row else None


def test_telling_days(connection: psycopg.Connection, read: Read) -> None:
    for (cron, zone, said), wall in TELLING.items():
        day, here = date.fromisoformat(said), read(zone)
        ours = by_cronsim.wakes_by_us(connection, cron, zone, [day])
        theirs = by_cronsim.corrected(by_cronsim.wakes(cron, here, [day]), cron, here, [day])
        assert ours == theirs, (cron, zone, said)
        seen = [f"{at.astimezone(here):%H:%M%z}" for at in ours.get(day, [])]
        assert " ".join(seen) == wall, (cron, zone, said)


@pytest.mark.parametrize(
    ("cron", "in_spring", "in_autumn"),
    [("0 * * * *", 23, 25), ("0 0-23 * * *", 23, 24), ("* * * * *", 1380, 1500)],
)
def test_expected_counts_of_short_and_long_days(
    connection: psycopg.Connection, cron: str, in_spring: int, in_autumn: int
) -> None:
    query = "select count(*) from fn_wake_instants(%s, 'Europe/Berlin', %s)"
    assert value(connection, query, cron, "2026-03-29") == in_spring
    assert value(connection, query, cron, "2026-10-25") == in_autumn


def test_where_cronsim_goes_in_circles_double_times_count_twice(
    connection: psycopg.Connection, read: Read
) -> None:
    for cron, zone, day, wall in (
        ("*/30 0 * * 0", "America/St_Johns", date(2010, 11, 7), "00:00-0230 00:00-0330 00:30-0330"),
        ("50 0-3/3,*/24 * * *", "Pacific/Chatham", date(2026, 4, 5), "00:50+1345 03:50+1245"),
        ("50 */3 5 4 *", "Pacific/Chatham", date(2026, 4, 5), "00:50+1345 03:50+1245 06:50+1245"),
    ):
        if cron.split()[1].startswith("*"):
            with pytest.raises(StuckError):
                by_cronsim.wakes(cron, read(zone), [day])
        ours = by_cronsim.wakes_by_us(connection, cron, zone, [day])[day]
        assert " ".join(f"{at.astimezone(read(zone)):%H:%M%z}" for at in ours).startswith(wall)


def values(lowest: int, highest: int, *names: str) -> st.SearchStrategy[str]:
    number = st.integers(lowest, highest).map(str) | st.sampled_from([*names, str(lowest)])
    spans = st.tuples(st.integers(lowest, highest), st.integers(lowest, highest)).map(sorted)
    ranges = spans.map(lambda pair: f"{pair[0]}-{pair[1]}")
    step = st.integers(1, highest + 2)
    stepped = st.tuples(st.just("*") | ranges | number, step).map(
        lambda each: "/".join(map(str, each))
    )
    term = st.just("*") | number | ranges | stepped
    return term | st.lists(term, min_size=1, max_size=3).map(",".join)


EXPRESSIONS = st.tuples(
    values(0, 59),
    values(0, 23),
    st.just("*") | values(1, 31) | st.sampled_from(["L", "LW", "L,15", "1-7,LW"]),
    st.just("*") | values(1, 12, "MAR", "OCT"),
    st.just("*") | values(0, 7, "SUN", "FRI") | st.sampled_from(["5L", "0L,MON", "7#1", "SUN#2"]),
).map(" ".join)


def changes(read: Read, zone: str) -> list[list[date]]:
    found = by_cronsim.changes(read(zone), 2010, 2030)
    return [each.days for each in found] or [[date(2026, 3, 1), date(2026, 3, 2)]]


@given(cron=EXPRESSIONS, zone=st.sampled_from(ZONES), chance=st.integers(0))
@drawn(150)
def test_random_schedules_on_days_of_change(
    connection: psycopg.Connection, read: Read, cron: str, zone: str, chance: int
) -> None:
    found = KNOWN.setdefault(zone, changes(read, zone) if zone not in KNOWN else [])
    days = found[chance % len(found)]
    try:
        theirs = by_cronsim.wakes(cron, read(zone), days)
    except CronSimError:
        assert value(connection, "select fn_cron_problem(%s)", cron) is not None
        return
    except StuckError:
        assume(False)
    theirs = by_cronsim.corrected(theirs, cron, read(zone), days)
    assert by_cronsim.wakes_by_us(connection, cron, zone, days) == theirs


def test_what_the_wall_shows_once_is_a_wake_in_every_zone(
    connection: psycopg.Connection, read: Read
) -> None:
    """By brute force, also where cronsim gets stuck: every schedule at changes of every zone."""
    compared, stepped_over = 0, set()
    for zone in ZONES:
        for days in changes(read, zone)[-2:]:
            for cron in SCHEDULES:
                needed = by_cronsim.once(cron, read(zone), days)
                ours = by_cronsim.wakes_by_us(connection, cron, zone, days)
                for day, ats in needed.items():
                    assert set(ats) <= set(ours.get(day, ())), (cron, zone, day)
                    compared += len(ats)
            try:
                theirs = by_cronsim.wakes("0 */6 * * *", read(zone), days)
            except StuckError:
                continue
            if theirs != by_cronsim.corrected(theirs, "0 */6 * * *", read(zone), days):
                stepped_over.add(zone)
    # The comparison means something: cronsim does step over times.
    assert compared > 10_000
    assert "Australia/Lord_Howe" in stepped_over


KNOWN: dict[str, list[list[date]]] = {}


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_zone_and_change_agrees_with_cronsim(
    connection: psycopg.Connection, read: Read, part: int
) -> None:
    names = connection.execute("select name from pg_timezone_names order by name").fetchall()
    zones = [read(name) for (name,) in names if name in zoneinfo.available_timezones()]
    groups = by_cronsim.groups(zones, 2010, 2035)
    figures = Figures(zones=len(zones), groups=len(groups))
    asked = by_cronsim.Asked()
    for here, found in groups[part::PARTS]:
        figures.changes += len(found)
        for cron in SCHEDULES:
            days = sorted({day for change in found for day in change.days})
            ours = by_cronsim.wakes_by_us(connection, cron, here.key, days)
            for change in found:
                seen = {day: ours[day] for day in change.days if day in ours}
                theirs = asked.wakes(cron, here, change)
                if theirs is not None:
                    theirs = by_cronsim.corrected(theirs, cron, here, change.days)
                figures.take(here.key, change, cron, seen, theirs)
    print(figures)  # noqa: T201
    assert figures.wrong == []
    # Where cronsim gets stuck there is nothing to compare with: clocks that go back over midnight,
    # and by which a time of one hour becomes one of the hour before, at a quarter to.
    assert {zone for zone, _, _ in figures.stuck} <= {
        *("America/Goose_Bay", "America/St_Johns", "Canada/Newfoundland"),
        *("NZ-CHAT", "Pacific/Chatham"),
    }


@dataclass
class Figures:
    zones: int
    groups: int
    changes: int = 0
    days: int = 0
    wakes: int = 0
    stuck: list[tuple[str, datetime, str]] = field(default_factory=list)
    wrong: list[tuple[str, datetime, str]] = field(default_factory=list)

    def take(self, zone: str, change: Change, cron: str, ours: Wakes, theirs: Wakes | None) -> None:
        if theirs is None:
            self.stuck.append((zone, change.at, cron))
            return
        self.days += len(change.days)
        self.wakes += sum(map(len, theirs.values()))
        if ours != theirs:
            self.wrong.append((zone, change.at, cron))


# As cronsim takes them, or not.
GIVEN = (
    *("* * * * *", "0 0 * * 7", "0 0 * * SUN", "0 0 * * sun-fri", "0 0 * * SAT-SUN", "0 0 * * 5-7"),
    *(
        "0 0 * * 8",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 0 *",
        "* * * 13 *",
    ),
    *("* * L * *", "* * l * *", "* * LW * *", "* * WL * *", "* * L/2 * *", "* * L-3 * *"),
    *("* * 1-L * *", "* * L,LW,3 * *", "* * * * L", "* * * * 5L", "* * * * 05L", "* * * * MONL"),
    *("* * * * 5L/2", "* * * * 5#2", "* * * * FRI#5", "* * * * 5#6", "* * * * 5#0", "* * * * #2"),
    *("* * * * 1-5#2", "* * * * 5#", "* * * * 8#1", "* * * * 7#1,0L", "L * * * *", "* L * * *"),
    *("*/0 * * * *", "*/00 * * * *", "*/1 * * * *", "*/61 * * * *", "*/99999999999 * * * *"),
    *("0/1 * * * *", "5-5/7 * * * *", "1,* * * * *", "*,1 * * * *", "** * * * *", "*-5 * * * *"),
    *("5- * * * *", "-5 * * * *", "1-5-7 * * * *", "1,,2 * * * *", ", * * * *", "1, * * * *"),
    *("*/5/2 * * * *", "/5 * * * *", "*/ * * * *", "*/a * * * *", "007 0007 07 007 07"),
    *("0 0 31 2 *", "0 0 30 2 *", "0 0 29 2 *", "0 0 31 2 1", "0 0 31 2 */7", "0 0 31 4,6 *"),
    *("0 0 31 4,5 *", "0 0 31,L 2 *", "0 0 30-31 2 *", "0 0 * JAN-DEC/2 *", "0 0 * MON *"),
    *("0 0 * FEB,3 MON/2", "0 0 * DEC-JAN *", "0 0 * JANUARY *", "22-4 * * * *", "1.5 * * * *"),
    *("  0   6\t* * *  ", "0 6 * *", "", "   ", "?", "0 0 ? * *", "H * * * *", "0 0 1W * *"),
    *("@daily", "@reboot", "@every 5m", "@hourly x x x x", "100 * * * *", "* * * * 1-FRI"),
)


def accepted(cron: str) -> bool:
    try:
        CronSim(cron, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return len(cron.split()) == 5


def test_accepted_is_what_cronsim_accepts(connection: psycopg.Connection) -> None:
    for cron in GIVEN:
        problem = value(connection, "select fn_cron_problem(%s)", cron)
        assert (problem is None) == accepted(cron), (cron, problem)


PIECES = ("*", "0", "5", "7", "31", "59", "L", "W", "#", "/", "-", ",", " ", "MON", "jan", "2", "x")


@given(
    cron=st.lists(
        st.lists(st.sampled_from(PIECES), max_size=6).map("".join), min_size=4, max_size=6
    ).map(" ".join)
)
@example(cron="5 4 L/3 * 2#5")
@drawn(300)
def test_nonsense_is_judged_as_cronsim_judges_it(connection: psycopg.Connection, cron: str) -> None:
    problem = value(connection, "select fn_cron_problem(%s)", cron)
    assert (problem is None) == accepted(cron), (cron, problem)


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("", "The cron expression is empty."),
        ("@daily", '"@daily" is a nickname: write five fields'),
        ("0 0 6 * * *", "has six fields: seconds are not possible"),
        ("0 6 * *", "has 4 fields, not five"),
        ("0 25 * * *", 'Field 2 of 5, the hour: "25" is not a number from 0 to 23'),
        ("0 6 * * SAT-SUN", 'Field 5 of 5, the day of week: "SAT-SUN" runs backwards'),
        ("*/0 * * * *", 'Field 1 of 5, the minute: the step in "*/0" must not be 0'),
        ("0 6, * * *", "Field 2 of 5, the hour: a value is missing beside a comma"),
        ("0 6 31 2 *", 'no month of "2" has a day 31'),
        ("0 6\n* * *", "Character 4 of the cron expression is a control character or not ASCII."),
        (
            "0 6 * * \u017fUN",
            "Character 9 of the cron expression is a control character or not ASCII.",
        ),
        ("0" * 1001, "has 1001 characters; 1000 are enough for any."),
    ],
)
def test_a_problem_says_what_and_where(
    connection: psycopg.Connection, cron: str, said: str
) -> None:
    assert said in str(value(connection, "select fn_cron_problem(%s)", cron))


def test_no_schedule_has_no_wakes(connection: psycopg.Connection) -> None:
    for cron in (None, "", "  "):
        rows = connection.execute(
            "select * from fn_wake_instants(%s, 'UTC', '2026-01-01')", (cron,)
        )
        assert rows.fetchall() == []
        assert value(connection, "select fn_next_wake(%s, 'UTC', now())", cron) is None
    assert value(connection, "select fn_cron_problem(null)") is None


@pytest.mark.parametrize(
    ("cron", "zone", "said"),
    [
        ("61 * * * *", "UTC", 'the minute: "61" is not a number from 0 to 59'),
        ("0 6 * * *", "Mars/Olympus", "Mars/Olympus"),
        ("0 6 * * *", "FOO5", '"FOO5" is no time zone'),
        ("0 6 * * *", "CEST", '"CEST" is no time zone'),
        ("0 6 * * *", None, "null is no time zone"),
    ],
)
def test_what_cannot_be_reckoned_is_refused(
    connection: psycopg.Connection, cron: str, zone: str | None, said: str
) -> None:
    for query in (
        "select * from fn_wake_instants(%s, %s, '2026-01-01')",
        "select fn_next_wake(%s, %s, now())",
        "select * from fn_infer_wake_window_index(now(), %s, %s)",
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=said):
            connection.execute(query.encode(), (cron, zone))


@given(
    cron=EXPRESSIONS,
    zone=st.sampled_from(ZONES),
    after=st.datetimes(datetime(2010, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
)
@example("0 0 31 2 *", "UTC", datetime(2026, 1, 1))  # never  # noqa: DTZ001
@drawn(100)
def test_the_next_wake_is_the_first_of_those_enumerated(
    connection: psycopg.Connection, cron: str, zone: str, after: datetime
) -> None:
    assume(accepted(cron))
    row = connection.execute(
        """
        with n as (select fn_next_wake(%(cron)s, %(zone)s, %(after)s) as at)
        select n.at, n.at > %(after)s, n.at = any (array(
            select w.expected_at from generate_series(-1, 1) d,
              fn_wake_instants(
                %(cron)s, %(zone)s, (coalesce(n.at, %(after)s) at time zone 'UTC')::date + d) w)),
          (select min(w.expected_at) from generate_series(-1, 2) d, fn_wake_instants(
             %(cron)s, %(zone)s, (%(after)s::timestamptz at time zone 'UTC')::date + d) w
           where w.expected_at > %(after)s)
        from n
        """,
        {"cron": cron, "zone": zone, "after": after.replace(tzinfo=UTC)},
    ).fetchone()
    assert row is not None
    found, later, enumerated, soonest = row
    if found is None:
        assert soonest is None
    else:
        assert (later, enumerated) == (True, True)
        assert soonest in {None, found} or soonest > found


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("0 6 * * *", "Asia/Bangkok", "2026-11-15T22:59:59Z", "2026-11-15T23:00:00Z"),
        ("0 6 * * *", "Asia/Bangkok", "2026-11-15T23:00:00Z", "2026-11-16T23:00:00Z"),
        ("0 0 29 2 *", "Europe/Berlin", "2024-02-29T12:00:00Z", "2028-02-28T23:00:00Z"),
        ("30 23 28 3 *", "America/Nuuk", "2025-12-01T00:00:00Z", "2026-03-29T01:00:00Z"),
        # Minutes that end over midnight twice: the earlier date comes again.
        ("*/30 * * * *", "America/St_Johns", "2010-11-07T02:30:30Z", "2010-11-07T03:00:00Z"),
        ("0 0 29 2 */7", "UTC", "2026-01-01T00:00:00Z", None),
    ],
)
def test_next_wake(
    connection: psycopg.Connection, cron: str, zone: str, after: str, expected: str | None
) -> None:
    query = "select fn_next_wake(cron_expression => %s, timezone => %s, after => %s)"
    found = value(connection, query, cron, zone, after)
    assert found == (None if expected is None else datetime.fromisoformat(expected))


@pytest.mark.req("FN-11")
@pytest.mark.parametrize(
    ("captured", "expected"),
    [
        ("08:00:00", (1, False)),
        ("08:59:59", (1, False)),
        ("09:00:00", (1, False)),
        ("09:00:00.000001", (1, True)),
        ("09:00:01", (1, True)),
        ("07:00:00", (1, False)),
        ("06:59:59", (1, True)),
        ("10:00:00", (1, True)),  # as near to 8 as to 12
        ("10:00:00.000001", (2, True)),
        ("12:59:59", (2, False)),
        ("13:00:01", (2, True)),
        ("23:59:59.999999", (3, False)),  # the day's last; the next day's midnight is not its own
        ("00:00:00", (1, True)),
    ],
)
def test_the_window_of_a_wake(
    connection: psycopg.Connection, captured: str, expected: tuple[int, bool]
) -> None:
    row = connection.execute(
        "select * from fn_infer_wake_window_index(captured_at => %s, "
        "cron_expression => '0 8,12,23 * * *', timezone => 'Asia/Bangkok')",
        (f"2026-11-15 {captured}+07",),
    ).fetchone()
    assert row == expected


@pytest.mark.req("FN-11")
def test_windows_are_of_the_local_date_and_utc_unless_said(connection: psycopg.Connection) -> None:
    query = "select wake_index, is_overage from fn_infer_wake_window_index(%s, %s"
    args = ("2026-11-15T17:00:00Z", "0 0,6 * * *")
    assert connection.execute((query + ")").encode(), args).fetchall() == [(2, True)]
    assert connection.execute((query + ", 'Asia/Bangkok')").encode(), args).fetchall() == [
        (1, False)
    ]
    for cron in (None, "", "0 6 1 1 *"):
        rows = connection.execute((query + ")").encode(), (args[0], cron))
        assert rows.fetchall() == [(None, True)], cron


def test_the_second_of_two_equal_times_has_its_own_window(connection: psycopg.Connection) -> None:
    query = "select wake_index from fn_infer_wake_window_index(%s, '0 * * * *', 'Europe/Berlin')"
    first = datetime(2026, 10, 25, 0, 10, tzinfo=UTC)
    assert [value(connection, query, first + n * timedelta(hours=1)) for n in range(3)] == [3, 4, 5]

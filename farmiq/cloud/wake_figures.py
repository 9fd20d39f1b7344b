"""The SQL of figures at six levels: cells of wakes, summed by what a level is made of (DB2-16).

The API of cameras and the console's programs use it, with the rights of the person. A cell is a
day's share of one site, of one camera, or of one wake. Counts of a day are the session's own, which
equal a recount of its wakes; so levels agree with each other and with them.
"""

from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from farmiq.plumbing import db

Row = dict[str, Any]

_DAYS = """
  with days as (
    select s.* from site_device_sessions s
    where (%(session)s::uuid is null or s.session_id = %(session)s)
      and (%(program)s::uuid is null or s.program_id = %(program)s)
      and (%(site)s::uuid is null or s.site_id = %(site)s)
      and (%(session)s::uuid is not null or s.session_date
        >= coalesce(%(from)s::date, fn_local_date(s.timezone, fn_now()) - 30))
      and (%(to)s::date is null or s.session_date <= %(to)s))"""
_COUNTED = """
      count(*) as received,
      count(*) filter (where p.payload_status = 'complete') as completed,
      count(*) filter (where p.payload_status = 'failed') as failed,
      count(*) filter (where p.payload_status = 'pending') as pending,
      count(*) filter (where p.overage_flag) as extra,
      count(*) filter (where p.payload_status = 'complete' and not p.overage_flag) as on_schedule,
      sum(p.temperature::numeric) as temperature, count(p.temperature) as temperatures,
      sum(p.humidity::numeric) as humidity, count(p.humidity) as humidities"""
_OF_SITES = f"""{_DAYS},
  woken as (
    select p.site_device_session_id as session_id, {_COUNTED}
    from device_wake_payloads p where p.site_device_session_id in (select session_id from days)
    group by 1),
  cells as (
    select d.session_id, d.site_id, d.program_id, d.company_id, d.expected_wake_count as expected,
      w.received, d.completed_wake_count as completed, d.failed_wake_count as failed, w.pending,
      d.extra_wake_count as extra, w.on_schedule, w.temperature, w.temperatures, w.humidity,
      w.humidities
    from days d left join woken w on w.session_id = d.session_id)"""  # noqa: S608 - our own words
_OF_CAMERAS = f"""{_DAYS},
  expected as (
    select e.session_id, e.device_id, count(*) as expected
    from expected_wakes e where e.session_id in (select session_id from days)
      and (%(device)s::uuid is null or e.device_id = %(device)s)
    group by 1, 2),
  woken as (
    select p.site_device_session_id as session_id, p.device_id, {_COUNTED}
    from device_wake_payloads p where p.site_device_session_id in (select session_id from days)
      and (%(device)s::uuid is null or p.device_id = %(device)s)
    group by 1, 2),
  cells as (
    select session_id, device_id, e.expected, w.received, w.completed, w.failed, w.pending, w.extra,
      w.on_schedule, w.temperature, w.temperatures, w.humidity, w.humidities
    from expected e full join woken w using (session_id, device_id))"""  # noqa: S608 - our own words
# A wake is expected if it took a window of its day; windows nobody took have no wake.
_OF_WAKES = f"""{_DAYS},
  cells as (
    select p.payload_id, p.site_device_session_id as session_id, p.device_id, p.captured_at,
      count(*) filter (where not p.overage_flag) as expected, {_COUNTED}
    from device_wake_payloads p where p.site_device_session_id in (select session_id from days)
      and (%(device)s::uuid is null or p.device_id = %(device)s)
    group by 1, 2, 3, 4)"""  # noqa: S608 - our own words
_FIGURES = """
    count(distinct c.session_id) as sessions,
    coalesce(sum(c.expected), 0)::bigint as expected,
    coalesce(sum(c.received), 0)::bigint as received,
    coalesce(sum(c.completed), 0)::bigint as completed,
    coalesce(sum(c.failed), 0)::bigint as failed,
    coalesce(sum(c.pending), 0)::bigint as pending,
    coalesce(sum(c.extra), 0)::bigint as extra,
    coalesce(sum(c.on_schedule), 0)::bigint as on_schedule,
    round(sum(c.temperature) / nullif(sum(c.temperatures), 0), 2) as avg_temperature,
    round(sum(c.humidity) / nullif(sum(c.humidities), 0), 2) as avg_humidity"""


@dataclass(frozen=True, slots=True)
class Level:
    """Rows by `key` and what is `also` of a cell, named by what is joined; `at` orders them."""

    cells: str
    key: str
    named: str
    at: str
    name: str
    day: str = "null::date"
    also: str = ""
    after: str = "%(after_at)s::timestamptz"

    @property
    def query(self) -> str:
        return f"""{self.cells},
  figures as (
    select c.{self.key}{self.also}, {_FIGURES} from cells c group by c.{self.key}{self.also})
  select f.{self.key} as id, {self.name} as name, {self.day} as day, {self.at} as at, f.*
  from figures f {self.named}
  where %(after_at)s::timestamptz is null
    or ({self.at}, f.{self.key}) < ({self.after}, %(after_id)s::uuid)
  order by {self.at} desc, f.{self.key} desc limit %(limit)s"""  # noqa: S608 - our own words


LEVELS = {
    "payload": Level(
        _OF_WAKES,
        "payload_id",
        "join devices n on n.device_id = f.device_id join days d on d.session_id = f.session_id",
        at="f.captured_at",
        name="n.device_name",
        day="d.session_date",
        also=", c.session_id, c.device_id, c.captured_at",
    ),
    "device": Level(
        _OF_CAMERAS,
        "device_id",
        "join devices t on t.device_id = f.device_id",
        at="t.created_at",
        name="t.device_name",
    ),
    "session": Level(
        _OF_SITES,
        "session_id",
        "join days t on t.session_id = f.session_id join sites n on n.site_id = t.site_id",
        at="t.session_date",
        name="n.site_name",
        day="t.session_date",
        after="(%(after_at)s::timestamptz at time zone 'UTC')::date",
    ),
    "site": Level(
        _OF_SITES,
        "site_id",
        "join sites t on t.site_id = f.site_id",
        at="t.created_at",
        name="t.site_name",
    ),
    "program": Level(
        _OF_SITES,
        "program_id",
        "join pilot_programs t on t.program_id = f.program_id",
        at="t.created_at",
        name="t.program_name",
    ),
    "company": Level(
        _OF_SITES,
        "company_id",
        "join companies t on t.company_id = f.company_id",
        at="t.created_at",
        name="t.name",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FiguresQuery:
    """Which wakes count, and which page of rows; without `begin` those of the last 30 days."""

    program: UUID | None = None
    site: UUID | None = None
    session: UUID | None = None
    device: UUID | None = None
    begin: date | None = None
    end: date | None = None
    after_at: datetime | None = None
    after_id: UUID | None = None
    limit: int = 100

    @property
    def parameters(self) -> Row:
        given = asdict(self)
        return {**given, "from": self.begin, "to": self.end, "limit": self.limit + 1}


async def page(connection: db.Connection, level: str, query: FiguresQuery) -> list[Row]:
    """One row more than the limit, if there is a next page."""
    return await db.fetch_dicts(connection, LEVELS[level].query, query.parameters)


async def totals(connection: db.Connection, query: FiguresQuery) -> Row:
    """Totals of all matching rows, the same at every level."""
    cells = _OF_CAMERAS if query.device else _OF_SITES
    statement = f"{cells} select {_FIGURES} from cells c"  # noqa: S608 - our own words
    return (await db.fetch_dicts(connection, statement, query.parameters))[0]


async def of_session(connection: db.Connection, session_id: UUID) -> list[Row]:
    """Each camera's share of a day, by name."""
    query = f"""{_OF_CAMERAS}
      select c.device_id, t.device_name, {_FIGURES}
      from cells c join devices t on t.device_id = c.device_id
      group by c.device_id, t.device_name order by t.device_name"""  # noqa: S608 - our own words
    return await db.fetch_dicts(connection, query, FiguresQuery(session=session_id).parameters)


async def overage(connection: db.Connection, query: FiguresQuery) -> list[Row]:
    """Cameras with extra wakes, by day; newest day first."""
    statement = f"""{_OF_CAMERAS}
      select d.session_date, k.id, d.session_id, d.site_id, c.device_id, t.device_name,
        coalesce(c.expected, 0) as expected, c.received, c.extra
      from cells c join days d on d.session_id = c.session_id
      join devices t on t.device_id = c.device_id
      -- A camera that moved has two sessions of one day: only both together are a place.
      cross join lateral (select md5(c.session_id::text || c.device_id)::uuid as id) k
      where c.extra > 0 and (%(after_at)s::timestamptz is null or (d.session_date, k.id)
        < ((%(after_at)s::timestamptz at time zone 'UTC')::date, %(after_id)s::uuid))
      order by d.session_date desc, k.id desc limit %(limit)s"""  # noqa: S608 - our own words
    return await db.fetch_dicts(connection, statement, query.parameters)

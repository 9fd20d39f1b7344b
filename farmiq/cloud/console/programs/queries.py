"""SQL of programs, with the person's rights (row level security)."""

from datetime import date
from uuid import UUID

from farmiq.cloud.console.programs.view import DayOfKind, Program
from farmiq.plumbing import db

_PROGRAM = """
select p.program_id, p.program_name, p.program_type, p.is_active,
  (select count(*) from sites s where s.program_id = p.program_id and s.is_active) as sites
from pilot_programs p
"""
MAX_PROGRAMS = 200


async def programs(connection: db.Connection) -> list[Program]:
    return await db.fetch_as(
        connection,
        Program,
        f"{_PROGRAM} order by not p.is_active, lower(p.program_name) limit %s",
        (MAX_PROGRAMS,),
    )


async def program(connection: db.Connection, program_id: UUID) -> Program | None:
    rows = await db.fetch_as(
        connection, Program, f"{_PROGRAM} where p.program_id = %s", (program_id,)
    )
    return rows[0] if rows else None


async def days(connection: db.Connection, *, begin: date) -> list[DayOfKind]:
    """Each program's days, oldest first; wakes are summed by session first (C-60)."""
    return await db.fetch_as(
        connection,
        DayOfKind,
        """
        select s.program_id, p.program_type, s.session_date, s.status = 'locked' as is_over,
          sum(s.expected_wake_count)::bigint as expected,
          sum(s.completed_wake_count)::bigint as completed,
          sum(w.temperature) as temperature, coalesce(sum(w.temperatures), 0)::bigint
            as temperatures
        from site_device_sessions s
        join pilot_programs p on p.program_id = s.program_id
        left join (
          select site_device_session_id as session_id, sum(temperature) as temperature,
            count(temperature) as temperatures
          from device_wake_payloads where site_device_session_id in (
            select session_id from site_device_sessions where session_date >= %(begin)s)
          group by 1) w on w.session_id = s.session_id
        where s.session_date >= %(begin)s
        group by 1, 2, 3, 4 order by s.session_date, s.program_id
        """,
        {"begin": begin},
    )


async def names(connection: db.Connection, **ids: UUID | None) -> dict[str, str]:
    """The names of a site, a session (its day) and a camera, for the way back up."""
    rows = await db.fetch_all(
        connection,
        """
        select (select site_name from sites where site_id = %s),
          (select session_date::text from site_device_sessions where session_id = %s),
          (select device_name from devices where device_id = %s)
        """,
        ids.get("site"),
        ids.get("session"),
        ids.get("device"),
    )
    texts = zip(("site", "session", "device"), rows[0], strict=True)
    return {part: text for part, text in texts if text is not None}

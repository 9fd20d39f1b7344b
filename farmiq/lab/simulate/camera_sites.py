"""Puts a simulated fleet into the cloud's registry: a program of each kind, a site per zone."""

from collections.abc import Iterable, Sequence

import psycopg

from farmiq.lab.simulate.camera_faults import ZONES, Kit
from farmiq.plumbing import ids

# Every two hours: a day of twelve wakes.
SCHEDULES = ("0 */2 * * *",)

_PROGRAM = """
    insert into pilot_programs (program_id, company_id, program_name, program_type)
    values (%s, %s, %s, %s) on conflict (company_id, lower(program_name)) do nothing
"""
_SITE = """
    insert into sites (site_id, company_id, program_id, site_name, timezone)
    select %s, company_id, program_id, %s, %s from pilot_programs
    where company_id = %s and program_name = %s
    on conflict (company_id, lower(site_name)) do nothing
"""
_CAMERA = """
    insert into devices (device_id, company_id, site_id, mac, device_name, dialect,
      wake_schedule_cron, firmware)
    select %s, company_id, site_id, %s, %s, %s, %s, 'simulated 1.0' from sites
    where company_id = %s and site_name = %s
    on conflict (company_id, mac) where is_active do nothing
"""


def register(
    connection: psycopg.Connection,
    kits: Iterable[Kit],
    *,
    tenant_id: str,
    schedules: Sequence[str] = SCHEDULES,
) -> int:
    """How many cameras are new; those that are known stay as they are. Raises ValueError.

    Schedules take turns. Before a day of theirs opens all of them are there, or it would not expect
    those that came later.
    """
    row = connection.execute(
        "select company_id from companies where tenant_id = %s", (tenant_id,)
    ).fetchone()
    if row is None:
        raise ValueError(f"no company has the tenant {tenant_id}: `farmiq company add` makes one")
    company_id = row[0]
    for number, zone in enumerate(ZONES):
        kind = ("control", "experimental")[number % 2]
        program, site = f"Simulated, {kind}", site_name(zone)
        connection.execute(_PROGRAM, (ids.new(), company_id, program, kind))
        connection.execute(_SITE, (ids.new(), site, zone, company_id, program))
    try:
        return sum(
            _add(connection, kit, company_id, schedules[kit.number % len(schedules)])
            for kit in kits
        )
    except psycopg.errors.CheckViolation as error:
        raise ValueError(f"a schedule cannot be one: {', '.join(schedules)}") from error


def _add(connection: psycopg.Connection, kit: Kit, company_id: object, schedule: str) -> int:
    named = f"Camera {kit.mac}"
    values = (ids.new(), kit.mac, named, kit.speech.dialect, schedule, company_id)
    return connection.execute(_CAMERA, (*values, site_name(kit.timezone))).rowcount


def site_name(zone: str) -> str:
    return f"Simulated {zone.rpartition('/')[2].replace('_', ' ')}"

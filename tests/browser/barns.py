"""Companies, people and readings, written the way the services write them."""

import contextlib
import json
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import psycopg
from psycopg import sql

from farmiq.cloud.identity import accounts
from farmiq.plumbing import ids
from tests.support import databases

EMAIL, PASSWORD = "anna@example.com", "correct horse battery"


@dataclass(frozen=True)
class Sensor:
    device_id: str
    metric_type: str
    unit: str
    mean: float
    swing: float
    tenant_id: str = "tenant-a"
    farm_id: str = "farm-1"
    barn_id: str = "barn-1"


def add_company(
    admin_url: str,
    tenant_id: str = "tenant-a",
    *,
    name: str = "Green Valley Poultry",
    email: str = EMAIL,
) -> None:
    with databases.connected(admin_url) as connection:
        company_id = accounts.add_company(connection, tenant_id, name=name, timezone="Asia/Bangkok")
        accounts.add_user(connection, email, company_id=company_id, password=PASSWORD)


@contextlib.contextmanager
def nobody_can_connect(admin_url: str, *, cut_off: str) -> Iterator[None]:
    """The database refuses new connections, and those of one application end."""
    name = psycopg.conninfo.conninfo_to_dict(admin_url)["dbname"]
    allow = sql.SQL("alter database {} allow_connections {}")
    with psycopg.connect(admin_url, dbname="postgres", autocommit=True) as connection:
        connection.execute(allow.format(sql.Identifier(str(name)), sql.SQL("false")))
        connection.execute(
            """
            select pg_terminate_backend(pid) from pg_stat_activity
            where split_part(application_name, ' ', 1) = %s and datname = %s
            """,
            (cut_off, name),
        )
        yield
        connection.execute(allow.format(sql.Identifier(str(name)), sql.SQL("true")))


def report(
    url: str,
    sensor: Sensor,
    *,
    every_s: float = 60,
    ended_ago_s: float = 5,
    count: int = 30,
    leave_out: Iterable[int] = (),
    arrived_late_s: float = 0,
) -> None:
    """`count` readings at a steady interval, the last one some seconds ago, without some."""
    missing = set(leave_out)
    chance = random.Random(f"{sensor}")
    phase = chance.uniform(0, 6)
    last_at = datetime.now(UTC) - timedelta(seconds=ended_ago_s)
    points = [
        (
            last_at - timedelta(seconds=every_s * back),
            sensor.mean + sensor.swing * (math.sin(phase + back / 5) + chance.gauss(0, 0.15)),
        )
        for back in reversed(range(count))
        if back not in missing
    ]
    insert(url, sensor, points, arrived_late_s=arrived_late_s)


def report_now(url: str, sensor: Sensor, value: float) -> None:
    insert(url, sensor, [(datetime.now(UTC), value)])


def insert(
    url: str,
    sensor: Sensor,
    points: list[tuple[datetime, float]],
    *,
    arrived_late_s: float = 0,
) -> None:
    with databases.connected(url) as connection:
        for at, value in points:
            arrived_at = at + timedelta(seconds=arrived_late_s + 0.2)
            _insert_one(connection, sensor, at, value, arrived_at)
        connection.execute(
            """
            select pg_notify('telemetry_changed', company_id::text)
            from companies where tenant_id = %s
            """,
            (sensor.tenant_id,),
        )


def _insert_one(
    connection: psycopg.Connection,
    sensor: Sensor,
    at: datetime,
    value: float,
    arrived_at: datetime,
) -> None:
    row = {
        "tenant_id": sensor.tenant_id,
        "event_id": ids.new(),
        "farm_id": sensor.farm_id,
        "barn_id": sensor.barn_id,
        "device_id": sensor.device_id,
        "metric_type": sensor.metric_type,
        "metric_value": round(value, 2),
        "unit": sensor.unit,
        "occurred_at": at,
        "stored_at": arrived_at,
    }
    connection.execute(
        """
        insert into telemetry_readings (tenant_id, event_id, farm_id, barn_id, device_id,
          metric_type, metric_value, unit, occurred_at, trace_id, stored_at)
        values (%(tenant_id)s, %(event_id)s, %(farm_id)s, %(barn_id)s, %(device_id)s,
          %(metric_type)s, %(metric_value)s, %(unit)s, %(occurred_at)s, 'trace', %(stored_at)s)
        """,
        row,
    )
    connection.execute(
        """
        insert into telemetry_latest (tenant_id, device_id, metric_type, farm_id, barn_id, event_id,
          metric_value, unit, occurred_at, stored_at, reading_count)
        values (%(tenant_id)s, %(device_id)s, %(metric_type)s, %(farm_id)s, %(barn_id)s,
          %(event_id)s, %(metric_value)s, %(unit)s, %(occurred_at)s, %(stored_at)s, 1)
        on conflict on constraint telemetry_latest_pkey do update set
          event_id = excluded.event_id, metric_value = excluded.metric_value,
          unit = excluded.unit, occurred_at = excluded.occurred_at,
          stored_at = excluded.stored_at, reading_count = telemetry_latest.reading_count + 1
        """,
        row,
    )


def revoke(url: str, sensor: Sensor) -> None:
    """The edge said that the device was revoked."""
    _tell(url, "device_events", "device.status", sensor, {"state": "offline", "revoked": True})


def aggregate(url: str, sensor: Sensor, *, ended_ago_s: float = 40) -> None:
    """The edge sends this sensor by the minute; its newest bucket is over since then."""
    end = datetime.now(UTC) - timedelta(seconds=ended_ago_s)
    with databases.connected(url) as connection:
        for back in range(30):
            mean = sensor.mean + sensor.swing * math.sin(back / 5)
            begin = end - timedelta(minutes=1 + back)
            connection.execute(
                """
                insert into telemetry_agg (id, tenant_id, farm_id, barn_id, device_id, "window",
                  bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value,
                  max_value, sum_value, count, sent)
                values (%s, %s, %s, %s, %s, '1m', %s, %s, %s, %s, %s, %s, %s, %s, 12, true)
                """,
                (
                    ids.new(), sensor.tenant_id, sensor.farm_id, sensor.barn_id,
                    sensor.device_id, begin, begin + timedelta(minutes=1), sensor.metric_type,
                    sensor.unit, mean, mean, mean, 12 * mean,
                ),
            )  # fmt: skip
        connection.execute(
            """
            insert into telemetry_latest (tenant_id, device_id, metric_type, farm_id, barn_id,
              event_id, metric_value, unit, occurred_at, reading_count, aggregation_window)
            values (%s, %s, %s, %s, %s, %s, %s, %s, %s, 0, '1m')
            on conflict on constraint telemetry_latest_pkey do update set
              metric_value = excluded.metric_value, occurred_at = excluded.occurred_at,
              stored_at = excluded.stored_at, aggregation_window = excluded.aggregation_window
            """,
            (
                sensor.tenant_id, sensor.device_id, sensor.metric_type, sensor.farm_id,
                sensor.barn_id, ids.new(), sensor.mean, sensor.unit, end,
            ),
        )  # fmt: skip


def _tell(
    url: str,
    table: str,
    event_type: str,
    sensor: Sensor,
    payload: dict[str, object],
) -> None:
    with databases.connected(url) as connection:
        connection.execute(
            sql.SQL(
                """
                insert into {} (tenant_id, event_id, event_type, farm_id, barn_id, device_id,
                  occurred_at, trace_id, payload)
                values (%s, %s, %s, %s, %s, %s, %s, 'trace', %s)
                """
            ).format(sql.Identifier(table)),
            (
                sensor.tenant_id, ids.new(), event_type, sensor.farm_id, sensor.barn_id,
                sensor.device_id, datetime.now(UTC), json.dumps(payload),
            ),
        )  # fmt: skip


TEMPERATURE = Sensor("climate-01", "temperature", "°C", 27.4, 1.6)
HUMIDITY = Sensor("climate-01", "humidity", "%", 61, 4)


def a_whole_farm(url: str) -> None:
    """Four barns, most of it well: two sensors late, one with a gap, one that waited."""
    for number in range(1, 5):
        barn = f"barn-{number}"
        report(url, replace(TEMPERATURE, device_id=f"climate-0{number}", barn_id=barn))
        report(url, replace(HUMIDITY, device_id=f"climate-0{number}", barn_id=barn))
        report(
            url,
            Sensor(f"air-0{number}", "ammonia", "ppm", 11, 3, barn_id=barn),
            leave_out=range(9, 16) if number == 2 else (),
            ended_ago_s=11,
        )
        report(
            url,
            Sensor(f"air-0{number}", "co2", "ppm", 1850, 220, barn_id=barn),
            ended_ago_s=780 if number == 3 else 14,
        )
        report(
            url,
            Sensor(f"silo-0{number}", "silo_level", "kg", 5400, 600, barn_id=barn),
            every_s=300,
            ended_ago_s=90_000 if number == 4 else 130,
            arrived_late_s=4000 if number == 4 else 0,
        )


def many(url: str, *, devices: int) -> None:
    """Two sensors on each of so many devices in ten barns, 30 readings each."""
    with databases.connected(url) as connection:
        connection.execute(
            """
            insert into telemetry_readings (tenant_id, event_id, farm_id, barn_id, device_id,
              metric_type, metric_value, unit, occurred_at, trace_id)
            select 'tenant-a', gen_random_uuid(), 'farm-1', 'barn-' || mod(d, 10),
              'device-' || d, m, 20 + 5 * sin(d + i / 4.0), 'x',
              now() - make_interval(secs => 60 * i), 'trace'
            from generate_series(1, %s) d, unnest(array['humidity', 'temperature']) m,
              generate_series(0, 29) i
            """,
            (devices,),
        )
        connection.execute(
            """
            insert into telemetry_latest (tenant_id, device_id, metric_type, farm_id, barn_id,
              event_id, metric_value, unit, occurred_at, stored_at, reading_count)
            select distinct on (device_id, metric_type) tenant_id, device_id, metric_type, farm_id,
              barn_id, event_id, metric_value, unit, occurred_at, stored_at, 30
            from telemetry_readings
            order by device_id, metric_type, occurred_at desc
            """
        )

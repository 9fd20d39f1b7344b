"""A farm that runs: registered barns with a batch, hours of rollups, an edge, an open alert."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from farmiq.plumbing import ids
from tests.browser import barns
from tests.browser.barns import Sensor
from tests.support import databases

WEIGHTS_KG = (0.45, 0.51, 0.58, 0.64, 0.71, 0.78, 0.84, 0.90)


def register(url: str) -> None:
    """North barn with a batch that grows, and South barn without one."""
    with databases.connected(url) as connection:
        connection.execute(
            "insert into farms (tenant_id, farm_id, name, timezone) "
            "values ('tenant-a', 'farm-1', 'Hill Farm', 'Asia/Bangkok')"
        )
        connection.execute(
            "insert into barns (tenant_id, farm_id, barn_id, name) values "
            "('tenant-a', 'farm-1', 'barn-1', 'North barn'), "
            "('tenant-a', 'farm-1', 'barn-2', 'South barn')"
        )
        connection.execute(
            """
            insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count,
              placed_on, age_at_placing_days)
            values ('tenant-a', 'spring', 'farm-1', 'barn-1', 'broiler', 5000,
              (now() at time zone 'Asia/Bangkok')::date - 21, 0)
            """
        )
        connection.execute(
            """
            insert into kpi_daily (tenant_id, farm_id, barn_id, batch_id, kpi_date, kpi_type, value,
              unit, source_event_count)
            select 'tenant-a', 'farm-1', 'barn-1', 'spring',
              (now() at time zone 'Asia/Bangkok')::date - %(count)s::int + n::int,
              'weight_mean', w, 'kg', 40
            from unnest(%(weights)s::float8[]) with ordinality as g(w, n)
            union all
            select 'tenant-a', 'farm-1', 'barn-1', 'spring',
              (now() at time zone 'Asia/Bangkok')::date, 'head_count', 4863, 'head', 1
            """,
            {"weights": list(WEIGHTS_KG), "count": len(WEIGHTS_KG)},
        )


def edge(url: str, *, heard_ago_s: float = 20, waiting: int = 3) -> None:
    """An enrolled edge that speaks for the farm."""
    with databases.connected(url) as connection:
        connection.execute(
            "insert into edge_keys (key_id, tenant_id, edge_cluster_id, public_x, enrolled_at) "
            "values ('key-1', 'tenant-a', 'hill-edge', 'x', now())"
        )
        connection.execute(
            """
            insert into edge_heartbeats (tenant_id, edge_cluster_id, received_at, sent_at,
              clock_offset_s, versions, waiting, oldest_s, dlq, disk_percent, farms)
            values ('tenant-a', 'hill-edge', %(at)s, %(at)s, 0, '{}', %(waiting)s, 4, 0, 40,
              '{farm-1}')
            """,
            {"at": datetime.now(UTC) - timedelta(seconds=heard_ago_s), "waiting": waiting},
        )


def hours(url: str, sensor: Sensor, *, count: int, gap: tuple[int, int]) -> None:
    """Three readings a minute for so many hours, rolled up by minute and hour.

    In the last hour one every five minutes, so that it does not turn late while a test looks at it.
    Between `gap` minutes ago there is none.
    """
    values = {
        "tenant": sensor.tenant_id, "farm": sensor.farm_id, "barn": sensor.barn_id,
        "device": sensor.device_id, "metric": sensor.metric_type, "unit": sensor.unit,
        "mean": sensor.mean, "swing": sensor.swing, "seconds": 3600 * count,
        "gap_begin": 60 * gap[0], "gap_end": 60 * gap[1],
    }  # fmt: skip
    with databases.connected(url) as connection:
        connection.execute(
            """
            insert into telemetry_readings (tenant_id, event_id, farm_id, barn_id, device_id,
              metric_type, metric_value, unit, occurred_at, trace_id)
            select %(tenant)s, gen_random_uuid(), %(farm)s, %(barn)s, %(device)s, %(metric)s,
              %(mean)s + %(swing)s * sin(s / 5000.0) + mod(s, 7) / 10.0, %(unit)s,
              now() - make_interval(secs => s), 'trace'
            from generate_series(5, %(seconds)s, 20) s
            where s not between %(gap_end)s and %(gap_begin)s
              and (s > 3600 or mod(s - 5, 300) = 0)
            """,
            values,
        )
        for window, unit in (("1m", "minute"), ("1h", "hour")):
            connection.execute(
                """
                insert into telemetry_agg (id, tenant_id, farm_id, barn_id, device_id, "window",
                  bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value,
                  max_value, sum_value, count)
                select gen_random_uuid(), tenant_id, farm_id, barn_id, device_id, %(window)s,
                  date_trunc(%(length)s, occurred_at),
                  date_trunc(%(length)s, occurred_at) + ('1 ' || %(length)s)::interval,
                  metric_type, unit, avg(metric_value), min(metric_value), max(metric_value),
                  sum(metric_value::numeric), count(*)
                from telemetry_readings where device_id = %(device)s and metric_type = %(metric)s
                group by tenant_id, farm_id, barn_id, device_id, metric_type, unit,
                  date_trunc(%(length)s, occurred_at)
                """,
                {**values, "window": window, "length": unit},
            )
    barns.report_now(url, sensor, sensor.mean)


def alert(url: str, sensor: Sensor, message: str, *, minutes_ago: float = 30) -> UUID:
    """A rule about the sensor has an open episode."""
    episode_id = ids.new()
    with databases.connected(url) as connection:
        connection.execute(
            """
            insert into alert_episodes (tenant_id, episode_id, cause, source, rule_id, severity,
              subject, farm_id, barn_id, device_id, message, opened_at, last_at, signal)
            values (%(tenant)s, %(id)s, 'rule:heat|' || %(device)s, 'rule', 'heat', 'critical',
              %(device)s, %(farm)s, %(barn)s, %(device)s, %(message)s, %(at)s, now(), %(signal)s)
            """,
            {
                "tenant": sensor.tenant_id, "id": episode_id, "device": sensor.device_id,
                "farm": sensor.farm_id, "barn": sensor.barn_id, "message": message,
                "at": datetime.now(UTC) - timedelta(minutes=minutes_ago),
                "signal": f"telemetry.{sensor.metric_type}",
            },
        )  # fmt: skip
    return episode_id


def resolve(url: str, episode_id: UUID) -> None:
    with databases.connected(url) as connection:
        connection.execute(
            "update alert_episodes set state = 'resolved', resolved_at = now() "
            "where episode_id = %s",
            (episode_id,),
        )
        connection.execute("select pg_notify('alerts_changed', company_id::text) from companies")

"""Figures of one batch day: database time at 1 million and at 100 million readings' rollups (P17).

Ten farms with 20 barns, two years of batches; a reading every 10 seconds from each device, rolled
up by minute, hour and day. The rows are made by SQL. What a late event of one day costs is the time
to read its facts, compute its figures and store them, in a transaction that is rolled back. The
days are spread over all barns and dates of a size.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

import psycopg

from bench import machine, results
from bench.results import Result
from farmiq import config, services
from farmiq.cloud.analytics import jobs, store
from farmiq.cloud.analytics.marks import Mark
from farmiq.lab import stack
from farmiq.plumbing import db, migrations

TENANT = "bench"
FARMS, BARNS, DAYS = 10, 20, 730
FIRST = date(2024, 1, 1)
BATCH_DAYS = 42
READINGS_PER_HOUR = 360
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """How much of the farms has rollups: a barn has two series, each day is as dense."""

    farms: int
    barns: int
    days: int

    @property
    def readings(self) -> int:
        return self.farms * self.barns * self.days * 24 * 2 * READINGS_PER_HOUR


SMALL = Filled(farms=1, barns=4, days=15)
LARGE = Filled(farms=FARMS, barns=BARNS, days=29)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`large`: also at 100 million readings, which takes minutes and 8 GB of disk."""

    large: bool = False
    touched: int = 60


async def measure(plan: Plan, say: Say) -> list[Result]:
    """The milliseconds per touched day at each size, and the ratio of the last to the first."""
    root = config.state_dir() / "stacks" / "bench-figures"
    stack.remove(root)  # what an interrupted run has left
    spent_ms: dict[int, list[float]] = {}
    with stack.start(root, engines=("postgres-cloud",), say=say) as engines:
        admin = engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
        migrations.apply(admin, services.SQL["cloud"])
        _company(admin)
        for filled in (SMALL, LARGE) if plan.large else (SMALL,):
            _roll_up(admin, filled)
            spent_ms[filled.readings] = await _recompute(admin, filled, plan.touched)
            median = statistics.median(spent_ms[filled.readings])
            say(f"figures         {median:>9,.1f} ms a day at {filled.readings:,} readings")
    stack.remove(root)
    detail = {
        f"ms at {size:,} readings": round(statistics.median(ms), 2) for size, ms in spent_ms.items()
    }
    medians = [statistics.median(ms) for ms in spent_ms.values()]
    kept = [
        results.of_runs(
            "P17 ms", "ms of database time to compute a batch day again", spent_ms[max(spent_ms)],
            target="< 50", detail=detail,
        )
    ]  # fmt: skip
    if plan.large:
        ratio = medians[-1] / medians[0]
        what = "ms to compute a batch day again at 100 million readings / at 1 million"
        kept.append(results.of_runs("P17", what, [ratio], target="<= 1.5", detail=detail))
    results.save(kept, machine=machine.description())
    return kept


def _company(url: str) -> None:
    """The company with farms, barns, batches, their weighings, intakes, records and figures."""
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(
            "insert into companies (company_id, tenant_id, name) "
            "values (gen_random_uuid(), %s, %s)",
            (TENANT, TENANT),
        )
        values = {
            "tenant": TENANT, "farms": FARMS, "barns": BARNS, "first": FIRST, "days": DAYS,
            "stay": BATCH_DAYS,
        }  # fmt: skip
        for statement in _MADE:
            owner.execute(statement.encode(), values)
        owner.execute("truncate analytics_dirty_days")
        owner.execute("vacuum analyze")


_PLACES = """
  generate_series(1, %(farms)s) f cross join generate_series(1, %(barns)s) b
  cross join generate_series(0, %(days)s / %(stay)s - 1) n
"""
_EVENTS = """
  select %(tenant)s, gen_random_uuid(), 'farm-' || f, 'barn-' || b,
    (%(first)s::date + n * %(stay)s + d)::timestamptz + interval '9 hours' + e * interval '1 minute'
"""
_MADE = (
    """
    insert into farms (tenant_id, farm_id, name, timezone)
    select %(tenant)s, 'farm-' || f, 'Farm', 'Europe/Berlin' from generate_series(1, %(farms)s) f
    """,
    """
    insert into barns (tenant_id, farm_id, barn_id, name)
    select %(tenant)s, 'farm-' || f, 'barn-' || b, 'Barn'
    from generate_series(1, %(farms)s) f cross join generate_series(1, %(barns)s) b
    """,
    f"""
    insert into batches (tenant_id, batch_id, farm_id, barn_id, species, breed, placed_count,
      age_at_placing_days, placed_on, closed_on)
    select %(tenant)s, f || '-' || b || '-' || n, 'farm-' || f, 'barn-' || b, 'broiler', 'fast',
      20000, 0, %(first)s::date + n * %(stay)s, %(first)s::date + (n + 1) * %(stay)s - 1
    from {_PLACES}
    """,  # noqa: S608 - our own text
    """
    insert into breed_standards (tenant_id, species, breed, sex, age_days, weight_kg, source)
    select %(tenant)s, 'broiler', 'fast', 'mixed', a, 0.04 + a * 0.05, 'bench'
    from generate_series(0, %(stay)s) a
    """,
    f"""
    insert into weight_sessions (tenant_id, session_id, farm_id, barn_id, start_at, status,
      final_weight_kg)
    {_EVENTS}, 'finalized', 0.04 + d * 0.05 + e * 0.0001
    from {_PLACES} cross join generate_series(0, %(stay)s - 1) d cross join generate_series(1, 5) e
    """,
    f"""
    insert into feed_events (tenant_id, event_id, farm_id, barn_id, occurred_at, event_type,
      trace_id, payload)
    {_EVENTS}, 'feed.intake.recorded', 't', '{{"source": "SILO_AUTO", "quantity_kg": 500}}'
    from {_PLACES} cross join generate_series(0, %(stay)s - 1) d cross join generate_series(1, 3) e
    """,
    f"""
    insert into barn_events (tenant_id, event_id, farm_id, barn_id, occurred_at, event_type,
      trace_id, payload)
    {_EVENTS}, 'barn.record.created', 't', jsonb_build_object('record_type', 'mortality',
      'record_id', concat_ws('-', f, b, n, d, e), 'value', 2)
    from {_PLACES} cross join generate_series(0, %(stay)s - 1) d cross join generate_series(1, 1) e
    """,
    f"""
    insert into batch_days (tenant_id, batch_id, kpi_date, hours, feed_kg, intake_count, dead,
      dead_count, weighed_count, weight_mean_kg)
    select %(tenant)s, f || '-' || b || '-' || n, %(first)s::date + n * %(stay)s + d, 24, 1500,
      3, 2, 1, 5, 0.04 + d * 0.05
    from {_PLACES} cross join generate_series(0, %(stay)s - 1) d
    """,  # noqa: S608 - our own text
    f"""
    insert into kpi_daily (tenant_id, farm_id, barn_id, batch_id, kpi_date, kpi_type, value, unit,
      source_event_count)
    select %(tenant)s, 'farm-' || f, 'barn-' || b, f || '-' || b || '-' || n,
      %(first)s::date + n * %(stay)s + d, k, 1, 'kg', 1
    from {_PLACES} cross join generate_series(0, %(stay)s - 1) d
      cross join unnest(array['head_count', 'weight_mean', 'weight_median', 'weight_p10', 'adg',
        'adg_7d', 'fcr', 'intake_kg', 'intake_per_head', 'mortality_pct', 'epef', 'thi_hours',
        'data_coverage']) k
    """,  # noqa: S608 - our own text
)


def _roll_up(url: str, filled: Filled) -> None:
    with psycopg.connect(url, autocommit=True) as owner:
        for window, seconds in (("1m", 60), ("1h", 3600), ("1d", 86400)):
            owner.execute(
                """
                insert into telemetry_agg (id, tenant_id, farm_id, barn_id, device_id, "window",
                  bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value,
                  max_value, sum_value, count)
                select gen_random_uuid(), %(tenant)s, 'farm-' || f, 'barn-' || b,
                  f || '-' || b || '-' || s, %(window)s, t, t + %(length)s,
                  case s when 0 then 'temperature' else 'humidity' end,
                  case s when 0 then '°C' else '%%' end, 30, 29, 31, 30 * %(count)s, %(count)s
                from generate_series(1, %(farms)s) f cross join generate_series(1, %(barns)s) b
                  cross join generate_series(0, 1) s
                  cross join generate_series(%(first)s::date::timestamptz,
                    (%(first)s::date + %(days)s)::timestamptz - %(length)s, %(length)s) t
                on conflict do nothing
                """,
                {
                    "tenant": TENANT, "window": window, "length": timedelta(seconds=seconds),
                    "count": READINGS_PER_HOUR * seconds // 3600, "farms": filled.farms,
                    "barns": filled.barns, "first": FIRST, "days": filled.days,
                },
            )  # fmt: skip
        owner.execute("vacuum analyze telemetry_agg")
        owner.execute("checkpoint")


async def _recompute(url: str, filled: Filled, touched: int) -> list[float]:
    """Milliseconds for a late event of one day each, of many batches."""
    spent: list[float] = []
    async with db.pool(url, name="bench", min_size=1, max_size=1) as pool:
        for number in range(touched + 5):
            farm, barn = number % filled.farms + 1, number // filled.farms % filled.barns + 1
            day = FIRST + timedelta(days=number * 5 % (filled.days - 2) + 1)
            async with pool.connection() as tx:
                began = time.perf_counter()
                _, changes = await jobs.recompute_batch(
                    tx, TENANT, f"{farm}-{barn}-0", [Mark(day, day, is_figures=False)]
                )
                await store.save_figures(tx, changes)
                spent.append((time.perf_counter() - began) * 1000)
                await tx.rollback()
            await asyncio.sleep(0)
    return spent[5:]  # plans and caches are warm, as in a service that runs

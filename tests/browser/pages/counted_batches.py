"""The figures of batches, feed and entries, counted again by SQL."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg

from farmiq.cloud.figures import forecast as forecasts
from farmiq.lab.simulate.life.flocks import Life
from tests.browser.pages.recount import Counted

# A silo is where a lot went; feed of no lot is of the device that gave it out.
_SILOS = """
    select distinct coalesce(l.device_id, e.device_id) from feed_events e
      left join feed_events l on l.event_type = 'feed.lot.received'
        and l.feed_lot_id = e.feed_lot_id
    where coalesce(l.device_id, e.device_id) is not null"""
# Figures that are one query: the parameter is their key.
_QUERIES = {
    "batch.placed_count": "select placed_count from batches where batch_id = %s",
    "batch.target_kg": "select target_weight_kg from batches where batch_id = %s",
    "batch.head_count_now": """
        select placed_count - coalesce((select sum((payload ->> 'value')::float8)
          from counted where record_type in ('mortality', 'cull')), 0)
        from of_batch where batch_id = %s and not exists (select from counted
          where record_type = 'head_count')""",
    "batch.dead": """
        select sum((payload ->> 'value')::float8) from counted, of_batch
        where record_type = 'mortality' and of_batch.batch_id = %s""",
    "batch.culled": """
        select coalesce(sum((payload ->> 'value')::float8) filter (where record_type = 'cull'), 0)
        from counted, of_batch where of_batch.batch_id = %s""",
    "record.value": "select (payload ->> 'value')::float8 from barn_events where record_id = %s",
    "record.withdrawal_days": """
        select (payload ->> 'withdrawal_days')::float8 from barn_events where record_id = %s""",
    "feed.lot_kg": """
        select quantity_kg from feed_events
        where event_id = %s::uuid and event_type = 'feed.lot.received'""",
    "feed.lot_stock_kg": """
        select sum(quantity_kg * case event_type when 'feed.lot.received' then 1 else -1 end)
        from feed_events e where feed_lot_id = %s
          and not exists (select from feed_events r
            where r.payload ->> 'replaces' = e.event_id::text)""",
    "feed.stock_kg": """
        select sum(e.quantity_kg * case e.event_type when 'feed.lot.received' then 1 else -1 end)
        from feed_events e
          left join (select distinct feed_lot_id, device_id from feed_events
            where event_type = 'feed.lot.received') l on l.feed_lot_id = e.feed_lot_id
        where coalesce(l.device_id, e.device_id) = %s
          and not exists (select from feed_events r
            where r.payload ->> 'replaces' = e.event_id::text)""",
    "entry.value": """
        select (payload ->> 'value')::float8 from barn_events where record_id = %(key)s
        union all select quantity_kg from feed_events where event_id::text = %(key)s""",
    "batches.running": "select count(*) from batches where closed_on is null and %s = ''",
    "feed.silos": f"select count(*) from ({_SILOS}) s where %s = ''",  # noqa: S608
}
_OF_BATCH = """
    with of_batch as (select * from batches where batch_id = %(key)s),
    counted as (
      select e.record_type, e.payload from barn_events e, of_batch b
      where e.barn_id = b.barn_id and not exists (select from barn_events r
        where r.payload ->> 'replaces' = e.record_id))
"""
_BY_DATE = {
    "batch.dead_of_day": "select dead from batch_days where batch_id = %s and kpi_date = %s",
    "batch.age_on": "select %(day)s::date - placed_on from batches where batch_id = %(batch)s",
}
# The figure or the column of the standard behind each column of a chart.
_CHARTS = {
    "growth.line": "weight_mean", "growth.low": "weight_p10", "growth.high": "weight_p90",
    "growth.expected": "weight_kg", "gain.line": "adg_7d", "gain.expected": "daily_gain_g",
    "conversion.line": "fcr", "conversion.expected": "feed_conversion",
    "mortality.bars": "mortality_day_pct", "mortality.line": "mortality_pct",
    "mortality.expected": "mortality_pct.standard", "intake.bars": "intake_per_head",
    "water.bars": "water_per_head", "uniformity.line": "weight_uniformity",
}  # fmt: skip
_STANDARD = ("weight_kg", "daily_gain_g", "feed_conversion", "mortality_pct.standard")


class Recount:
    def __init__(self, connection: Any, life: Life, address: str) -> None:
        self._connection, self._life = connection, life
        self._forecasts: dict[tuple[str, date | None], Any] = {}
        self._page_batch = unquote(urlsplit(address).path.removeprefix("/batches/"))

    def value(self, name: str, key: str) -> float | None:
        """The figure counted again; raises KeyError for one that nobody knows how to count."""
        if name in _QUERIES:
            text = _QUERIES[name].replace("%s", "%(key)s")
            if "of_batch" in text:
                text = _OF_BATCH + text
            return self._one(text, {"key": key})
        special: dict[str, Callable[[str], float | None]] = {
            "batch.age_days": lambda key: self._age(key, self._life.today),
            "batch.weight_age_days": lambda key: self._age(key, self._weighed_on(key)),
            "batch.weighed_count": self._weighings,
            "batch.days_to_target": self._days_to_target,
            "feed.daily_kg": self._daily_kg,
            "feed.lot_lacking_kg": lambda key: -float(self.value("feed.lot_stock_kg", key) or 0.0),
            "feed.days_left": lambda key: self._stock(key) / self._daily_kg(key),
            "feed.problems": lambda _: float(self._low_silos()),
            "batches.problems": lambda _: 1.0,  # the second flock; the farm is made so
        }
        if name in special:
            return special[name](key)
        if name in _BY_DATE:
            batch_id, on = key.rsplit("|", 1)
            text = _BY_DATE[name].replace("batch_id = %s", "batch_id = %(batch)s")
            return self._one(text.replace("= %s", "= %(day)s"), {"batch": batch_id, "day": on})
        if name.startswith("batch.chart."):
            return self._of_chart(name.removeprefix("batch.chart."), float(key))
        return self._kpi(name.removeprefix("batch."), key)

    def _one(self, text: str, values: dict[str, Any]) -> float | None:
        row = self._connection.execute(text.encode(), values).fetchone()
        return None if row is None or row[0] is None else float(row[0])

    def _kpi(self, name: str, key: str) -> float | None:
        """A figure of kpi_daily, or its count, what is expected, or the difference in %."""
        kpi_type, _, part = name.partition(".")
        column = {
            "": "value", "count": "source_event_count", "expected": "expected_value",
            "difference_pct": "100 * (value - expected_value) / expected_value",
        }[part]  # fmt: skip
        batch_id, on = key.rsplit("|", 1)
        return self._one(
            f"select {column} from kpi_daily where kpi_type = %(type)s "  # noqa: S608
            "and batch_id = %(batch)s and kpi_date = %(day)s",
            {"type": kpi_type, "batch": batch_id, "day": on},
        )

    def _of_chart(self, column: str, age: float) -> float | None:
        flock = next(one for one in self._life.flocks if one.batch_id == self._page_batch)
        on = flock.placed_on + timedelta(days=int(age))
        chart, role = column.split(".")
        if role.startswith("forecast"):
            return self._forecast(on, role)
        if role in ("expected_low", "expected_high"):
            share = 0.9 if role == "expected_low" else 1.1
            expected = self._of_chart("growth.expected", age)
            return None if expected is None else share * expected
        source = _CHARTS[f"{chart}.{role}"]
        if source in _STANDARD:
            return self._one(
                f"select {source.partition('.')[0]} from breed_standards "  # noqa: S608
                "where sex = 'mixed' and age_days = %(age)s",
                {"age": int(age)},
            )
        return self._kpi(source, f"{flock.batch_id}|{on}")

    def _forecast(self, on: date, role: str) -> float | None:
        """As the API answers for that day."""
        weight = self._answer(self._page_batch, on).weight
        by_role: dict[str, float | None] = {
            "forecast": weight.weight_kg,
            "forecast_low": weight.low_kg,
            "forecast_high": weight.high_kg,
        }
        return by_role[role]

    def _answer(self, batch_id: str, on: date | None) -> Any:
        key = batch_id, on
        if key not in self._forecasts:
            self._forecasts[key] = forecast_on(self._connection, self._life.tenant_id, *key)
        return self._forecasts[key]

    def _days_to_target(self, batch_id: str) -> float | None:
        answer = self._answer(batch_id, None)
        assert answer.target is not None
        assert answer.target.reached_on is not None
        return max(0.0, float((answer.target.reached_on - self._life.today).days))

    def _age(self, batch_id: str, on: date) -> float:
        flock = next(one for one in self._life.flocks if one.batch_id == batch_id)
        return float((on - flock.placed_on).days)

    def _weighed_on(self, batch_id: str) -> date:
        row = self._connection.execute(
            "select max(kpi_date) from kpi_daily where batch_id = %s and kpi_type = 'weight_mean'",
            (batch_id,),
        ).fetchone()
        assert isinstance(row[0], date)
        return row[0]

    def _weighings(self, batch_id: str) -> float | None:
        return self._one(
            "select sum(weighed_count) from batch_days where batch_id = %(batch)s",
            {"batch": batch_id},
        )

    def _stock(self, silo: str) -> float:
        return float(self.value("feed.stock_kg", silo) or 0.0)

    def _daily_kg(self, silo: str) -> float:
        """The mean of the last seven local days before today with an intake."""
        rows = self._connection.execute(
            """
            select (e.occurred_at at time zone 'Asia/Bangkok')::date, sum(e.quantity_kg)
            from feed_events e
              left join (select distinct feed_lot_id, device_id from feed_events
                where event_type = 'feed.lot.received') l on l.feed_lot_id = e.feed_lot_id
            where coalesce(l.device_id, e.device_id) = %s and e.quantity_kg > 0
              and e.event_type = 'feed.intake.recorded'
              and (e.occurred_at at time zone 'Asia/Bangkok')::date < %s
              and not exists (select from feed_events r
                where r.payload ->> 'replaces' = e.event_id::text)
            group by 1 order by 1 desc limit 7
            """,
            (silo, self._life.today),
        ).fetchall()
        return float(sum(row[1] for row in rows) / len(rows))

    def _low_silos(self) -> int:
        silos = self._connection.execute(_SILOS.encode()).fetchall()
        left = [(self._stock(silo), silo) for (silo,) in silos]
        return sum(kg < 0 or kg / self._daily_kg(silo) < 2 for kg, silo in left)


def forecast_on(connection: Any, tenant_id: str, batch_id: str, on: date | None) -> Any:
    """As GET /api/v1/batches/{batch_id}/forecast answers."""

    async def ask() -> Any:
        url = connection.info.dsn
        password = connection.info.password
        async with await psycopg.AsyncConnection.connect(url, password=password) as tx:
            return await forecasts.forecast(tx, tenant_id, batch_id, on=on)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, ask()).result()


def otherwise(life: Life) -> Callable[[str], Counted]:
    """How a figure of this name is counted: those of batches are kpi types, too many to list."""

    def named(name: str) -> Counted:
        def count(connection: Any, key: str, address: str) -> Iterable[float | None]:
            if name.startswith("feed.chart."):
                return _intakes(connection, key)
            try:
                return [Recount(connection, life, address).value(name, key)]
            except (KeyError, ValueError):
                return []

        return count

    return named


def _intakes(connection: Any, key: str) -> list[float]:
    """The feed of each barn on that day; columns have no key, so one of them fits."""
    begin = datetime.fromisoformat(key)
    rows = connection.execute(
        """
        select sum(quantity_kg) from feed_events e
        where event_type = 'feed.intake.recorded' and occurred_at >= %s and occurred_at < %s
          and not exists (select from feed_events r
            where r.payload ->> 'replaces' = e.event_id::text)
        group by barn_id
        """,
        (begin, begin + timedelta(days=1)),
    ).fetchall()
    return [float(row[0]) for row in rows]

"""What a batch will weigh: its growth curve asked about a day and about its target weight."""

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal, NamedTuple

from farmiq import api
from farmiq.farm import growth
from farmiq.farm.growth import Curve, DailyMean, Estimate, NotEnoughDataError
from farmiq.messages.wording import worded
from farmiq.plumbing import db

# The newest weighed days that a curve goes through.
MAX_DAYS = 200


class ExpectedWeight(api.Model):
    """The mean weight on a day with its band, or the reason why nobody can say.

    `age_days` are the days since placing if the age is not known.
    """

    on: date
    age_days: int
    weight_kg: float | None = None
    low_kg: float | None = None
    high_kg: float | None = None
    reason: str | None = None


class TargetDay(api.Model):
    """The first day with the target weight, or the reason why nobody can say.

    `latest_on` is null if the lower end of the band does not get there as far as the curve goes.
    """

    target_kg: float
    reached_on: date | None = None
    earliest_on: date | None = None
    latest_on: date | None = None
    reason: str | None = None


class Forecast(api.Model):
    """`method` is the kind of curve; it is null, with the `reason`, if there is not enough data.

    Bands contain the truth in `band_pct` % of cases. `weight` and `target` may each have a reason
    of their own; `target` is null if neither the batch nor the request names one.
    """

    batch_id: str
    method: Literal["gompertz", "trend"] | None
    reason: str | None
    weighed_days: int
    last_weighed_on: date | None
    band_pct: int
    weight: ExpectedWeight
    target: TargetDay | None


@dataclass(frozen=True, slots=True)
class Batch:
    batch_id: str
    placed_on: date
    age_at_placing_days: int | None
    closed_on: date | None
    target_weight_kg: float | None
    target_on: date | None
    today: date

    def age(self, on: date) -> int:
        """Since they were placed, if nobody knows their age."""
        return (self.age_at_placing_days or 0) + (on - self.placed_on).days

    def day(self, age_days: int) -> date:
        return self.placed_on + timedelta(days=age_days - (self.age_at_placing_days or 0))

    def check_there(self, on: date) -> None:
        """Raises NotEnoughDataError for a day after the animals left."""
        if self.closed_on is not None and on > self.closed_on:
            raise NotEnoughDataError(worded("the animals left on %(day)s", day=self.closed_on))


class WeighedDay(NamedTuple):
    """The weighings of a date: mean, count and coefficient of variation."""

    kpi_date: date
    mean_kg: float
    weighed_count: int
    cv_pct: float | None


@dataclass(frozen=True, slots=True)
class Weights:
    """What a forecast is made of: a batch and its weighed days, newest first."""

    batch: Batch
    days: Sequence[WeighedDay]

    def curve(self) -> Curve:
        """Raises NotEnoughDataError."""
        return _fit(
            tuple(
                DailyMean(
                    self.batch.age(day.kpi_date), day.mean_kg, day.weighed_count,
                    None if day.cv_pct is None else day.cv_pct / 100 * day.mean_kg,
                )
                for day in self.days
            ),
            is_age_known=self.batch.age_at_placing_days is not None,
        )  # fmt: skip


@functools.lru_cache(maxsize=1000)
def _fit(days: tuple[DailyMean, ...], *, is_age_known: bool) -> Curve:
    """Kept: open pages of a company ask for the same curves again and again."""
    return growth.fit(days, is_age_known=is_age_known)


async def weights(
    tx: db.Connection, tenant_id: str, batch_ids: Collection[str]
) -> dict[str, Weights]:
    """By batch, with the rights of the caller; batches that do not exist are left out."""
    batches = await db.fetch_as(
        tx,
        Batch,
        """
        select b.batch_id, b.placed_on, b.age_at_placing_days, b.closed_on, b.target_weight_kg,
          b.target_on, fn_farm_date(b.tenant_id, b.farm_id, fn_now()) as today
        from batches b where b.tenant_id = %s and b.batch_id = any(%s)
        """,
        (tenant_id, [*batch_ids]),
    )
    weighed: dict[str, list[WeighedDay]] = {batch.batch_id: [] for batch in batches}
    for batch_id, *day in await db.fetch_all(
        tx,
        """
        select b.batch_id, k.* from unnest(%s::text[]) b (batch_id)
        cross join lateral (
          select kpi_date, max(value) filter (where kpi_type = 'weight_mean'),
            max(source_event_count) filter (where kpi_type = 'weight_mean'),
            max(value) filter (where kpi_type = 'weight_cv')
          from kpi_daily
          where tenant_id = %s and batch_id = b.batch_id
            and kpi_type in ('weight_mean', 'weight_cv') and value is not null
          group by kpi_date order by kpi_date desc limit %s) k
        """,
        [*weighed],
        tenant_id,
        MAX_DAYS,
    ):
        weighed[batch_id].append(WeighedDay(*day))
    return {batch.batch_id: Weights(batch, weighed[batch.batch_id]) for batch in batches}


async def forecast(
    tx: db.Connection,
    tenant_id: str,
    batch_id: str,
    *,
    on: date | None = None,
    target_kg: float | None = None,
) -> Forecast | None:
    """The forecast, with the rights of the caller; None if there is no such batch."""
    known = (await weights(tx, tenant_id, [batch_id])).get(batch_id)
    return describe(known, on=on, target_kg=target_kg) if known else None


def describe(known: Weights, *, on: date | None = None, target_kg: float | None = None) -> Forecast:
    """Pure: the answer from what was weighed."""
    batch = known.batch
    on = on or batch.target_on or batch.today
    target_kg = target_kg or batch.target_weight_kg
    try:
        curve, reason = known.curve(), None
    except NotEnoughDataError as error:
        curve, reason = None, str(error)
    return Forecast(
        batch_id=batch.batch_id,
        method=curve.method if curve else None,
        reason=reason,
        weighed_days=len(known.days),
        last_weighed_on=max((day.kpi_date for day in known.days), default=None),
        band_pct=80,
        weight=_weight(batch, curve, on, reason),
        target=_target(batch, curve, target_kg, reason) if target_kg else None,
    )


def path(known: Weights, *, until: date) -> list[tuple[date, Estimate]]:
    """Pure: the expected weight of each day from the last weighed one on, as far as it is known."""
    points: list[tuple[date, Estimate]] = []
    try:
        curve = known.curve()
        for age_days in range(curve.last_age_days, known.batch.age(until) + 1):
            on = known.batch.day(age_days)
            known.batch.check_there(on)
            points.append((on, curve.at(age_days)))
    except NotEnoughDataError:
        # The rest cannot be said.
        return points
    return points


def _weight(batch: Batch, curve: Curve | None, on: date, reason: str | None) -> ExpectedWeight:
    age_days = batch.age(on)
    if curve is None:
        return ExpectedWeight(on=on, age_days=age_days, reason=reason)
    try:
        batch.check_there(on)
        estimate = curve.at(age_days)
    except NotEnoughDataError as error:
        return ExpectedWeight(on=on, age_days=age_days, reason=str(error))
    return ExpectedWeight(
        on=on,
        age_days=age_days,
        weight_kg=estimate.kg,
        low_kg=estimate.low_kg,
        high_kg=estimate.high_kg,
    )


def _target(batch: Batch, curve: Curve | None, target_kg: float, reason: str | None) -> TargetDay:
    if curve is None:
        return TargetDay(target_kg=target_kg, reason=reason)
    try:
        arrival = curve.reach(target_kg)
        batch.check_there(batch.day(arrival.age_days))
    except NotEnoughDataError as error:
        return TargetDay(target_kg=target_kg, reason=str(error))
    latest = arrival.latest_age_days
    return TargetDay(
        target_kg=target_kg,
        reached_on=batch.day(arrival.age_days),
        earliest_on=batch.day(arrival.earliest_age_days),
        latest_on=None if latest is None else batch.day(latest),
    )

"""What a batch will weigh: its growth curve asked about a day and about its target weight."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import Field

from farmiq import api
from farmiq.api import route
from farmiq.cloud.identity import sign_in
from farmiq.cloud.identity.people import Company, People, with_retries
from farmiq.farm import growth
from farmiq.farm.growth import Curve, DailyMean, NotEnoughDataError
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError

FORECAST = "/api/v1/batches/{batch_id}/forecast"
# The newest weighed days that a curve goes through.
MAX_DAYS = 200


class ForecastFilter(api.Filter):
    on: Annotated[
        api.Day | None,
        Field(description="The day of the expected weight; else the batch's target date or today."),
    ] = None
    target_kg: Annotated[
        float | None, Field(gt=0, le=10_000, description="Else the batch's target weight.")
    ] = None
    company: Company = None


class ExpectedWeight(api.Model):
    """The mean weight on a day with its band, or the reason why nobody can say."""

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
    age_at_placing_days: int
    closed_on: date | None
    target_weight_kg: float | None
    target_on: date | None
    today: date

    def age(self, on: date) -> int:
        return self.age_at_placing_days + (on - self.placed_on).days

    def day(self, age_days: int) -> date:
        return self.placed_on + timedelta(days=age_days - self.age_at_placing_days)

    def check_there(self, on: date) -> None:
        """Raises NotEnoughDataError for a day after the animals left."""
        if self.closed_on is not None and on > self.closed_on:
            raise NotEnoughDataError(f"the animals left on {self.closed_on}")


async def forecast(
    tx: db.Connection,
    tenant_id: str,
    batch_id: str,
    *,
    on: date | None = None,
    target_kg: float | None = None,
) -> Forecast | None:
    """The forecast as whoever asks may see it; None if there is no such batch."""
    batches = await db.fetch_as(
        tx,
        Batch,
        """
        select b.batch_id, b.placed_on, b.age_at_placing_days, b.closed_on, b.target_weight_kg,
          b.target_on, fn_farm_date(b.tenant_id, b.farm_id, fn_now()) as today
        from batches b where b.tenant_id = %s and b.batch_id = %s
        """,
        (tenant_id, batch_id),
    )
    if not batches:
        return None
    weighed = await db.fetch_all(
        tx,
        """
        select kpi_date, max(value) filter (where kpi_type = 'weight_mean'),
          max(source_event_count) filter (where kpi_type = 'weight_mean'),
          max(value) filter (where kpi_type = 'weight_cv')
        from kpi_daily
        where tenant_id = %s and batch_id = %s and kpi_type in ('weight_mean', 'weight_cv')
          and value is not null
        group by kpi_date order by kpi_date desc limit %s
        """,
        tenant_id,
        batch_id,
        MAX_DAYS,
    )
    return describe(batches[0], weighed, on=on, target_kg=target_kg)


def describe(
    batch: Batch,
    weighed: Sequence[tuple[date, float, int, float | None]],
    *,
    on: date | None,
    target_kg: float | None,
) -> Forecast:
    """Pure: the answer from days with their mean, count and coefficient of variation."""
    on = on or batch.target_on or batch.today
    target_kg = target_kg or batch.target_weight_kg
    days = [
        DailyMean(batch.age(day), mean, count, None if cv is None else cv / 100 * mean)
        for day, mean, count, cv in weighed
    ]
    try:
        curve, reason = growth.fit(days), None
    except NotEnoughDataError as error:
        curve, reason = None, str(error)
    return Forecast(
        batch_id=batch.batch_id,
        method=curve.method if curve else None,
        reason=reason,
        weighed_days=len(weighed),
        last_weighed_on=max((row[0] for row in weighed), default=None),
        band_pct=80,
        weight=_weight(batch, curve, on, reason),
        target=_target(batch, curve, target_kg, reason) if target_kg else None,
    )


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


@dataclass
class ForecastApi(api.Routes):
    sign_ins: sign_in.SignIns

    def __post_init__(self) -> None:
        self.people = People(self.sign_ins)

    def endpoint(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return with_retries(handler)

    @route(
        "GET",
        FORECAST,
        Forecast,
        dependencies=[sign_in.SIGN_IN],
        responses={404: "NOT_FOUND: there is no such batch, or not in the company looked at."},
    )
    async def forecast(
        self, request: Request, batch_id: str, query: Annotated[ForecastFilter, Query()]
    ) -> Any:
        """What a batch will weigh on a day, and when it reaches its target weight."""
        async with self.people.caller(request, query.company) as caller:
            answer = await forecast(
                caller.connection,
                caller.tenant_id,
                batch_id,
                on=query.on,
                target_kg=query.target_kg,
            )
        if answer is None:
            raise HttpError(404, "there is no such batch")
        return answer

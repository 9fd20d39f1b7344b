"""`farmiq kpi forecast`: what a batch will weigh, and when it reaches its target weight."""

from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.cloud.figures.forecast import ExpectedWeight, Forecast, TargetDay


def forecast(
    batch: Annotated[str, typer.Argument(help="batch_id, as `farmiq batch ls` prints it.")],
    *,
    tenant: Annotated[str, typer.Option(help="The company's tenant_id.")],
    on: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"], help="Expected weight on this day; else its target date or today."
        ),
    ] = None,
    target_kg: Annotated[
        float | None, typer.Option(min=0.001, max=10_000, help="Else the batch's target weight.")
    ] = None,
) -> int:
    """Say what a batch will weigh on a day, and when it reaches its target weight.

    From its daily mean weights; the band contains the truth in 80 % of cases. Exit code 3: there is
    not enough data for an answer.
    """
    from farmiq.cloud.figures import forecast as forecasts

    day = on.date() if on else None
    answer = terminal.in_transaction(
        lambda tx: forecasts.forecast(tx, tenant, batch, on=day, target_kg=target_kg),
        terminal.CLOUD,
    )
    if answer is None:
        terminal.fail(f"company {tenant} has no batch {batch}; `farmiq batch ls` lists them")
    terminal.print_result(answer.model_dump(mode="json"), *_lines(answer))
    is_answered = answer.weight.reason is None and (
        answer.target is None or not answer.target.reason
    )
    return 0 if is_answered else 3


def _lines(answer: "Forecast") -> list[str]:
    curve = answer.method or f"none: {answer.reason}"
    lines = [
        f"weighed    {answer.weighed_days} days, last {answer.last_weighed_on or 'never'}",
        f"curve      {curve}",
    ]
    if answer.method is None:
        return lines
    return [*lines, _weight(answer.weight), *([_target(answer.target)] if answer.target else [])]


def _weight(weight: "ExpectedWeight") -> str:
    on = f"{weight.on} (age {weight.age_days} d)"
    if weight.weight_kg is None:
        return f"weight     {on}: not enough data: {weight.reason}"
    band = f"{weight.low_kg:.3f} to {weight.high_kg:.3f}"
    return f"weight     {on}: {weight.weight_kg:.3f} kg ({band})"


def _target(target: "TargetDay") -> str:
    if target.reached_on is None:
        return f"target     {target.target_kg:g} kg: not enough data: {target.reason}"
    band = f"{target.earliest_on} to {_day(target.latest_on)}"
    return f"target     {target.target_kg:g} kg on {target.reached_on} ({band})"


def _day(day: date | None) -> str:
    return "later than the curve goes" if day is None else str(day)

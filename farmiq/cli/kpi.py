"""`farmiq kpi`: daily figures of batches, as the cloud's database has them."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.cloud.figures.forecast import ExpectedWeight, Forecast, TargetDay
    from farmiq.plumbing import db

app = terminal.Group(
    "Daily figures of batches: animals, weights, gains, feed, deaths, climate. Needs "
    "FARMIQ_CLOUD_DB_URL or a running demo.\n\n"
    "docs/integrate/figures.md says how each figure is computed."
)
Tenant = Annotated[str, typer.Option(help="The company's tenant_id.")]


@app.command("ls")
def ls(
    *,
    tenant: Tenant,
    batch: Annotated[str | None, typer.Option(help="Only this batch's.")] = None,
    farm: Annotated[str | None, typer.Option(help="Only this farm's.")] = None,
    barn: Annotated[str | None, typer.Option(help="Only this barn's.")] = None,
    kind: Annotated[
        str | None, typer.Option("--type", help="Only this figure, such as weight_mean.")
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="Not before this date, such as 2026-05-31.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Not after this date.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 100,
    cursor: Annotated[
        str | None, typer.Option(help="Where the page before ended (its next_cursor).")
    ] = None,
) -> None:
    """List figures, newest date first."""
    from farmiq.cloud.analytics.api import DailyFigure, KpiFilter, cut, wanted
    from farmiq.cloud.figures import queries

    given = {"batch": batch, "farm": farm, "barn": barn, "type": kind, "from": begin, "to": end}
    query = terminal.query(KpiFilter, **given, limit=limit, cursor=cursor)
    figures = terminal.in_transaction(
        lambda tx: queries.page(tx, wanted(tenant, query)), terminal.CLOUD
    )
    rows, following = cut(figures, limit)
    terminal.print_cursor_page(
        rows,
        following,
        _cells,
        name="kpis",
        shown=lambda row: DailyFigure(**row).model_dump(mode="json"),
        empty="a batch has figures once it is registered and something of it was recorded",
    )


@app.command("show")
def show(
    batch: Annotated[str, typer.Argument(help="batch_id, as `farmiq batch ls` prints it.")],
    *,
    tenant: Tenant,
) -> None:
    """Show a batch in short: its animals, the latest of each figure, when it may be sold."""
    from farmiq.cloud.analytics.api import BatchSummary
    from farmiq.cloud.figures import queries

    async def read(tx: "db.Connection") -> dict[str, Any] | None:
        return await queries.summary(tx, tenant, batch)

    summary = terminal.in_transaction(read, terminal.CLOUD)
    if summary is None:
        terminal.fail(f"tenant {tenant} has no batch {batch}")
    known = {name: value for name, value in summary.items() if name != "figures"}
    terminal.print_result(
        BatchSummary(**summary).model_dump(mode="json"),
        *terminal.fields(known),
        "",
        *("  ".join(_figure(row)).rstrip() for row in summary["figures"]),
    )


@app.command("forecast")
def forecast(
    batch: Annotated[str, typer.Argument(help="batch_id, as `farmiq batch ls` prints it.")],
    *,
    tenant: Tenant,
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


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return str(row["kpi_date"]), row["batch_id"], *_figure(row)[1:]


def _figure(row: Mapping[str, Any]) -> tuple[str, ...]:
    compared = row["difference"]
    expected = f"{compared:+.4g} to the standard" if compared is not None else ""
    value = f"{row['value']:.4g} {row['unit'] if row['unit'] != '1' else ''}"
    return str(row["kpi_date"]), f"{row['kpi_type']:<17}", f"{value:<16}", expected


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

"""`farmiq kpi`: daily figures of batches, as the cloud's database has them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import kpi_forecast, terminal

if TYPE_CHECKING:
    from farmiq.plumbing import db

app = terminal.Group(
    "Daily figures of batches: animals, weights, gains, feed, deaths, climate. Needs "
    "FARMIQ_CLOUD_DB_URL or a running demo.\n\n"
    "docs/integrate/figures.md says how each figure is computed."
)
Tenant = Annotated[str, typer.Option(help="The company's tenant_id.")]
app.command("forecast")(kpi_forecast.forecast)


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
    from pydantic import ValidationError

    from farmiq.api import problems
    from farmiq.cloud.analytics.api import DailyFigure, KpiFilter, cut, wanted
    from farmiq.cloud.figures import queries

    given = {
        "batch": batch, "farm": farm, "barn": barn, "type": kind, "from": begin, "to": end,
        "limit": str(limit), "cursor": cursor,
    }  # fmt: skip
    try:
        query = KpiFilter.model_validate({name: value for name, value in given.items() if value})
    except ValidationError as error:
        reasons = (f"--{field} {reason}" for field, reason in problems(error))
        terminal.fail("\n".join(reasons), code=2)
    figures = terminal.in_transaction(
        lambda tx: queries.page(tx, wanted(tenant, query)), terminal.CLOUD
    )
    rows, following = cut(figures, limit)
    terminal.print_list(
        rows,
        _cells,
        document={
            "kpis": [DailyFigure(**row).model_dump(mode="json") for row in rows],
            "next_cursor": following,
        },
        more=None if following else 0,
        hint=f"--cursor {following}",
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


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return str(row["kpi_date"]), row["batch_id"], *_figure(row)[1:]


def _figure(row: Mapping[str, Any]) -> tuple[str, ...]:
    compared = row["difference"]
    expected = f"{compared:+.4g} to the standard" if compared is not None else ""
    value = f"{row['value']:.4g} {row['unit'] if row['unit'] != '1' else ''}"
    return str(row["kpi_date"]), f"{row['kpi_type']:<17}", f"{value:<16}", expected

"""`farmiq batch`: the animals of a barn, from the day they are placed to the day they leave."""

from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.plumbing import db

app = terminal.Group(
    "Batches: animals that were placed in a barn together. Needs FARMIQ_CLOUD_DB_URL or a running "
    "demo."
)
BatchId = Annotated[str, typer.Argument(help="batch_id.")]
Tenant = Annotated[str, typer.Option(help="The company's tenant_id.")]
Day = typer.Option(formats=["%Y-%m-%d"], help="A day such as 2026-05-31.")
STATUSES = ("planned", "active", "closed")


@app.command("ls", value_error=2)
def ls(
    *,
    tenant: Tenant,
    farm: Annotated[str | None, typer.Option(help="Only this farm's.")] = None,
    barn: Annotated[str | None, typer.Option(help="Only those of a barn of this name.")] = None,
    status: Annotated[str | None, typer.Option(help="planned, active or closed.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
) -> None:
    """List batches in the order of their ids, with what has become of them by their farm's days."""
    from farmiq.cloud.farms import store
    from farmiq.cloud.farms.kinds import BATCHES

    terminal.check_known(status, STATUSES, f"there is no status {status!r}; choose")
    rows = terminal.in_transaction(
        lambda tx: store.page(
            tx,
            BATCHES,
            tenant,
            filters={"farm": farm, "barn": barn, "status": status},
            limit=limit + 1,
        ),
        terminal.CLOUD,
    )
    terminal.print_page(
        rows,
        limit,
        lambda row: (
            row["batch_id"],
            row["status"],
            f"{row['farm_id']}/{row['barn_id']}",
            f"{row['placed_count']:,} {row['species']}",
            f"{row['placed_on']} to {row['closed_on'] or '…'}",
        ),
        empty=f"`farmiq batch add BATCH --tenant {tenant} …` adds one",
    )


@app.command("show")
def show(batch_id: BatchId, *, tenant: Tenant) -> None:
    """Say everything about one batch."""
    row = terminal.in_transaction(lambda tx: _find(tx, tenant, batch_id), terminal.CLOUD)
    terminal.print_result(row, *terminal.fields(row))


@app.command("add", value_error=2)
def add(
    batch_id: BatchId,
    *,
    tenant: Tenant,
    farm: Annotated[str, typer.Option(help="farm_id, as in the devices' topics.")],
    barn: Annotated[str, typer.Option(help="barn_id, as in the devices' topics.")],
    species: Annotated[str, typer.Option(help="Such as broiler, layer, pig.")],
    count: Annotated[int, typer.Option(help="How many animals were placed.")],
    placed_on: Annotated[datetime, Day],
    breed: Annotated[str | None, typer.Option(help="As in the breed standards.")] = None,
    sex: Annotated[str, typer.Option(help="female, male or mixed.")] = "mixed",
    age_days: Annotated[
        int | None, typer.Option(help="How old they were when placed, if that is known.")
    ] = None,
    target_weight_kg: Annotated[float | None, typer.Option(help="Weight to reach.")] = None,
    target_on: Annotated[datetime | None, Day] = None,
) -> None:
    """Add a batch to a barn in which no other is at that time."""
    import msgspec

    from farmiq.cloud.farms.kinds import Batch

    given = {
        "batch_id": batch_id, "farm_id": farm, "barn_id": barn, "species": species, "breed": breed,
        "sex": sex, "placed_count": count, "placed_on": placed_on.date(),
        "age_at_placing_days": age_days, "target_weight_kg": target_weight_kg,
        "target_on": target_on.date() if target_on else None,
    }  # fmt: skip
    try:
        batch = msgspec.convert(given, Batch)
    except msgspec.ValidationError as error:
        terminal.fail(str(error), code=2)

    async def once(tx: "db.Connection") -> dict[str, Any]:
        from farmiq.cloud.farms import store
        from farmiq.cloud.farms.kinds import BATCHES

        if await store.find(tx, BATCHES, tenant, {"batch_id": batch_id}):
            terminal.fail(f"there is a batch {batch_id!r} already: `farmiq batch show` shows it")
        return await _save(tx, tenant, batch)

    row = terminal.in_transaction(once, terminal.CLOUD)
    terminal.print_result(
        row, f"added {batch_id}: {row['placed_count']:,} {species} in {farm}/{barn}"
    )


@app.command("close", value_error=2)
def close(
    batch_id: BatchId,
    *,
    tenant: Tenant,
    on: Annotated[datetime | None, Day] = None,
) -> None:
    """Say on which day the last animals left; without --on it is today at the farm."""
    import msgspec

    from farmiq.cloud.farms.kinds import BATCHES, Batch

    async def once(tx: "db.Connection") -> dict[str, Any]:
        row = await _find(tx, tenant, batch_id)
        day: date = on.date() if on else await _today(tx, tenant, row["farm_id"])
        given = {name: row[name] for name in BATCHES.columns}
        try:
            batch = msgspec.convert({**given, "closed_on": day}, Batch)
        except msgspec.ValidationError as error:
            terminal.fail(str(error), code=2)
        return await _save(tx, tenant, batch)

    row = terminal.in_transaction(once, terminal.CLOUD)
    terminal.print_result(
        row, f"{batch_id} was in its barn until {row['closed_on']}, that day included"
    )


async def _find(tx: "db.Connection", tenant: str, batch_id: str) -> dict[str, Any]:
    from farmiq.cloud.farms import store
    from farmiq.cloud.farms.kinds import BATCHES

    row = await store.find(tx, BATCHES, tenant, {"batch_id": batch_id})
    if row is None:
        terminal.fail(f"{tenant} has no batch {batch_id!r}; `farmiq batch ls` lists them")
    return row


async def _save(tx: "db.Connection", tenant: str, batch: Any) -> dict[str, Any]:
    from farmiq.cloud.farms import store
    from farmiq.cloud.farms.kinds import BATCHES

    try:
        await store.save(tx, BATCHES, tenant, [batch], actor=terminal.actor())
    except store.RejectedError as error:
        terminal.fail(f"{error}; nothing was changed")
    return await _find(tx, tenant, batch.batch_id)


async def _today(tx: "db.Connection", tenant: str, farm: str) -> date:
    from farmiq.plumbing import db

    day: date = await db.fetch_value(tx, "select fn_farm_date(%s, %s, fn_now())", tenant, farm)
    return day

"""`farmiq feed`: lots received, feed taken in, and what is left, in the cloud."""

import math
from typing import Annotated, Any

import typer

from farmiq.cli import entries, terminal

app = terminal.Group(
    "Feed in the cloud: lots received, intakes, and the stock that follows from them. Needs "
    "FARMIQ_CLOUD_DB_URL or a running demo.\n\n"
    "A lot or an intake is corrected by a new one with --replaces; see docs/operate/feed.md."
)
Lot = Annotated[str | None, typer.Option(help="feed_lot_id.")]
OnlyLot = Annotated[str | None, typer.Option("--lot", help="Only this lot.")]
Silo = Annotated[str | None, typer.Option(help="device_id of the silo.")]


def _kilograms(kg: float) -> float:
    if not 0 <= kg < math.inf:
        raise typer.BadParameter(f"{kg:g} is no weight: give kilograms, 0 or more")
    return kg


Kg = Annotated[float, typer.Argument(help="Kilograms.", callback=_kilograms)]


@app.command("ls")
def ls(
    *,
    tenant: entries.Tenant,
    farm: entries.OnlyFarm = None,
    barn: entries.OnlyBarn = None,
    batch: entries.OnlyBatch = None,
    lot: OnlyLot = None,
    limit: entries.Limit = 50,
    cursor: entries.Cursor = None,
) -> None:
    """List intakes, newest first; those that another one replaces say so."""
    from farmiq.cloud.feed import store
    from farmiq.cloud.feed.api import IntakeFilter

    wanted = terminal.query(
        IntakeFilter, farm=farm, barn=barn, batch=batch, lot=lot, limit=limit, cursor=cursor
    ).page()
    rows = terminal.in_transaction(lambda tx: store.intakes(tx, tenant, wanted), terminal.CLOUD)
    empty = "`farmiq feed take` adds one"
    entries.print_page(rows, "intakes", limit, _cells, columns=store.INTAKE, empty=empty)


@app.command("lots")
def lots(
    *,
    tenant: entries.Tenant,
    farm: entries.OnlyFarm = None,
    barn: entries.OnlyBarn = None,
    lot: OnlyLot = None,
    limit: entries.Limit = 50,
    cursor: entries.Cursor = None,
) -> None:
    """List lots received, newest first; those that another one replaces say so."""
    from farmiq.cloud.feed import store
    from farmiq.cloud.feed.api import LotFilter

    given = {"farm": farm, "barn": barn, "lot": lot, "limit": limit, "cursor": cursor}
    wanted = terminal.query(LotFilter, **given).page()
    rows = terminal.in_transaction(lambda tx: store.lots(tx, tenant, wanted), terminal.CLOUD)
    empty = "`farmiq feed receive` adds one"
    entries.print_page(rows, "lots", limit, _cells, columns=store.LOT, empty=empty)


@app.command("stock")
def stock(
    *,
    tenant: entries.Tenant,
    by: Annotated[str, typer.Option(help="lot, silo or barn.")] = "lot",
    farm: entries.OnlyFarm = None,
    barn: entries.OnlyBarn = None,
) -> None:
    """Say what is left of each lot, silo or barn, and for how many days."""
    from farmiq.cloud.feed import store

    terminal.check_known(by, ("lot", "silo", "barn"), f"--by {by!r} is none of")
    rows = terminal.in_transaction(
        lambda tx: store.stock(tx, tenant, by=by, farm=farm, barn=barn), terminal.CLOUD
    )
    terminal.print_list(rows, _left, empty="nothing was received or taken in")


@app.command("receive", context_settings=entries.NUMBERS)
def receive(
    lot: Annotated[str, typer.Argument(help="feed_lot_id.")],
    kg: Kg,
    *,
    tenant: entries.Tenant,
    farm: entries.Farm,
    barn: entries.Barn,
    product: Annotated[str | None, typer.Option(help="feed_product_id.")] = None,
    silo: Silo = None,
    at: entries.At = None,
    replaces: entries.Replaces = None,
    key: entries.Key = None,
) -> None:
    """Enter a lot that was delivered."""
    from farmiq.cloud.feed import store
    from farmiq.farm.postings import LotPosted

    raw = entries.body(
        at, feed_lot_id=lot, quantity_kg=kg, farm_id=farm, barn_id=barn, device_id=silo,
        feed_product_id=product, replaces=replaces,
    )  # fmt: skip
    _post(LotPosted, raw, tenant, key, store.LOT)


@app.command("take", context_settings=entries.NUMBERS)
def take(
    kg: Kg,
    *,
    tenant: entries.Tenant,
    farm: entries.Farm,
    barn: entries.Barn,
    lot: Lot = None,
    silo: Silo = None,
    source: Annotated[str, typer.Option(help="MANUAL, SILO_AUTO or IMPORT.")] = "MANUAL",
    batch: entries.Batch = None,
    at: entries.At = None,
    replaces: entries.Replaces = None,
    key: entries.Key = None,
) -> None:
    """Enter feed that was taken in."""
    from farmiq.cloud.feed import store
    from farmiq.farm.postings import IntakePosted

    raw = entries.body(
        at, quantity_kg=kg, farm_id=farm, barn_id=barn, feed_lot_id=lot, device_id=silo,
        source=source, batch_id=batch, replaces=replaces,
    )  # fmt: skip
    _post(IntakePosted, raw, tenant, key, store.INTAKE)


def _post(kind: type[Any], raw: bytes, tenant: str, key: str | None, columns: Any) -> None:
    from farmiq.cloud import posting
    from farmiq.farm import postings
    from farmiq.plumbing import ids

    how: dict[str, Any] = {
        "by": terminal.actor(),
        "key": key or str(ids.new()),
        "trace_id": f"cli-{ids.new()}",
    }
    event = entries.post(
        kind,
        raw,
        lambda tx, content: posting.accept(tx, content, raw, tenant_id=tenant, **how),
        terminal.CLOUD,
    )
    shown = postings.shown(event, columns)
    terminal.print_result(shown, "  ".join(_cells(shown)))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    replaced = f"(replaced by {row['replaced_by']})" if row["replaced_by"] else ""
    return (
        str(row["event_id"]),
        terminal.local(row["occurred_at"]),
        f"{row['farm_id']}/{row['barn_id']}",
        row["feed_lot_id"] or "-",
        f"{row['quantity_kg']:g} kg",
        f"{row.get('source') or ''} {replaced}".strip(),
    )


def _left(row: dict[str, Any]) -> tuple[str, ...]:
    days = "" if row["days_left"] is None else f"{row['days_left']:.1f} days"
    return (
        f"{row['farm_id']}/{row['barn_id']}",
        row["silo_id"] or "-",
        row["feed_lot_id"] or "-",
        f"{row['stock_kg']:g} kg left of {row['received_kg']:g}",
        days,
    )

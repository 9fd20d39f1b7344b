"""`farmiq record`: what people write down about barns, in the cloud or at an edge."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from farmiq.cli import entries, terminal

app = terminal.Group(
    "Barn records: deaths, culls, head counts, water, treatments, notes. In the cloud they need "
    "FARMIQ_CLOUD_DB_URL, with --edge FARMIQ_EDGE_DB_URL, or a running demo.\n\n"
    "A record is corrected by a new one with --replaces; see docs/operate/records.md."
)
AtEdge = Annotated[bool, typer.Option("--edge", help="At this edge, not in the cloud.")]


@app.command("add", context_settings=entries.NUMBERS)
def add(
    record_type: Annotated[str, typer.Argument(help="mortality, cull, head_count, treatment, …")],
    value: Annotated[str, typer.Argument(help="A number; the text of a note, welfare or housing.")],
    *,
    tenant: entries.Tenant,
    farm: entries.Farm,
    barn: entries.Barn,
    unit: Annotated[str | None, typer.Option(help="Of the value; water: l or m3.")] = None,
    product: Annotated[str | None, typer.Option(help="Of a treatment or vaccination.")] = None,
    dose: Annotated[float | None, typer.Option(help="For each animal.")] = None,
    dose_unit: Annotated[str | None, typer.Option(help="Such as ml.")] = None,
    withdrawal_days: Annotated[
        int | None, typer.Option(help="Not to be sold for so many days.")
    ] = None,
    batch: entries.Batch = None,
    at: entries.At = None,
    replaces: entries.Replaces = None,
    key: entries.Key = None,
    edge: AtEdge = False,
) -> None:
    """Write something down; it counts as if it were posted over HTTP."""
    from farmiq.cloud import posting
    from farmiq.edge import posting as edge_posting
    from farmiq.edge.barn import api as edge_api
    from farmiq.farm import postings
    from farmiq.messages.barn import TEXTS
    from farmiq.plumbing import ids

    raw = entries.body(
        at,
        record_type=record_type, value=value if record_type in TEXTS else _number(value),
        farm_id=farm, barn_id=barn, unit=unit, product=product, dose=dose, dose_unit=dose_unit,
        withdrawal_days=withdrawal_days, batch_id=batch, replaces=replaces,
        tenant_id=tenant if edge else None,
    )  # fmt: skip
    how: dict[str, Any] = {
        "by": terminal.actor(),
        "key": key or str(ids.new()),
        "trace_id": f"cli-{ids.new()}",
    }
    if edge:
        event = entries.post(
            edge_api.EdgeRecordPosted,
            raw,
            lambda tx, content: edge_posting.accept(tx, edge_api.KIND, content, raw, **how),
            terminal.EDGE,
        )
    else:
        event = entries.post(
            postings.RecordPosted,
            raw,
            lambda tx, content: posting.accept(tx, content, raw, tenant_id=tenant, **how),
            terminal.CLOUD,
        )
    shown = postings.shown(event, _columns(edge=edge))
    terminal.print_result(shown, f"added {shown['record_type']} record {shown['record_id']}")


@app.command("ls")
def ls(
    *,
    tenant: entries.Tenant,
    farm: entries.OnlyFarm = None,
    barn: entries.OnlyBarn = None,
    batch: entries.OnlyBatch = None,
    record_type: Annotated[str | None, typer.Option("--type", help="Only of this type.")] = None,
    limit: entries.Limit = 50,
    cursor: entries.Cursor = None,
    edge: AtEdge = False,
) -> None:
    """List records, newest first; those that another one replaces say so."""
    from farmiq.cloud.barn import api as cloud_api
    from farmiq.cloud.barn import store as cloud_store
    from farmiq.edge.barn import api as edge_api
    from farmiq.edge.barn import store as edge_store

    given = {"farm": farm, "barn": barn, "batch": batch, "type": record_type, "limit": limit}
    kind = edge_api.EdgeRecordFilter if edge else cloud_api.RecordFilter
    wanted = terminal.query(kind, **given, cursor=cursor).page()
    stored = terminal.in_transaction(
        (lambda tx: edge_store.page(tx, {**wanted, "tenant": tenant}))
        if edge
        else (lambda tx: cloud_store.page(tx, tenant, wanted)),
        terminal.EDGE if edge else terminal.CLOUD,
    )
    empty = "`farmiq record add` adds one"
    columns = _columns(edge=edge)
    entries.print_page(stored, "records", limit, _cells, columns=columns, empty=empty)


def _columns(*, edge: bool) -> tuple[str, ...]:
    from farmiq.cloud.barn import store as cloud_store
    from farmiq.edge.barn import store as edge_store

    return edge_store.COLUMNS if edge else cloud_store.COLUMNS


def _number(text: str) -> float | str:
    """What is no number is refused with the reason that a client gets."""
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    value = row["value"] if isinstance(row["value"], str) else f"{row['value']:g}"
    replaced = f"(replaced by {row['replaced_by']})" if row["replaced_by"] else ""
    return (
        row["record_id"],
        terminal.local(row["occurred_at"]),
        f"{row['farm_id']}/{row['barn_id']}",
        row["batch_id"] or "-",
        row["record_type"],
        f"{value} {row['unit'] or ''}".strip(),
        f"{row['product'] or ''} {replaced}".strip(),
    )

"""`farmiq losses`: what was dropped on purpose, as the loss ledger has it."""

from typing import Annotated, Any

import typer

from farmiq.cli import terminal

app = terminal.Group(
    "The loss ledger of this edge: what a device dropped because its buffer was full, and what "
    "was discarded here. Anything missing that is not on it is a fault. They need "
    "FARMIQ_EDGE_DB_URL or a running demo."
)


@app.command("ls")
def ls(
    *,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="Only this device's.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 50,
) -> int:
    """List what was dropped, newest first, and how much in all. Exit code 3: there is something."""
    from farmiq.edge import losses

    async def look(tx: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return (
            await losses.latest(
                tx, before=None, limit=limit + 1, tenant_id=tenant, device_id=device
            ),
            await losses.totals(tx, tenant_id=tenant, device_id=device),
        )

    entries, totals = terminal.in_transaction(look)
    rows = terminal.print_page(
        entries,
        limit,
        _cells,
        document={"losses": entries[:limit], "totals": totals},
    )
    for total in () if terminal.wants_json() else totals:
        typer.echo(f"in all {total['count']:,} {total['class']} of {total['tenant_id']}")
    return 3 if rows else 0


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    place = (row["tenant_id"], row["farm_id"], row["barn_id"], row["device_id"])
    numbered = f"seq {row['first_seq']} to {row['last_seq']}" if row["last_seq"] else ""
    return (
        terminal.local(row["recorded_at"]),
        f"{row['count']:>7,}",
        row["class"],
        "/".join(part or "-" for part in place),
        f"{row['reason']}  {numbered}".rstrip(),
    )

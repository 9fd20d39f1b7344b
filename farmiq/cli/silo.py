"""`farmiq silo`: which silos' weights are taken for feed intakes, and from which change on."""

from datetime import datetime
from typing import Annotated, Any

import typer

from farmiq.cli import terminal

app = terminal.Group(
    "Silos whose weight (metric silo.weight) tells of feed taken in. They need "
    "FARMIQ_EDGE_DB_URL or a running demo.\n\n"
    "A fall of --noise-kg is an intake, a rise of --refill-kg a refill; "
    "see docs/operate/feed.md."
)


@app.command("set")
def set_(
    tenant: Annotated[str, typer.Argument(help="tenant_id of the silo's topic.")],
    device: Annotated[str, typer.Argument(help="device_id of the silo's topic.")],
    *,
    derive: Annotated[
        bool | None,
        typer.Option("--derive/--no-derive", help="Take its weight for intakes, or do not."),
    ] = None,
    noise_kg: Annotated[
        float | None, typer.Option(help="Less than this is noise; more than the scale wavers.")
    ] = None,
    refill_kg: Annotated[
        float | None, typer.Option(help="A rise of this is a refill; less than a delivery.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(help="Derive from readings since then (UTC); default: from now on."),
    ] = None,
) -> None:
    """Set what is given and keep the rest; a silo that is new begins with noise 10, refill 200.

    Switching the derivation on begins afresh: what went out while it was off is not counted.
    """
    import asyncio
    from datetime import UTC

    from farmiq.edge.feed import settings

    url = terminal.needed(terminal.EDGE)
    try:
        now = asyncio.run(
            settings.change(
                url,
                tenant_id=tenant,
                device_id=device,
                derive_intake=derive,
                noise_kg=noise_kg,
                refill_kg=refill_kg,
                since=since.replace(tzinfo=UTC) if since else None,
            )
        )
    except ValueError as error:
        terminal.fail(str(error), code=2)
    except LookupError as error:
        terminal.fail(f"{error.args[0]}; `farmiq device add` registers it")
    terminal.print_result(now, "  ".join(_cells(now)))


@app.command("ls")
def ls() -> None:
    """List the silos, and how far each was derived from."""
    import asyncio

    from farmiq.edge.feed import settings

    url = terminal.needed(terminal.EDGE)
    rows = asyncio.run(settings.listed(url))
    empty = "`farmiq silo set <tenant> <device> --derive` adds one"
    terminal.print_list(rows, _cells, empty=empty)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    since = terminal.local(row["derive_since"]) if row["derive_intake"] else ""
    limits = f"noise {row['noise_kg']:g} kg, refill {row['refill_kg']:g} kg"
    derives = f"derives since {since}" if since else "does not derive"
    return f"{row['tenant_id']}/{row['device_id']}", limits, derives

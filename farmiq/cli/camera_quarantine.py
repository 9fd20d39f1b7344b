"""`farmiq camera-gateway quarantine`: what cameras sent and could not be taken."""

from typing import Annotated, Any
from uuid import UUID

import typer

from farmiq.cli import held, terminal
from farmiq.cli.held import All, DryRun, Id, Ids, Limit, OlderThan, Reason
from farmiq.cli.terminal import AsJson, StackName

app = typer.Typer(
    invoke_without_command=True,
    help=(
        "What cameras sent and could not be taken, kept with every reason. Look (`ls`, `show`), "
        "mend what was wrong (register the camera, its site, its dialect), then `redrive`; "
        "`discard` gives it up for good. More in docs/operate/cameras.md."
    ),
)

Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="format, unknown, unassigned, dialect, security, conflict, limits or database.",
    ),
]
Mac = Annotated[str | None, typer.Option("--mac", help="Of this camera.")]
DATABASE = "FARMIQ_CLOUD_DB_URL"
CHOICE = "--kind, --mac, --reason"
_EMPTY = "no messages of cameras in quarantine"


@app.callback()
def default(ctx: typer.Context, *, stack: StackName = None, as_json: AsJson = False) -> None:
    """Without a further word it lists the newest."""
    if ctx.invoked_subcommand is None:
        ls(stack=stack, as_json=as_json)


@app.command("ls")
def ls(
    *,
    kind: Kind = None,
    mac: Mac = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Cameras that nobody registered, one line each.")
    ] = False,
    limit: Limit = 50,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """List the newest messages and how many there are by kind. Exit code 3: there are some."""
    from farmiq.cloud.camera import registry
    from farmiq.cloud.camera.gateway import quarantine

    which = _which(None, kind, mac, reason, older_than)

    async def look(pool: Any) -> tuple[list[Any], list[dict[str, Any]]]:
        async with pool.connection() as connection:
            if unknown:
                return await registry.unknown_cameras(connection, limit=limit), []
            return (
                await quarantine.newest(connection, which, most=limit),
                await quarantine.counts(connection, which),
            )

    rows, counts = held.on_a_pool(stack, DATABASE, look)
    if unknown:
        terminal.print_list(rows, _stranger, as_json=as_json)
    else:
        held.print_rows(rows, counts, as_json=as_json)
    raise typer.Exit(3 if rows else 0)


@app.command("show")
def show(quarantine_id: Id, *, stack: StackName = None, as_json: AsJson = False) -> None:
    """Show one message: topic, times, every reason, and its bytes."""
    from farmiq.cloud.camera.gateway import quarantine

    async def look(pool: Any) -> Any:
        async with pool.connection() as connection:
            return await quarantine.find(connection, quarantine_id)

    found = held.on_a_pool(stack, DATABASE, look)
    if found is None:
        terminal.fail(f"there is no message {quarantine_id}; `… quarantine ls` shows them")
    held.print_one(*found, as_json=as_json)


@app.command("redrive")
def redrive(
    ids: Ids = None,
    *,
    kind: Kind = None,
    mac: Mac = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    everything: All = False,
    limit: Limit = 10_000,
    dry_run: DryRun = False,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Send messages through the gateway's door once more, in the order in which they came.

    What is taken leaves quarantine together with its effect; what is refused again stays, with the
    reasons of today. A HELLO of then says nothing of now: it only leaves. Exit code 3: some are
    still refused.
    """
    from farmiq.cloud.camera.gateway import quarantine as work
    from farmiq.cloud.camera.gateway.chunks import Pace

    which = _which(ids, kind, mac, reason, older_than)
    held.careful(which, everything=everything, options=CHOICE)
    result = held.on_a_pool(
        stack,
        DATABASE,
        lambda pool: work.redrive(
            pool, which, pace=Pace(), actor=terminal.actor(), most=limit, dry_run=dry_run
        ),
    )
    cut = f"; {result.truncated} cannot be: their bytes were cut short" * bool(result.truncated)
    if as_json:
        terminal.print_json(held.plain([result])[0])
    elif not result.chosen and not ids:
        typer.echo(_EMPTY)
    elif dry_run:
        typer.echo(f"{result.chosen - result.truncated} of {result.chosen} would be tried{cut}")
    else:
        typer.echo(f"{result.accepted} accepted, {result.refused} refused again{cut}")
    if ids and not result.chosen:
        terminal.fail("no such message waits in quarantine; `… quarantine ls` shows the ids")
    raise typer.Exit(3 if result.refused + result.truncated else 0)


@app.command("discard")
def discard(
    ids: Ids = None,
    *,
    kind: Kind = None,
    mac: Mac = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    everything: All = False,
    limit: Limit = 10_000,
    dry_run: DryRun = False,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Give messages up for good; their bytes and who did it are kept among dead letters' deeds."""
    from farmiq.cloud.camera.gateway import quarantine as work

    which = _which(ids, kind, mac, reason, older_than)
    held.careful(which, everything=everything, options=CHOICE)
    result = held.on_a_pool(
        stack,
        DATABASE,
        lambda pool: work.discard(pool, which, actor=terminal.actor(), most=limit, dry_run=dry_run),
    )
    held.print_discarded(result, dry_run=dry_run, as_json=as_json)


def _which(
    ids: list[UUID] | None,
    kind: str | None,
    mac: str | None,
    reason: str | None,
    older_than: float | None,
) -> Any:
    from farmiq.cloud.camera.gateway import quarantine
    from farmiq.cloud.camera.gateway.wire import REJECTION_KINDS
    from farmiq.cloud.camera.mac import normal

    held.known_kind(kind, REJECTION_KINDS)
    try:
        address = normal(mac) if mac else None
    except ValueError as error:
        terminal.fail(f"{mac!r} {error}", code=2)
    return quarantine.Which(tuple(ids) if ids else None, kind, address, reason, older_than)


def _stranger(row: dict[str, Any]) -> tuple[str, ...]:
    first, last = row["first_received_at"], row["last_received_at"]
    return (
        row["mac"],
        f"{row['messages']:,} messages",
        f"{terminal.local(first)} to {terminal.local(last)}",
        row["topic"][:120],
    )

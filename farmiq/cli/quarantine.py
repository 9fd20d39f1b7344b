"""`farmiq quarantine`: messages that could not be taken at the edge, and what becomes of them."""

from typing import Annotated, Any
from uuid import UUID

import typer

from farmiq.cli import held, terminal
from farmiq.cli.held import All, DryRun, Id, Ids, Limit, OlderThan, Reason
from farmiq.cli.terminal import AsJson, StackName

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Messages that could not be taken, kept with every reason. Look (`ls`, `show`), mend what "
        "was wrong (the device, the registry, this version), then `redrive`; `discard` gives them "
        "up for good. docs/operate/quarantine.md tells more. "
        "They need FARMIQ_EDGE_DB_URL or a running demo."
    ),
)

Kind = Annotated[
    str | None,
    typer.Option("--kind", help="security, conflict, format, not_recorded, database or size."),
]
Topic = Annotated[str | None, typer.Option("--topic", help="How the topic begins.")]
NewerThan = Annotated[
    float | None, typer.Option("--newer-than", min=0, help="Received in the last so many hours.")
]

DATABASE = "FARMIQ_EDGE_DB_URL"
CHOICE = "--kind, --reason, --topic"


@app.command("ls")
def ls(
    *,
    kind: Kind = None,
    reason: Reason = None,
    topic: Topic = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = 50,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """List the newest messages and how many there are by reason. Exit code 3: there are some."""
    from farmiq.edge.ingress import quarantine

    which = _which(None, kind, reason, topic, older_than, newer_than)

    async def look(pool: Any) -> tuple[list[Any], list[dict[str, Any]]]:
        async with pool.connection() as connection:
            return (
                await quarantine.page(connection, which, before=None, most=limit),
                await quarantine.counts(connection, which),
            )

    rows, counts = held.on_a_pool(stack, DATABASE, look)
    held.print_rows(rows, counts, as_json=as_json)
    raise typer.Exit(3 if rows else 0)


@app.command("show")
def show(quarantine_id: Id, *, stack: StackName = None, as_json: AsJson = False) -> None:
    """Show one message: topic, times, every reason, and its bytes."""
    from farmiq.edge.ingress import quarantine

    async def look(pool: Any) -> Any:
        async with pool.connection() as connection:
            return await quarantine.find(connection, quarantine_id)

    found = held.on_a_pool(stack, DATABASE, look)
    if found is None:
        terminal.fail(f"there is no message {quarantine_id}; `farmiq quarantine ls` shows them")
    held.print_one(*found, as_json=as_json)


@app.command("redrive")
def redrive(
    ids: Ids = None,
    *,
    kind: Kind = None,
    reason: Reason = None,
    topic: Topic = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    everything: All = False,
    limit: Limit = 10_000,
    dry_run: DryRun = False,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Send messages through the door once more, oldest first, as if they had just arrived.

    What is accepted leaves quarantine together with its effect; what is refused again stays, with
    the reasons of today. Each message has its effect once, however often this runs or is killed.
    Exit code 3: some are still refused.
    """
    from farmiq import config, crash
    from farmiq.edge.ingress import redrive as work
    from farmiq.edge.ingress import transaction

    which = _which(ids, kind, reason, topic, older_than, newer_than)
    held.careful(which, everything=everything, options=CHOICE)
    crash.arm(config.crash_at())
    result = held.on_a_pool(
        stack,
        DATABASE,
        lambda pool: work.redrive(
            work.Redriver(pool, transaction.effect, terminal.actor()),
            which,
            most=limit,
            dry_run=dry_run,
        ),
    )
    if as_json:
        terminal.print_json(held.plain([result])[0])
    elif dry_run:
        fit = result.chosen - result.truncated - result.conflicts
        typer.echo(f"{fit} of {result.chosen} would be tried" + _unfit(result))
    else:
        typer.echo(f"{result.accepted} accepted, {result.refused} refused again" + _unfit(result))
    if ids and not result.chosen:
        terminal.fail("no such message waits in quarantine; `farmiq quarantine ls` shows the ids")
    left = result.refused + result.truncated + result.conflicts
    raise typer.Exit(3 if left else 0)


@app.command("discard")
def discard(
    ids: Ids = None,
    *,
    kind: Kind = None,
    reason: Reason = None,
    topic: Topic = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    everything: All = False,
    limit: Limit = 10_000,
    dry_run: DryRun = False,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Give messages up for good, oldest first; they are counted on the loss ledger."""
    from farmiq.edge.ingress import redrive as work

    which = _which(ids, kind, reason, topic, older_than, newer_than)
    held.careful(which, everything=everything, options=CHOICE)
    result = held.on_a_pool(
        stack,
        DATABASE,
        lambda pool: work.discard(
            pool,
            which,
            actor=terminal.actor(),
            reason="discarded by hand",
            most=limit,
            dry_run=dry_run,
        ),
    )
    held.print_discarded(result, dry_run=dry_run, as_json=as_json)


def _which(  # noqa: PLR0917 - what the commands share
    ids: list[UUID] | None,
    kind: str | None,
    reason: str | None,
    topic: str | None,
    older_than: float | None,
    newer_than: float | None,
) -> Any:
    from farmiq.edge.ingress import refusals
    from farmiq.edge.ingress.quarantine import Which

    held.known_kind(kind, refusals.KINDS)
    return Which(tuple(ids) if ids else None, kind, reason, topic, older_than, newer_than)


def _unfit(result: Any) -> str:
    said = ""
    if result.truncated:
        said += f"; {result.truncated} cannot be: their bytes were cut short"
    if result.conflicts:
        said += f"; {result.conflicts} cannot be: their id is taken by another content"
    return said

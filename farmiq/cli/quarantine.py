"""`farmiq quarantine`: messages that could not be taken at the edge, and what becomes of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

import typer

from farmiq.cli import terminal
from farmiq.cli.terminal import AsJson, StackName

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Messages that could not be taken, kept with every reason. Look (`ls`, `show`), mend what "
        "was wrong (the device, the registry, this version), then `redrive`; `discard` gives them "
        "up for good. docs/quarantine.md tells more. "
        "They need FARMIQ_EDGE_DB_URL or a running demo."
    ),
)

Ids = Annotated[list[UUID] | None, typer.Argument(help="Ids as `ls` shows them.")]
Kind = Annotated[
    str | None,
    typer.Option("--kind", help="security, conflict, format, not_recorded, database or size."),
]
Reason = Annotated[str | None, typer.Option("--reason", help="Text that a reason contains.")]
Topic = Annotated[str | None, typer.Option("--topic", help="How the topic begins.")]
OlderThan = Annotated[
    float | None, typer.Option("--older-than", min=0, help="Last received so many hours ago.")
]
NewerThan = Annotated[
    float | None, typer.Option("--newer-than", min=0, help="Received in the last so many hours.")
]
All = Annotated[bool, typer.Option("--all", help="All of them; needed if nothing else chooses.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be.")]


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

    rows, counts = _run(stack, look)
    if as_json:
        from dataclasses import asdict

        terminal.print_json({"rows": [asdict(row) for row in rows], "counts": counts})
    elif not rows:
        typer.echo("no messages in quarantine")
    else:
        _print_rows(rows)
        _print_counts(counts)
    raise typer.Exit(3 if rows else 0)


@app.command("show")
def show(
    quarantine_id: Annotated[UUID, typer.Argument(help="As `ls` shows it.")],
    *,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Show one message: topic, times, every reason, and its bytes."""
    from base64 import b64encode
    from dataclasses import asdict

    from farmiq.edge.ingress import quarantine

    async def look(pool: Any) -> Any:
        async with pool.connection() as connection:
            return await quarantine.find(connection, quarantine_id)

    found = _run(stack, look)
    if found is None:
        terminal.fail(f"there is no message {quarantine_id}; `farmiq quarantine ls` shows them")
    row, raw = found
    if as_json:
        terminal.print_json({**asdict(row), "raw_base64": b64encode(raw).decode()})
        return
    typer.echo(f"topic     {row.topic}")
    typer.echo(f"kind      {row.kind}")
    typer.echo(
        f"received  {row.received_count} times, "
        f"{row.first_received_at:%Y-%m-%d %H:%M:%S} to {row.last_received_at:%Y-%m-%d %H:%M:%S}Z"
    )
    if row.last_redriven_at:
        typer.echo(f"redriven  {row.redriven_count} times, last {row.last_redriven_at:%H:%M:%S}Z")
    for reason in row.reasons:
        typer.echo(f"reason    {reason}")
    cut = ", cut short: it cannot be redriven" if row.truncated else ""
    typer.echo(f"bytes     {row.raw_size_bytes}{cut}\n")
    # Escaped: whatever a stranger sent must not steer this terminal.
    typer.echo(raw.decode("utf-8", "backslashreplace").encode("unicode_escape").decode())


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
    _careful(which, everything=everything)
    crash.arm(config.crash_at())
    result = _run(
        stack,
        lambda pool: work.redrive(
            work.Redriver(pool, transaction.effect, terminal.actor()),
            which,
            most=limit,
            dry_run=dry_run,
        ),
    )
    if as_json:
        _print_result(result)
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
    _careful(which, everything=everything)
    result = _run(
        stack,
        lambda pool: work.discard(
            pool,
            which,
            actor=terminal.actor(),
            reason="discarded by hand",
            most=limit,
            dry_run=dry_run,
        ),
    )
    if as_json:
        _print_result(result)
    else:
        typer.echo(f"{result.chosen} would go" if dry_run else f"{result.gone} discarded")


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

    if kind is not None and kind not in refusals.KINDS:
        terminal.fail(f"{kind!r} is no kind; choose {', '.join(refusals.KINDS)}", code=2)
    return Which(tuple(ids) if ids else None, kind, reason, topic, older_than, newer_than)


def _careful(which: Any, *, everything: bool) -> None:
    if which.everything and not everything:
        terminal.fail("name ids, choose with --kind, --reason, --topic, or say --all", code=2)


def _run(stack: str | None, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """`work` on a pool of the edge's database."""
    import psycopg

    from farmiq.plumbing import db, log

    log.configure("error")
    url = terminal.needed(terminal.environment(stack), "FARMIQ_EDGE_DB_URL")
    psycopg.connect(url, connect_timeout=5).close()  # its own words if it cannot be reached

    async def on_a_pool() -> Any:
        async with db.pool(url, name="farmiq quarantine", most=2) as pool:
            return await work(pool)

    return asyncio.run(on_a_pool())


def _print_rows(rows: list[Any]) -> None:
    for row in rows:
        times = f" ({row.received_count} times)" if row.received_count > 1 else ""
        more = f" and {len(row.reasons) - 1} more" if len(row.reasons) > 1 else ""
        typer.echo(
            f"{row.quarantine_id}  {row.last_received_at:%Y-%m-%d %H:%M}Z  {row.kind:<12} "
            f"{row.topic[:120]}{times}\n    {row.reasons[0]}{more}"
        )


def _print_counts(counts: list[dict[str, Any]]) -> None:
    typer.echo()
    for each in counts:
        typer.echo(f"{each['rows']:>8}  {each['kind']:<12}  {each['reason']}")


def _print_result(result: Any) -> None:
    from dataclasses import asdict

    terminal.print_json(asdict(result))


def _unfit(result: Any) -> str:
    said = ""
    if result.truncated:
        said += f"; {result.truncated} cannot be: their bytes were cut short"
    if result.conflicts:
        said += f"; {result.conflicts} cannot be: their id is taken by another content"
    return said

"""`farmiq camera-gateway quarantine`: what cameras sent and could not be taken."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

import typer

from farmiq.cli import terminal
from farmiq.cli.terminal import AsJson, StackName

app = typer.Typer(
    invoke_without_command=True,
    help=(
        "What cameras sent and could not be taken, kept with every reason. Look (`ls`, `show`), "
        "mend what was wrong (register the camera, its site, its dialect), then `redrive`; "
        "`discard` gives it up for good. More in docs/cameras.md."
    ),
)

Ids = Annotated[list[UUID] | None, typer.Argument(help="Ids as `ls` shows them.")]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="format, unknown, unassigned, dialect, security, conflict, limits or database.",
    ),
]
Mac = Annotated[str | None, typer.Option("--mac", help="Of this camera.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Text that a reason contains.")]
OlderThan = Annotated[
    float | None, typer.Option("--older-than", min=0, help="Last received so many hours ago.")
]
All = Annotated[bool, typer.Option("--all", help="All of them; needed if nothing else chooses.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be.")]
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
    from farmiq.cloud.camera import strangers
    from farmiq.cloud.camera.gateway import quarantine

    which = _which(None, kind, mac, reason, older_than)

    async def look(pool: Any) -> tuple[list[Any], list[dict[str, Any]]]:
        async with pool.connection() as connection:
            if unknown:
                return await strangers.ls(connection, most=limit), []
            return (
                await quarantine.newest(connection, which, most=limit),
                await quarantine.counts(connection, which),
            )

    rows, counts = _run(stack, look)
    if as_json:
        terminal.print_json(rows if unknown else {"rows": _plain(rows), "counts": counts})
    elif not rows:
        typer.echo("no unknown cameras" if unknown else _EMPTY)
    elif unknown:
        _print_strangers(rows)
    else:
        _print_rows(rows, counts)
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

    from farmiq.cloud.camera.gateway import quarantine

    async def look(pool: Any) -> Any:
        async with pool.connection() as connection:
            return await quarantine.find(connection, quarantine_id)

    found = _run(stack, look)
    if found is None:
        terminal.fail(f"there is no message {quarantine_id}; `… quarantine ls` shows them")
    row, raw = found
    if as_json:
        terminal.print_json({**_plain([row])[0], "raw_base64": b64encode(raw).decode()})
        return
    typer.echo(f"topic     {row.topic}\nkind      {row.kind}")
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
    from farmiq.cloud.camera.gateway import redrive as work
    from farmiq.cloud.camera.gateway.chunks import Pace

    which = _which(ids, kind, mac, reason, older_than)
    _careful(which, everything=everything)
    result = _run(
        stack,
        lambda pool: work.redrive(
            pool, which, pace=Pace(), actor=terminal.actor(), most=limit, dry_run=dry_run
        ),
    )
    cut = f"; {result.truncated} cannot be: their bytes were cut short" * bool(result.truncated)
    if as_json:
        _print_result(result)
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
    from farmiq.cloud.camera.gateway import redrive as work

    which = _which(ids, kind, mac, reason, older_than)
    _careful(which, everything=everything)
    result = _run(
        stack,
        lambda pool: work.discard(pool, which, actor=terminal.actor(), most=limit, dry_run=dry_run),
    )
    if as_json:
        _print_result(result)
    else:
        typer.echo(f"{result.chosen} would go" if dry_run else f"{result.gone} discarded")


def _which(
    ids: list[UUID] | None,
    kind: str | None,
    mac: str | None,
    reason: str | None,
    older_than: float | None,
) -> Any:
    from farmiq.cloud.camera.gateway import quarantine
    from farmiq.cloud.camera.mac import normal
    from farmiq.cloud.camera.refusals import KINDS

    if kind is not None and kind not in KINDS:
        terminal.fail(f"{kind!r} is no kind; choose {', '.join(KINDS)}", code=2)
    try:
        address = normal(mac) if mac else None
    except ValueError as error:
        terminal.fail(f"{mac!r} {error}", code=2)
    return quarantine.Which(tuple(ids) if ids else None, kind, address, reason, older_than)


def _careful(which: Any, *, everything: bool) -> None:
    if which.everything and not everything:
        terminal.fail("name ids, choose with --kind, --mac, --reason, or say --all", code=2)


def _run(stack: str | None, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """`work` on a pool of the cloud's database."""
    import psycopg

    from farmiq.plumbing import db, log

    log.configure("error")
    url = terminal.needed(terminal.environment(stack), "FARMIQ_CLOUD_DB_URL")
    psycopg.connect(url, connect_timeout=5).close()  # its own words if it cannot be reached

    async def on_a_pool() -> Any:
        async with db.pool(url, name="farmiq camera-gateway", most=2) as pool:
            return await work(pool)

    return asyncio.run(on_a_pool())


def _plain(rows: list[Any]) -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [asdict(row) for row in rows]


def _print_rows(rows: list[Any], counts: list[dict[str, Any]]) -> None:
    for row in rows:
        times = f" ({row.received_count} times)" if row.received_count > 1 else ""
        more = f" and {len(row.reasons) - 1} more" if len(row.reasons) > 1 else ""
        typer.echo(
            f"{row.quarantine_id}  {row.last_received_at:%Y-%m-%d %H:%M}Z  {row.kind:<10} "
            f"{row.topic[:120]}{times}\n    {row.reasons[0]}{more}"
        )
    typer.echo()
    for each in counts:
        typer.echo(f"{each['rows']:>8}  {each['kind']}")


def _print_strangers(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        first, last = row["first_received_at"], row["last_received_at"]
        typer.echo(
            f"{row['mac']}  {row['messages']:>6} messages  "
            f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}Z  {row['topic'][:120]}"
        )


def _print_result(result: Any) -> None:
    terminal.print_json(_plain([result])[0])

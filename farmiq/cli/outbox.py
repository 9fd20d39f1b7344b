"""`farmiq outbox`: what the cloud is owed, and what is stuck on the way."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from farmiq.cli import terminal
from farmiq.cli.terminal import AsJson, StackName

app = typer.Typer(
    no_args_is_help=True,
    help="Events on their way to the cloud. These need FARMIQ_EDGE_DB_URL or a running demo.\n\n"
    "pending → claimed → sending → acked is the way of an event; what the cloud refused, or what "
    "failed ten times on its own, is in dlq until you redrive or discard it. "
    "docs/operate/outbox.md draws it.",
)

Ids = Annotated[list[UUID] | None, typer.Argument(help="Event ids; or use the options below.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")]
Kind = Annotated[str | None, typer.Option("--type", help="Only this event type.")]
Reason = Annotated[
    str | None, typer.Option("--reason", help="Only with this dlq_reason, as `ls` shows it.")
]
Code = Annotated[
    str | None, typer.Option("--code", help="Only with this last error, such as HTTP_500.")
]
Since = Annotated[
    datetime | None, typer.Option("--from", help="Only those written down at or after this (UTC).")
]
Until = Annotated[
    datetime | None, typer.Option("--to", help="Only those written down before this (UTC).")
]
All = Annotated[bool, typer.Option("--all", help="All there are, up to the limit.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, oldest first.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say which they would be.")]


@app.command()
def stats(*, stack: StackName = None, as_json: AsJson = False) -> None:
    """How delivery goes, per tenant. Exit code 3: something is set aside or a tenant pauses."""
    from dataclasses import asdict

    from farmiq.edge.sync import desk

    async def look(tx: Any) -> tuple[list[desk.TenantStatus], int]:
        return await desk.status(tx), await desk.delivered(tx)

    tenants, delivered = terminal.in_transaction(terminal.environment(stack), look)
    if as_json:
        terminal.print_json(
            {"delivered_and_kept": delivered, "tenants": [asdict(each) for each in tenants]}
        )
    else:
        typer.echo(f"{delivered:,} delivered events are still kept")
    for each in [] if as_json else tenants:
        typer.echo(
            f"{each.tenant_id:<24} waiting {each.waiting:,} (oldest {each.oldest_s:,.0f} s)  "
            f"dlq {each.dlq:,}  discarded {each.failed:,}{_trouble(each)}"
        )
    raise typer.Exit(3 if any(each.dlq or each.consecutive_failures for each in tenants) else 0)


@app.command("ls")
def ls(
    *,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status", help="pending, claimed, sending, acked, dlq or failed; repeatable."
        ),
    ] = None,
    tenant: Tenant = None,
    kind: Kind = None,
    reason: Reason = None,
    code: Code = None,
    after: Annotated[UUID | None, typer.Option(help="Go on behind this id.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """List events, newest first; without --status those that are not delivered."""
    from farmiq.edge.sync import desk, states

    wanted = status or [state for state in states.STATES if state != "acked"]
    if unknown := sorted(set(wanted) - set(states.STATES)):
        terminal.fail(
            f"{unknown[0]!r} is no status; choose from {', '.join(states.STATES)}", code=2
        )
    choice = desk.Choice(tenant_id=tenant, event_type=kind, dlq_reason=reason, last_error_code=code)
    chosen = [state for state in states.STATES if state in wanted]

    async def look(tx: Any) -> tuple[list[dict[str, Any]], int]:
        rows = await desk.ls(tx, choice, statuses=chosen, limit=limit, after=after)
        return rows, await desk.count(tx, choice, statuses=chosen, after=after)

    rows, total = terminal.in_transaction(terminal.environment(stack), look)
    terminal.print_list(
        rows,
        _cells,
        as_json=as_json,
        more=total - len(rows),
        hint=f"--after {rows[-1]['id']} goes on" if rows else "",
    )


@app.command()
def show(
    event_id: Annotated[UUID, typer.Argument(help="As `farmiq outbox ls` shows it.")],
    *,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Show one event with everything known of it, its payload too."""
    from farmiq.edge.sync import desk

    row = terminal.in_transaction(terminal.environment(stack), lambda tx: desk.show(tx, event_id))
    if row is None:
        terminal.fail(
            f"the outbox has no event {event_id}; it may be in an archive, see sync_archived"
        )
    if as_json:
        terminal.print_json(row)
        return
    terminal.print_fields(row)


@app.command()
def redrive(
    ids: Ids = None,
    *,
    tenant: Tenant = None,
    kind: Kind = None,
    reason: Reason = None,
    code: Code = None,
    since: Since = None,
    until: Until = None,
    everything: All = False,
    limit: Limit = 1000,
    dry_run: DryRun = False,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Send events of the dlq again, with nothing held against them. It is audited."""
    from farmiq.edge.sync import desk

    choice = _choice(ids, tenant, kind, reason, code, since, until, everything=everything)
    _move(desk.redrive, "redriven", choice, limit, stack, dry_run=dry_run, as_json=as_json)


@app.command()
def unclaim(
    ids: Ids = None,
    *,
    tenant: Tenant = None,
    kind: Kind = None,
    everything: All = False,
    limit: Limit = 1000,
    dry_run: DryRun = False,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Free events that a forwarder holds although its lease ended; live leases are left alone.

    The forwarders do so by themselves within two leases; this is for those who cannot wait.
    """
    from farmiq.edge.sync import desk

    choice = _choice(ids, tenant, kind, None, None, None, None, everything=everything)
    _move(desk.unclaim, "freed", choice, limit, stack, dry_run=dry_run, as_json=as_json)


@app.command()
def discard(
    ids: Ids = None,
    *,
    tenant: Tenant = None,
    kind: Kind = None,
    reason: Reason = None,
    code: Code = None,
    since: Since = None,
    until: Until = None,
    everything: All = False,
    limit: Limit = 1000,
    dry_run: DryRun = False,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Give events of the dlq up for good. They stay readable, then go to an archive file."""
    from farmiq.edge.sync import desk

    choice = _choice(ids, tenant, kind, reason, code, since, until, everything=everything)
    _move(desk.discard, "discarded", choice, limit, stack, dry_run=dry_run, as_json=as_json)


def _choice(  # noqa: PLR0917 - the options of a command, in their order
    ids: list[UUID] | None,
    tenant: str | None,
    kind: str | None,
    reason: str | None,
    code: str | None,
    since: datetime | None,
    until: datetime | None,
    *,
    everything: bool,
) -> Any:
    from datetime import UTC

    from farmiq.edge.sync import desk

    choice = desk.Choice(
        ids=tuple(ids) if ids else None,
        tenant_id=tenant,
        event_type=kind,
        dlq_reason=reason,
        last_error_code=code,
        created_after=since and since.replace(tzinfo=since.tzinfo or UTC),
        created_before=until and until.replace(tzinfo=until.tzinfo or UTC),
    )
    if not everything and not choice.asks_for_something():
        terminal.fail("say which: ids, one of the options, or --all (see --help)", code=2)
    return choice


def _move(
    by: Callable[..., Awaitable[list[UUID]]],
    word: str,
    choice: Any,
    limit: int,
    stack: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    actor = terminal.actor()
    moved = terminal.in_transaction(
        terminal.environment(stack),
        lambda tx: by(tx, choice, limit=limit, actor=actor, dry_run=dry_run),
    )
    if as_json:
        terminal.print_json({"count": len(moved), "ids": moved, "dry_run": dry_run})
        return
    typer.echo(f"{len(moved)} {'would be ' if dry_run else ''}{word}")
    if dry_run:
        for event_id in moved:
            typer.echo(str(event_id))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(row["id"]),
        row["status"],
        row["tenant_id"],
        row["event_type"],
        terminal.local(row["created_at"]),
        f"attempts {row['attempt_count']}",
        row["dlq_reason"] or row["last_error_code"] or "",
    )


def _trouble(each: Any) -> str:
    if each.consecutive_failures:
        from farmiq.edge.sync import verdict

        why = verdict.told(each.last_error_code, each.last_error_message)
        return f"  PAUSED, {each.consecutive_failures:,} times in a row: {why}"
    return (
        f"  draining, new events pass at priority {each.live_priority}"
        if each.live_priority
        else ""
    )

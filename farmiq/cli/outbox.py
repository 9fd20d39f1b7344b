"""`farmiq outbox`: what waits for the cloud, and what is stuck on the way."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from farmiq.cli import terminal
from farmiq.cli.deadletters import require_filter
from farmiq.cli.terminal import Options

app = terminal.Group(
    "Events on their way to the cloud. These need FARMIQ_EDGE_DB_URL or a running demo.\n\n"
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
ROWS: Options = {"ids": (Ids, None), "tenant_id": (Tenant, None), "event_type": (Kind, None)}
WHY: Options = {"dlq_reason": (Reason, None), "last_error_code": (Code, None)}
WHEN: Options = {"created_after": (Since, None), "created_before": (Until, None)}
MOVE: Options = {"everything": (All, False), "limit": (Limit, 1000), "dry_run": (DryRun, False)}


@app.command()
def stats() -> int:
    """How delivery goes, per tenant. Exit code 3: there are dead letters, or a tenant is paused."""
    from dataclasses import asdict

    from farmiq.edge.sync import handlers

    async def look(tx: Any) -> tuple[list[handlers.TenantStatus], int]:
        return await handlers.status(tx), await handlers.delivered(tx)

    tenants, delivered = terminal.in_transaction(look)
    terminal.print_result(
        {"delivered_and_kept": delivered, "tenants": [asdict(tenant) for tenant in tenants]},
        f"{delivered:,} delivered events are still kept",
        *map(_status, tenants),
    )
    return 3 if any(tenant.dlq or tenant.consecutive_failures for tenant in tenants) else 0


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
) -> None:
    """List events, newest first; without --status those that are not delivered."""
    from farmiq.edge.sync import handlers, rules
    from farmiq.plumbing import deadletters

    wanted = status or [state for state in rules.STATES if state != "acked"]
    if unknown := sorted(set(wanted) - set(rules.STATES)):
        terminal.fail(f"{unknown[0]!r} is no status; choose from {', '.join(rules.STATES)}", code=2)
    chosen = {
        "statuses": [state for state in rules.STATES if state in wanted],
        "tenant_id": tenant,
        "event_type": kind,
        "dlq_reason": reason,
        "last_error_code": code,
        "after": after,
    }

    async def look(tx: Any) -> tuple[list[dict[str, Any]], int]:
        rows = await deadletters.ls(tx, handlers.TABLE, chosen, limit=limit)
        return rows, await deadletters.count(tx, handlers.TABLE, chosen)

    rows, total = terminal.in_transaction(look)
    terminal.print_list(
        rows,
        _cells,
        more=total - len(rows),
        hint=f"--after {rows[-1]['id']} goes on" if rows else "",
    )


@app.command()
def show(
    event_id: Annotated[UUID, typer.Argument(help="As `farmiq outbox ls` shows it.")],
) -> None:
    """Show one event with everything known of it, its payload too."""
    from farmiq.edge.sync import handlers
    from farmiq.plumbing import deadletters

    row = terminal.in_transaction(
        lambda tx: deadletters.show(tx, handlers.TABLE, event_id, payload="payload_json")
    )
    if row is None:
        terminal.fail(
            f"the outbox has no event {event_id}; it may be in an archive, see sync_archived"
        )
    terminal.print_result(row, *terminal.fields(row))


@app.command("redrive", options={**ROWS, **WHY, **WHEN, **MOVE})
def redrive(**given: Any) -> None:
    """Send events of the dlq again, with nothing held against them. It is audited."""
    from farmiq.edge.sync import handlers

    _move(handlers.redrive, "redriven", **given)


@app.command("unclaim", options={**ROWS, **MOVE})
def release(**given: Any) -> None:
    """Free events that a forwarder holds although its lease ended; live leases are left alone.

    The forwarders do so by themselves within two leases; this is for those who cannot wait.
    """
    from farmiq.edge.sync import handlers

    _move(handlers.release, "freed", **given)


@app.command("discard", options={**ROWS, **WHY, **WHEN, **MOVE})
def discard(**given: Any) -> None:
    """Give events of the dlq up for good. They stay readable, then go to an archive file."""
    from farmiq.edge.sync import handlers

    _move(handlers.discard, "discarded", **given)


def _move(
    by: Callable[..., Awaitable[list[UUID]]],
    word: str,
    *,
    everything: bool,
    limit: int,
    dry_run: bool,
    **given: Any,
) -> None:
    chosen = {name: _in_utc(value) for name, value in given.items() if value}
    require_filter(
        chosen,
        everything=everything,
        text="say which: ids, one of the options, or --all (see --help)",
    )
    actor = terminal.actor()
    moved = terminal.in_transaction(
        lambda tx: by(tx, chosen, limit=limit, actor=actor, dry_run=dry_run)
    )
    terminal.print_result(
        {"count": len(moved), "ids": moved, "dry_run": dry_run},
        f"{len(moved)} {'would be ' if dry_run else ''}{word}",
        *(map(str, moved) if dry_run else ()),
    )


def _in_utc(value: Any) -> Any:
    from datetime import UTC

    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC)
    return value


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


def _status(tenant: Any) -> str:
    return (
        f"{tenant.tenant_id:<24} waiting {tenant.waiting:,} (oldest {tenant.oldest_s:,.0f} s)  "
        f"dlq {tenant.dlq:,}  discarded {tenant.failed:,}{_trouble(tenant)}"
    )


def _trouble(tenant: Any) -> str:
    if tenant.consecutive_failures:
        from farmiq.edge.sync import rules

        why = rules.describe_error(tenant.last_error_code, tenant.last_error_message)
        return f"  PAUSED, {tenant.consecutive_failures:,} times in a row: {why}"
    return (
        f"  draining, new events pass at priority {tenant.live_priority}"
        if tenant.live_priority
        else ""
    )

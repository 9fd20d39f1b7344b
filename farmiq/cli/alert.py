"""`farmiq alert`: what a person at the edge should look at, and the alerts of the cloud."""

from typing import Annotated, Any

import typer

from farmiq.cli import alert_cloud, alert_notification, terminal

app = terminal.Group(
    "Alerts: `ls`, `close` and `silence` of the edge (FARMIQ_EDGE_DB_URL), the rest of the cloud "
    "(FARMIQ_CLOUD_DB_URL), or of a running demo.\n\n"
    "docs/operate/alerts.md says how a rule reads and when people are called.",
)
alert_cloud.add_to(app)

app.add_typer(alert_notification.channel, name="channel")
app.add_typer(alert_notification.contact, name="contact")
app.command("messages")(alert_notification.messages)
app.command("escalation")(alert_notification.escalation)
app.command("key", shared=terminal.JSON)(alert_notification.key)

Severity = Annotated[
    str | None, typer.Option("--severity", help="security, critical, warning or info.")
]
OlderThan = Annotated[
    float | None, typer.Option("--older-than", min=0, help="Last seen so many hours ago.")
]


@app.command("ls")
def ls(
    *,
    kind: Annotated[
        str | None, typer.Option("--kind", help="This kind, or all that begin so: media.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help="Text that the subject contains.")
    ] = None,
    severity: Severity = None,
    older_than: OlderThan = None,
    closed: Annotated[bool, typer.Option("--all", help="Closed ones too.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 100,
) -> int:
    """List the open alerts: security first, then what was seen last. Exit code 3: there are some.

    An alert is one matter of one station, device or tenant, with a count of how often it came up.
    """
    from farmiq.edge import alerts

    chosen = _filter(kind, subject, severity, older_than)

    async def look(tx: Any) -> tuple[list[dict[str, Any]], int]:
        rows = await alerts.by_urgency(tx, chosen, closed=closed, limit=limit)
        return rows, await alerts.count(tx, chosen, closed=closed)

    rows, total = terminal.in_transaction(look)
    terminal.print_list(
        rows,
        _cells,
        more=total - len(rows),
        hint="--limit shows more, --kind, --severity and --subject choose",
    )
    return 3 if any(row["closed_at"] is None for row in rows) else 0


@app.command("close")
def close(
    kind: Annotated[
        str | None, typer.Argument(help="As `farmiq alert ls` shows it; without SUBJECT all of it.")
    ] = None,
    subject: Annotated[str | None, typer.Argument(help="As `farmiq alert ls` shows it.")] = None,
    *,
    severity: Severity = None,
    older_than: OlderThan = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that are open; needed if nothing else chooses.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many it would be.")
    ] = False,
) -> None:
    """Close alerts that were dealt with; one opens again if its matter comes back.

    `farmiq alert close KIND SUBJECT` closes one, `farmiq alert close KIND` all of a kind. The audit
    log has who closed what.
    """
    from farmiq.edge import alerts

    chosen = _filter(kind, subject, severity, older_than, exact=True)
    if not everything and not chosen.is_narrow:
        terminal.fail("say which: KIND, SUBJECT, --severity, --older-than or --all", code=2)

    async def work(tx: Any) -> int:
        if dry_run:
            return await alerts.count(tx, chosen, closed=False)
        return await alerts.close_chosen(tx, chosen, by=terminal.actor())

    count = terminal.in_transaction(work)
    if not count:
        terminal.fail("no open alert fits; `farmiq alert ls` shows them")
    terminal.print_result(
        {"closed": {"kind": kind, "subject": subject}, "count": count, "dry_run": dry_run},
        f"{count:,} would be closed" if dry_run else f"{count:,} closed",
    )


@app.command("silence")
def silence() -> None:
    """Silence the siren of this edge for all that is open now; the alerts stay open.

    What opens later sounds it again. The audit log has who silenced it.
    """
    from farmiq.edge import audit
    from farmiq.edge.alert import store

    async def work(tx: Any) -> list[dict[str, Any]]:
        rows = await store.silence(tx, by=terminal.actor())
        if rows:
            await audit.note(
                tx,
                actor=terminal.actor(),
                action="alert.silence",
                subject="siren",
                count=len(rows),
            )
        return rows

    rows = terminal.in_transaction(work)
    if not rows:
        terminal.fail("nothing is open that would sound the siren; `farmiq alert ls` shows all")
    terminal.print_result(
        {"silenced": rows, "count": len(rows)},
        "\n".join([f"{len(rows):,} silenced", *(f"    {row['message']}" for row in rows)]),
    )


def _filter(
    kind: str | None,
    subject: str | None,
    severity: str | None,
    older_than: float | None,
    *,
    exact: bool = False,
) -> Any:
    from farmiq.edge import alerts

    if severity is not None and severity not in alerts.URGENCY:
        terminal.fail(f"{severity!r} is no severity; choose {', '.join(alerts.URGENCY)}", code=2)
    return alerts.Filter(kind, subject, severity, older_than, exact=exact)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    times = f"{row['seen_count']:,} times, last " if row["seen_count"] > 1 else ""
    ended = f"closed {terminal.local(row['closed_at'])}" if row["closed_at"] else ""
    return (
        row["severity"],
        row["kind"],
        row["subject"],
        f"{times}{terminal.local(row['last_seen_at'])}  {ended}".rstrip()
        + f"\n    {row['message']}",
    )

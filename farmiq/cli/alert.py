"""`farmiq alert`: what a person at the edge should look at."""

from typing import Annotated

import typer

from farmiq.cli import terminal
from farmiq.cli.terminal import AsJson, StackName

app = typer.Typer(
    no_args_is_help=True,
    help="Alerts of the edge. They need FARMIQ_EDGE_DB_URL or a running demo.",
)


@app.command("ls")
def ls(
    *,
    closed: Annotated[bool, typer.Option("--all", help="Closed ones too.")] = False,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """List the open alerts, newest first. Exit code 3: there are some."""
    import psycopg
    from psycopg.rows import dict_row

    url = terminal.needed(terminal.environment(stack), "FARMIQ_EDGE_DB_URL")
    with psycopg.connect(url, row_factory=dict_row) as connection:
        rows = connection.execute(
            "select kind, subject, severity, message, seen_count, raised_at, last_seen_at, "
            "closed_at, closed_by from alerts where %s or closed_at is null "
            "order by raised_at desc limit 1000",
            (closed,),
        ).fetchall()
    if as_json:
        terminal.print_json(rows)
    elif not rows:
        typer.echo("no alerts")
    for row in [] if as_json else rows:
        times = f" ({row['seen_count']} times)" if row["seen_count"] > 1 else ""
        typer.echo(
            f"{row['raised_at']:%Y-%m-%d %H:%M}Z  {row['severity']:<9} {row['kind']}  "
            f"{row['subject']}{times}\n    {row['message']}"
        )
    raise typer.Exit(3 if any(row["closed_at"] is None for row in rows) else 0)


@app.command("close")
def close(
    kind: Annotated[str, typer.Argument(help="As `farmiq alert ls` shows it.")],
    subject: Annotated[str, typer.Argument(help="As `farmiq alert ls` shows it.")],
    *,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Close an alert that was dealt with; it opens again if the matter comes back."""
    import psycopg

    url = terminal.needed(terminal.environment(stack), "FARMIQ_EDGE_DB_URL")
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "update alerts set closed_at = fn_now(), closed_by = 'cli' "
            "where kind = %s and subject = %s and closed_at is null",
            (kind, subject),
        ).rowcount
    if not found:
        terminal.fail(f"no open alert {kind!r} of {subject!r}; `farmiq alert ls` shows them")
    terminal.tell({"closed": {"kind": kind, "subject": subject}}, "closed", as_json=as_json)

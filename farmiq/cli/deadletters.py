"""The commands on dead letters: `ls`, `show`, `redrive` and `discard`, built from lists of options.

Each place that stores dead letters lists the options that filter them. The two quarantines share
the functions too (`add_quarantine`).
"""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from farmiq.cli import terminal
from farmiq.cli.terminal import Options

if TYPE_CHECKING:
    from farmiq.plumbing.deadletters import Quarantine, Result, Table

Ids = Annotated[list[UUID] | None, typer.Argument(help="Ids as `ls` shows them.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Text that a reason contains.")]
OlderThan = Annotated[
    float | None, typer.Option("--older-than", min=0, help="Last received so many hours ago.")
]
All = Annotated[bool, typer.Option("--all", help="All of them; needed if nothing else chooses.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be.")]


def require_filter(chosen: Mapping[str, Any], *, everything: bool, text: str) -> None:
    if not everything and not any(value is not None for value in chosen.values()):
        terminal.fail(text, code=2)


@dataclass(frozen=True, slots=True)
class Source:
    """A quarantine as a person sees it; modules are imported when a command runs.

    `check` looks at the filter and may change it; `by` is the quarantine on behalf of an actor.
    """

    name: str
    database: str
    filters: Options
    table: "Callable[[], Table]"
    by: "Callable[[str], Quarantine]"
    check: Callable[[dict[str, Any]], dict[str, Any]]
    redrive_text: str
    discard_text: str
    redrive: "Callable[..., Awaitable[Result]] | None" = None
    empty: str | None = None

    @property
    def move_options(self) -> Options:
        return {
            "ids": (Ids, None),
            **self.filters,
            "everything": (All, False),
            "limit": (Limit, 10_000),
            "dry_run": (DryRun, False),
        }


def add_quarantine(app: terminal.Group, source: Source) -> None:
    """All commands but `ls`, whose text and options may differ: see `list_rows`."""

    @app.command("show")
    def show(quarantine_id: Annotated[UUID, typer.Argument(help="As `ls` shows it.")]) -> None:
        """Show one message: topic, times, every reason, and its bytes."""
        from farmiq.plumbing import deadletters

        row = terminal.in_transaction(
            lambda tx: deadletters.show(tx, source.table(), quarantine_id, payload="raw"),
            source.database,
        )
        if row is None:
            terminal.fail(f"there is no message {quarantine_id}; `{source.name} ls` shows them")
        _print_one(row)

    @app.command("redrive", options=source.move_options, help=source.redrive_text)
    def redrive(**given: Any) -> int:
        from farmiq import config, crash

        crash.arm(config.crash_at())
        return _redrive(source, **given)

    @app.command("discard", options=source.move_options, help=source.discard_text)
    def discard(**given: Any) -> None:
        from farmiq.plumbing import deadletters

        result = _move(source, deadletters.discard, **given)
        done = f"{result.chosen} would go" if given["dry_run"] else f"{result.gone} discarded"
        terminal.print_result(result.described(), done)


def list_rows(source: Source, *, limit: int, **given: Any) -> int:
    """List the newest messages and how many there are by reason. Exit code 3: there are some."""
    from farmiq.plumbing import deadletters

    chosen = source.check(given)

    async def look(tx: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return (
            await deadletters.ls(tx, source.table(), chosen, limit=limit),
            await deadletters.counts(tx, source.table(), chosen),
        )

    rows, counts = terminal.in_transaction(look, source.database)
    terminal.print_list(
        rows,
        _cells,
        document={"rows": rows, "counts": counts},
        more=sum(group["rows"] for group in counts) - len(rows),
        hint="--limit shows more",
    )
    if rows and not terminal.wants_json():
        typer.echo()
        terminal.print_list(
            counts, lambda group: (f"{group['rows']:>8,}", group["kind"], group.get("reason", ""))
        )
    return 3 if rows else 0


def _redrive(source: Source, **given: Any) -> int:
    from farmiq.plumbing import deadletters

    result = _move(source, source.redrive or deadletters.redrive, **given)
    unfit = ""
    if result.truncated:
        unfit += f"; {result.truncated} cannot be: their bytes were cut short"
    if result.conflicts:
        unfit += f"; {result.conflicts} cannot be: their id is taken by another content"
    left = result.truncated + (result.conflicts or 0)
    if source.empty and not result.chosen and not given["ids"]:
        line = source.empty
    elif given["dry_run"]:
        line = f"{result.chosen - left} of {result.chosen} would be tried{unfit}"
    else:
        line = f"{result.accepted} accepted, {result.refused} refused again{unfit}"
    terminal.print_result(result.described(), line)
    if given["ids"] and not result.chosen:
        terminal.fail(f"no such message is in quarantine; `{source.name} ls` shows the ids")
    return 3 if result.refused + left else 0


def _move(
    source: Source,
    move: "Callable[..., Awaitable[Result]]",
    *,
    everything: bool,
    limit: int,
    dry_run: bool,
    **given: Any,
) -> "Result":
    chosen = source.check({**given, "ids": given["ids"] or None})
    options = ", ".join(f"--{name}" for name in source.filters if not name.endswith("_hours"))
    require_filter(
        chosen, everything=everything, text=f"name ids, choose with {options}, or say --all"
    )
    by = source.by(terminal.actor())
    return _on_a_pool(
        source.database, lambda pool: move(pool, by, chosen, limit=limit, dry_run=dry_run)
    )


def _on_a_pool(database: str, work: "Callable[[Any], Awaitable[Result]]") -> "Result":
    import psycopg

    from farmiq.plumbing import db, log

    log.configure("error")
    url = terminal.needed(database)
    psycopg.connect(url, connect_timeout=5).close()  # its own words if it cannot be reached

    async def once() -> "Result":
        async with db.pool(url, name="farmiq quarantine", max_size=2) as pool:
            return await work(pool)

    return asyncio.run(once())


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    times = f" ({row['received_count']:,} times)" if row["received_count"] > 1 else ""
    more = f" and {len(row['reasons']) - 1} more" if len(row["reasons"]) > 1 else ""
    return (
        str(row["quarantine_id"]),
        terminal.local(row["last_received_at"]),
        row["kind"],
        f"{row['topic'][:120]}{times}\n    {row['reasons'][0]}{more}",
    )


def _print_one(row: dict[str, Any]) -> None:
    raw = row.pop("raw")
    if terminal.wants_json():
        terminal.print_json({**row, "raw_base64": b64encode(raw).decode()})
        return
    first, last = (terminal.local(row[name]) for name in ("first_received_at", "last_received_at"))
    typer.echo(f"topic     {row['topic']}\nkind      {row['kind']}")
    typer.echo(f"received  {row['received_count']} times, {first} to {last}")
    if row["last_redriven_at"]:
        redriven = terminal.local(row["last_redriven_at"])
        typer.echo(f"redriven  {row['redriven_count']} times, last {redriven}")
    for reason in row["reasons"]:
        typer.echo(f"reason    {reason}")
    cut = ", cut short: it cannot be redriven" if row["truncated"] else ""
    typer.echo(f"bytes     {row['raw_size_bytes']}{cut}\n")
    # Escaped: untrusted text must not control this terminal.
    typer.echo(raw.decode("utf-8", "backslashreplace").encode("unicode_escape").decode())

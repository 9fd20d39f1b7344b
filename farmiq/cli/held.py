"""What the commands of both quarantines share: how to choose, how to look, how to act on a pool."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

import typer

from farmiq.cli import terminal

Id = Annotated[UUID, typer.Argument(help="As `ls` shows it.")]
Ids = Annotated[list[UUID] | None, typer.Argument(help="Ids as `ls` shows them.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Text that a reason contains.")]
OlderThan = Annotated[
    float | None, typer.Option("--older-than", min=0, help="Last received so many hours ago.")
]
All = Annotated[bool, typer.Option("--all", help="All of them; needed if nothing else chooses.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be.")]


def careful(which: Any, *, everything: bool, options: str) -> None:
    if which.everything and not everything:
        terminal.fail(f"name ids, choose with {options}, or say --all", code=2)


def known_kind(kind: str | None, kinds: tuple[str, ...]) -> None:
    if kind is not None and kind not in kinds:
        terminal.fail(f"{kind!r} is no kind; choose {', '.join(kinds)}", code=2)


def on_a_pool(stack: str | None, variable: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """`work` on a pool of the database that `variable` names."""
    import psycopg

    from farmiq.plumbing import db, log

    log.configure("error")
    url = terminal.needed(terminal.environment(stack), variable)
    psycopg.connect(url, connect_timeout=5).close()  # its own words if it cannot be reached

    async def worked() -> Any:
        async with db.pool(url, name="farmiq quarantine", most=2) as pool:
            return await work(pool)

    return asyncio.run(worked())


def plain(rows: list[Any]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def print_rows(rows: list[Any], counts: list[dict[str, Any]], *, as_json: bool) -> None:
    """The newest messages, and below them how many there are by kind and, if it is told, reason."""
    terminal.print_list(
        rows,
        _cells,
        as_json=as_json,
        document={"rows": plain(rows), "counts": counts},
        more=sum(each["rows"] for each in counts) - len(rows),
        hint="--limit shows more",
    )
    if rows and not as_json:
        typer.echo()
        terminal.print_list(counts, _counted, as_json=False)


def _cells(row: Any) -> tuple[str, ...]:
    times = f" ({row.received_count:,} times)" if row.received_count > 1 else ""
    more = f" and {len(row.reasons) - 1} more" if len(row.reasons) > 1 else ""
    return (
        str(row.quarantine_id),
        terminal.local(row.last_received_at),
        row.kind,
        f"{row.topic[:120]}{times}\n    {row.reasons[0]}{more}",
    )


def _counted(each: dict[str, Any]) -> tuple[str, ...]:
    return f"{each['rows']:>8,}", each["kind"], each.get("reason", "")


def print_one(row: Any, raw: bytes, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json({**asdict(row), "raw_base64": b64encode(raw).decode()})
        return
    typer.echo(f"topic     {row.topic}\nkind      {row.kind}")
    typer.echo(
        f"received  {row.received_count} times, "
        f"{terminal.local(row.first_received_at)} to {terminal.local(row.last_received_at)}"
    )
    if row.last_redriven_at:
        last = terminal.local(row.last_redriven_at)
        typer.echo(f"redriven  {row.redriven_count} times, last {last}")
    for reason in row.reasons:
        typer.echo(f"reason    {reason}")
    cut = ", cut short: it cannot be redriven" if row.truncated else ""
    typer.echo(f"bytes     {row.raw_size_bytes}{cut}\n")
    # Escaped: whatever a stranger sent must not steer this terminal.
    typer.echo(raw.decode("utf-8", "backslashreplace").encode("unicode_escape").decode())


def print_discarded(result: Any, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        terminal.print_json(asdict(result))
    else:
        typer.echo(f"{result.chosen} would go" if dry_run else f"{result.gone} discarded")

"""`farmiq dlq`: dead letters of the bus."""

import asyncio
import getpass
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import terminal
from farmiq.cli.deadletters import require_filter
from farmiq.cli.terminal import Options

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection

    from farmiq.cloud.deadletter.rules import BusFilter

app = terminal.Group(
    "Events that a service of the cloud did not take after five attempts, and events that no "
    "queue wanted. Mend the cause, then redrive; what can never be mended, discard.\n\n"
    "Needs FARMIQ_AMQP_URL and, to move letters, FARMIQ_CLOUD_DB_URL for the audit; or a "
    "running demo."
)
Queue = Annotated[
    str | None,
    typer.Option("--queue", help="One queue of dead letters, as `farmiq dlq ls` names it."),
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", help="Letters whose reason says this, or is of this group."),
]
EventType = Annotated[str | None, typer.Option("--type", help="Events of this type.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Events of this tenant.")]
EventIds = Annotated[list[str] | None, typer.Option("--event-id", help="This event; repeatable.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many.")]
Rate = Annotated[float, typer.Option("--rate", min=0.1, max=5000, help="At most so many a second.")]
All = Annotated[bool, typer.Option("--all", help="All there are, up to the limit.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; do nothing.")]
Body = Annotated[bool, typer.Option("--body", help="With the event itself.")]
WHOSE: Options = {"queue": (Queue, None), "tenant_id": (Tenant, None)}
FILTERS: Options = {
    "queue": (Queue, None),
    "reason": (Reason, None),
    "event_type": (EventType, None),
    "tenant_id": (Tenant, None),
    "event_ids": (EventIds, None),
}


def _move_options(rate_per_s: float) -> Options:
    return {
        **FILTERS,
        "everything": (All, False),
        "limit": (Limit, 1000),
        "rate_per_s": (Rate, rate_per_s),
        "dry_run": (DryRun, False),
    }


@app.command("ls", options=WHOSE)
def ls(**given: Any) -> int:
    """Count the dead letters by queue and reason. Exit code 3: there are some."""
    from farmiq.cloud.deadletter import handlers

    async def count() -> list[dict[str, Any]]:
        async with _bus() as opened:
            groups = await handlers.groups(opened, _filter(**given))
            return [group.described() for group in groups]

    groups = asyncio.run(count())
    terminal.print_list(groups, _cells)
    return 3 if groups else 0


@app.command("show", options={**FILTERS, "limit": (Limit, 10), "body": (Body, False)})
def show(*, limit: int, body: bool, **given: Any) -> None:
    """Show letters, oldest first: what, from where, why, how often it was tried.

    With --json one list of them.
    """
    from farmiq.cloud.deadletter import handlers

    chosen = _filter(**given)

    async def look() -> list[dict[str, Any]]:
        letters: list[dict[str, Any]] = []
        async with _bus() as opened:
            async for letter, raw in handlers.browse(opened, chosen):
                shown = letter.described()
                letters.append(shown | ({"body": raw.decode("utf-8", "replace")} if body else {}))
                if len(letters) > limit:
                    break
        return letters

    letters = asyncio.run(look())
    terminal.print_page(
        letters,
        limit,
        lambda letter: ("\n".join(f"{name:<12} {value}" for name, value in letter.items()) + "\n",),
    )


@app.command("redrive", options=_move_options(100.0))
def redrive(**given: Any) -> int:
    """Send letters back to the queues they came from, as if they were new. Safe to repeat.

    Say which. Properties that cannot be read are left out; their letters are named.
    With --json a line per letter and a summary at the end. Exit code 3: some could not be sent.
    """
    return _move("redrive", **given)


@app.command("discard", options=_move_options(1000.0))
def discard(**given: Any) -> int:
    """Take letters away for good. Say which; their bytes stay in the table of the audit.

    With --json a line per letter and a summary at the end.
    """
    return _move("discard", **given)


def _filter(*, event_ids: list[str] | None = None, **given: Any) -> "BusFilter":
    from farmiq.cloud.deadletter.rules import QUEUES, BusFilter

    queue = given["queue"]
    terminal.check_known(queue, QUEUES, f"{queue!r} holds no dead letters; choose one of")
    return BusFilter(**given, event_ids=frozenset(event_ids or ()))


def _move(
    action: str,
    *,
    everything: bool,
    limit: int,
    rate_per_s: float,
    dry_run: bool,
    **given: Any,
) -> int:
    from farmiq import config, crash
    from farmiq.cloud.deadletter import handlers
    from farmiq.plumbing import db

    require_filter(
        {name: value or None for name, value in given.items()},
        everything=everything,
        text="say which letters: --queue, --reason, --type, --tenant, --event-id or --all",
    )
    actor = f"{getpass.getuser()}@{socket.gethostname()}"
    order = handlers.Order(
        action, _filter(**given), actor, limit, rate_per_s=rate_per_s, dry_run=dry_run
    )
    url = terminal.needed(terminal.CLOUD)
    crash.arm(config.crash_at())
    counts: Counter[str] = Counter()

    async def work() -> None:
        async with _bus() as opened, db.pool(url, name="farmiq-dlq", min_size=0) as pool:
            async for outcome in handlers.move(opened, pool, order):
                counts[outcome.done] += 1
                if terminal.wants_json():
                    typer.echo(json.dumps(outcome.described()))
                elif note := outcome.why or outcome.note:
                    typer.echo(f"{outcome.done}  {outcome.letter.event_id}  {note}")

    asyncio.run(work())
    summary = ", ".join(f"{done} {count}" for done, count in sorted(counts.items()))
    typer.echo(
        json.dumps({"summary": counts})
        if terminal.wants_json()
        else summary or "no letter is meant"
    )
    return 3 if counts["failed"] else 0


def _cells(group: dict[str, Any]) -> tuple[str, ...]:
    between = " … ".join(terminal.local(group[name], absent="?") for name in ("oldest", "newest"))
    below = f"{'':9}{between}  {', '.join(group['event_types'])}"
    return f"{group['count']:>7,}", group["queue"], f"{group['reason']}\n{below}"


@asynccontextmanager
async def _bus() -> "AsyncIterator[AbstractConnection]":
    from farmiq.config import CloudSettings
    from farmiq.plumbing.bus import amqp

    environment = terminal.environment()
    url = terminal.needed("FARMIQ_AMQP_URL", environment)
    tls = CloudSettings.load_some(environment).tls
    async with amqp.connection(url, name="farmiq-dlq", tls=tls) as opened:
        yield opened

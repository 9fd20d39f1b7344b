"""`farmiq dlq`: dead letters of the bus."""

import asyncio
import getpass
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import terminal
from farmiq.cli.terminal import AsJson, StackName

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection

    from farmiq.cloud.deadletter.letter import Wish
    from farmiq.cloud.deadletter.pile import Order

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Events that a service of the cloud did not take after five attempts, and events that no "
        "queue wanted. Mend the cause, then redrive; what can never be mended, discard.\n\n"
        "Needs FARMIQ_AMQP_URL and, to move letters, FARMIQ_CLOUD_DB_URL for the audit; or a "
        "running demo."
    ),
)
Queue = Annotated[
    str | None, typer.Option(help="One queue of dead letters, as `farmiq dlq ls` names it.")
]
Reason = Annotated[
    str | None, typer.Option(help="Letters whose reason says this, or is of this group.")
]
EventType = Annotated[str | None, typer.Option("--type", help="Events of this type.")]
Tenant = Annotated[str | None, typer.Option(help="Events of this tenant.")]
EventIds = Annotated[list[str] | None, typer.Option("--event-id", help="This event; repeatable.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]
Rate = Annotated[float, typer.Option(min=0.1, max=5000, help="At most so many a second.")]
All = Annotated[bool, typer.Option("--all", help="All there are, up to the limit.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; do nothing.")]


@app.command("ls")
def ls(
    *, queue: Queue = None, tenant: Tenant = None, stack: StackName = None, as_json: AsJson = False
) -> None:
    """Count the dead letters by queue and reason. Exit code 3: there are some."""
    from farmiq.cloud.deadletter import api, pile

    async def count() -> list[dict[str, Any]]:
        async with _bus(terminal.environment(stack)) as opened:
            found = await pile.groups(opened, _wish(queue=queue, tenant=tenant))
            return [api.group_shown(each) for each in found]

    found = asyncio.run(count())
    terminal.print_list(found, _cells, as_json=as_json)
    raise typer.Exit(3 if found else 0)


@app.command("show")
def show(
    *,
    queue: Queue = None,
    reason: Reason = None,
    event_type: EventType = None,
    tenant: Tenant = None,
    event_id: EventIds = None,
    limit: Limit = 10,
    body: Annotated[bool, typer.Option("--body", help="With the event itself.")] = False,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Show letters, oldest first: what, from where, why, how often it was tried.

    With --json one list of them.
    """
    from farmiq.cloud.deadletter import api, pile

    wish = _wish(queue, reason, event_type, tenant, event_id)

    async def look() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async with _bus(terminal.environment(stack)) as opened:
            async for letter, raw in pile.look(opened, wish):
                shown = api.letter_shown(letter)
                found.append(shown | ({"body": raw.decode("utf-8", "replace")} if body else {}))
                if len(found) > limit:
                    break
        return found

    found = asyncio.run(look())
    terminal.print_list(
        found[:limit],
        lambda each: ("\n".join(f"{name:<12} {value}" for name, value in each.items()) + "\n",),
        as_json=as_json,
        more=None if len(found) > limit else 0,
        hint="--limit shows more",
    )


@app.command("redrive")
def redrive(
    *,
    queue: Queue = None,
    reason: Reason = None,
    event_type: EventType = None,
    tenant: Tenant = None,
    event_id: EventIds = None,
    every: All = False,
    limit: Limit = 1000,
    rate: Rate = 100.0,
    dry_run: DryRun = False,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Send letters back to the queues they came from, as if they were new. Safe to repeat.

    Say which. Properties that could not be read are left out, and it is said of which letters.
    With --json a line per letter and a summary at the end. Exit code 3: some could not be sent.
    """
    wish = _chosen(_wish(queue, reason, event_type, tenant, event_id), every=every)
    order = _order("redrive", wish, limit=limit, rate=rate, dry_run=dry_run)
    _carry_out(order, stack, as_json=as_json)


@app.command("discard")
def discard(
    *,
    queue: Queue = None,
    reason: Reason = None,
    event_type: EventType = None,
    tenant: Tenant = None,
    event_id: EventIds = None,
    every: All = False,
    limit: Limit = 1000,
    rate: Rate = 1000.0,
    dry_run: DryRun = False,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Take letters away for good. Say which; their bytes stay in the table of the audit.

    With --json a line per letter and a summary at the end.
    """
    wish = _chosen(_wish(queue, reason, event_type, tenant, event_id), every=every)
    order = _order("discard", wish, limit=limit, rate=rate, dry_run=dry_run)
    _carry_out(order, stack, as_json=as_json)


def _wish(
    queue: str | None = None,
    reason: str | None = None,
    event_type: str | None = None,
    tenant: str | None = None,
    event_id: list[str] | None = None,
) -> "Wish":
    from farmiq.cloud.deadletter.letter import PILES, Wish

    if queue is not None and queue not in PILES:
        terminal.fail(f"{queue!r} holds no dead letters; choose one of {', '.join(PILES)}", code=2)
    return Wish(queue, reason, event_type, tenant, frozenset(event_id or ()))


def _chosen(wish: "Wish", *, every: bool) -> "Wish":
    if not (every or wish.chooses or wish.tenant_id):
        terminal.fail(
            "say which letters: --queue, --reason, --type, --tenant, --event-id or --all", code=2
        )
    return wish


def _order(action: str, wish: "Wish", *, limit: int, rate: float, dry_run: bool) -> "Order":
    from farmiq.cloud.deadletter.pile import Order

    actor = f"{getpass.getuser()}@{socket.gethostname()}"
    return Order(action, wish, actor, limit, rate, dry_run=dry_run)


def _carry_out(order: "Order", stack: str | None, *, as_json: bool) -> None:
    from farmiq import config, crash
    from farmiq.cloud.deadletter import api, pile
    from farmiq.plumbing import db

    environment = terminal.environment(stack)
    url = terminal.needed(environment, "FARMIQ_CLOUD_DB_URL")
    crash.arm(config.crash_at())
    counts: Counter[str] = Counter()

    async def work() -> None:
        async with _bus(environment) as opened, db.pool(url, name="farmiq-dlq", least=0) as pool:
            async for outcome in pile.carry_out(opened, pool, order):
                counts[outcome.done] += 1
                if as_json:
                    typer.echo(json.dumps(api.outcome_shown(outcome)))
                elif said := outcome.why or outcome.note:
                    typer.echo(f"{outcome.done}  {outcome.letter.event_id}  {said}")

    asyncio.run(work())
    summary = ", ".join(f"{done} {count}" for done, count in sorted(counts.items()))
    typer.echo(json.dumps({"summary": counts}) if as_json else summary or "no letter is meant")
    raise typer.Exit(3 if counts["failed"] else 0)


def _cells(each: dict[str, Any]) -> tuple[str, ...]:
    between = " … ".join(terminal.local(each[name], absent="?") for name in ("oldest", "newest"))
    below = f"{'':9}{between}  {', '.join(each['event_types'])}"
    return f"{each['count']:>7,}", each["queue"], f"{each['reason']}\n{below}"


@asynccontextmanager
async def _bus(environment: Mapping[str, str]) -> "AsyncIterator[AbstractConnection]":
    from farmiq.plumbing import amqp

    url = terminal.needed(environment, "FARMIQ_AMQP_URL")
    async with amqp.connection(url, name="farmiq-dlq") as opened:
        yield opened

"""`farmiq trace`: where events were, when, and what they wait for."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.trace import Sites
    from farmiq.trace_hops import Hop


def trace(
    event_id: Annotated[UUID | None, typer.Argument(help="The event_id of any message.")] = None,
    *,
    last: Annotated[
        bool,
        typer.Option(
            "--last", help="The newest event: one that waits, else the newest reading in the cloud."
        ),
    ] = False,
    session: Annotated[
        UUID | None, typer.Option("--session", help="Every event of this weigh session.")
    ] = None,
    image: Annotated[
        UUID | None, typer.Option("--image", help="Every event about this image (media_id).")
    ] = None,
) -> int:
    """Show where one event was, when, in which table or queue, and what it waits for.

    Looks at what this machine knows of: FARMIQ_EDGE_DB_URL, FARMIQ_CLOUD_DB_URL, FARMIQ_AMQP_URL,
    or a running demo. With --json a list of hops for one EVENT_ID, else a list of events with their
    hops. Exit code 1: nobody here knows it. Exit code 3: it has not arrived yet.
    """
    from farmiq.config import CloudSettings
    from farmiq.trace import Sites, UnreachableError

    if [event_id is not None, last, session is not None, image is not None].count(True) != 1:
        terminal.fail("say one of: EVENT_ID, --last, --session ID, --image ID", code=2)
    environment = terminal.environment()
    sites = Sites(
        # The owner's login sees the same; some machines have only that one.
        environment.get("FARMIQ_EDGE_DB_URL") or environment.get("FARMIQ_EDGE_DB_ADMIN_URL"),
        environment.get("FARMIQ_CLOUD_DB_URL"),
        environment.get("FARMIQ_AMQP_URL"),
        CloudSettings.load_some(environment).tls,
    )
    try:
        traces = asyncio.run(_follow(sites, event_id, session, image))
    except UnreachableError as error:
        terminal.fail(f"{error}. `farmiq demo` starts both sites here")
    if not traces:
        what = f"event {event_id}" if event_id else f"{session or image or 'any event'}"
        terminal.fail(f"no table that can be looked at from here knows {what}")
    if terminal.wants_json() and event_id:
        terminal.print_json(_plain(traces[0][1]))
    elif terminal.wants_json():
        terminal.print_json([{"event_id": key, "hops": _plain(hops)} for key, hops in traces])
    else:
        typer.echo("\n\n".join("\n".join([f"event {key}", *_lines(hops)]) for key, hops in traces))
    from farmiq.trace_hops import is_delivered

    return 3 if not all(is_delivered(hops) for _, hops in traces) else 0


async def _follow(
    sites: "Sites", event_id: UUID | None, session: UUID | None, image: UUID | None
) -> "list[tuple[UUID, list[Hop]]]":
    from farmiq import trace as tracing

    if event_id:
        wanted = [event_id]
    elif session or image:
        key = session or image
        assert key is not None  # noqa: S101 - one of the two
        wanted = await tracing.events_of("session" if session else "image", key, sites)
    else:
        newest = await tracing.last_event(sites)
        wanted = [newest] if newest else []
    traces = [(key, await tracing.trace(key, sites)) for key in wanted]
    return [(key, hops) for key, hops in traces if hops]


def _plain(hops: "list[Hop]") -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [asdict(hop) for hop in hops]


def _lines(hops: "list[Hop]") -> list[str]:
    """One line per hop and one per command; no table, so that a pipe breaks nothing."""
    from farmiq.trace_hops import timed

    wide = max(len(hop.place) for hop in hops)
    lines = []
    for hop, after in timed(hops):
        at = hop.at.astimezone() if hop.at else None
        when = f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} {at:%Z}" if at else "—"
        lines.append(f"{hop.site:<7} {hop.place:<{wide}}  {when:<27}  {after:>9}  {hop.note}")
        if hop.next:
            lines.append(f"{'':7} → {hop.next}")
    return lines

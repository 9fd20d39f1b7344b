"""A simulated edge that posts a farm's history to the cloud, with the key that it enrolled.

[history] --POST /api/v1/ingestion/batch, by the edge's own client--> cloud-ingestion

Ids follow from the events, so a history that was posted in part may be posted again from its start.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice

import httpx2

from farmiq.config import EdgeSettings
from farmiq.edge.sync import rules
from farmiq.edge.sync.cloud import Cloud
from farmiq.lab.simulate.life import history
from farmiq.lab.simulate.life.flocks import Life, Standard
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import ids
from farmiq.plumbing.backoff import Backoff

BATCH = 500
# (events posted, events in all)
Report = Callable[[int, int], None]


class HistoryError(Exception):
    """The cloud rejects the history; the text is its answer."""


async def post(
    life: Life, expected: Standard, settings: EdgeSettings, *, report: Report = lambda *_: None
) -> int:
    """Post every event, oldest first; waits for a cloud that is away. Returns how many there are.

    Raises HistoryError.
    """
    events = await asyncio.to_thread(events_of, life, expected)
    left, posted = iter(events), 0
    async with Cloud(lambda: httpx2.AsyncClient(timeout=settings.sync_timeout_s), settings) as edge:
        report(posted, len(events))
        while batch := list(islice(left, BATCH)):
            await _deliver(edge, life.tenant_id, batch)
            posted += len(batch)
            report(posted, len(events))
    return posted


def events_of(life: Life, expected: Standard) -> list[BusEvent]:
    """Pure: the whole history in the order of time."""
    return sorted(_events(life, expected), key=lambda event: event.occurred_at)


def _events(life: Life, expected: Standard) -> Iterator[BusEvent]:
    for day in history.lived(life, expected):
        yield from day.events


async def _deliver(edge: Cloud, tenant_id: str, batch: list[BusEvent]) -> None:
    backoff = Backoff(cap_s=5.0)
    while True:
        answer = await edge.send(f"history-{ids.new()}", tenant_id, batch)
        match rules.classify_response(answer, count=len(batch)):
            case rules.Delivered():
                return
            case rules.Unavailable():
                await backoff.wait()
            case rules.Permanent(reasons):
                raise HistoryError(f"{len(reasons)} events: {next(iter(reasons.values()))}")
            case rules.Transient(code, message):
                raise HistoryError(f"{code}: {message}")

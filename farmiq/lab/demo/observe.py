"""What is where, right now: the figures of the live view and of the smoke check.

All of them count one run: what the simulators made since it began, at every place on its way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import psycopg
from prometheus_client.parser import text_string_to_metric_families
from psycopg.rows import dict_row

from farmiq.cloud.bus import TELEMETRY_QUEUE
from farmiq.lab.demo.provision import TENANT_ID
from farmiq.lab.simulate import camera_account, check, stations, weighings
from farmiq.lab.simulate.check import Findings
from farmiq.lab.simulate.journal import Tally
from farmiq.lab.simulate.weighings import Session
from farmiq.plumbing import db
from farmiq.plumbing.bus import amqp

# So long a look waits for one place; a database that is frozen answers later or never.
PATIENCE_S = 2.0
# A bird weighs about 2 kg.
TOLERANCE_KG = 0.05


@dataclass(frozen=True, slots=True)
class EdgeFigures:
    """`stored` counts what sensors sent: readings, feed and records of barns.

    What waits in the outbox is of every kind, aggregates too, and may be of earlier runs.
    """

    stored: int
    quarantined: int
    outbox_waiting: int
    outbox_oldest_s: float | None
    outbox_dlq: int
    weighed: int
    pictures: int


@dataclass(frozen=True, slots=True)
class CloudFigures:
    """`newest_age_s` is how old the newest reading on the page is.

    `alerts` are open episodes, of this run or not; `alert` is what the gravest of them says.
    """

    stored: int
    newest_age_s: float | None
    weighed: int
    pictures: int
    images: int
    alerts: int = 0
    alert: str | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts along the way of an event; None where the place did not answer."""

    sent: int
    confirmed: int
    captured: int
    on_cards: int
    repeats_absorbed: int
    queue_waiting: int | None
    edge: EdgeFigures | None
    cloud: CloudFigures | None


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all runs, for the smoke check, which has a stack of its own."""

    edge_readings: int
    outbox_delivered: int
    cloud_accepted: int
    cloud_readings: int
    cloud_counted: int


_EDGE = """
    select
      (select count(*) from telemetry_raw where tenant_id = %(tenant)s and occurred_at >= %(since)s)
        + (select count(*) from feed_intakes
           where parent_event_id is null and occurred_at >= %(since)s)
        + (select count(*) from barn_records where occurred_at >= %(since)s),
      (select coalesce(sum(received_count), 0)::bigint from quarantine
       where last_received_at >= %(since)s),
      (select count(*) from sync_outbox where status in ('pending', 'claimed', 'sending')),
      (select extract(epoch from clock_timestamp() - min(created_at))::float8
         from sync_outbox where status in ('pending', 'claimed', 'sending')),
      (select count(*) from sync_outbox where status = 'dlq' and created_at >= %(since)s),
      (select count(*) from weight_sessions where status = 'finalized' and start_at >= %(since)s),
      (select count(*) from media_objects
       where upload_status = 'stored' and captured_at >= %(since)s)
"""
# Event ids begin with their time, so the primary keys find a run's rows. Intakes that the edge
# derives are told under the name of the silo.
_ARRIVED = """
    select event_id from telemetry_readings
      where tenant_id = %(tenant)s and event_id >= %(first)s
    union all select event_id from feed_events
      where tenant_id = %(tenant)s and event_id >= %(first)s and device_id not like '%%-silo'
    union all select event_id from barn_events
      where tenant_id = %(tenant)s and event_id >= %(first)s
"""
_OPEN = """
    select message, severity, opened_at from alert_episodes
    where tenant_id = %(tenant)s and state in ('active', 'acknowledged')
"""
_CLOUD = f"""
    select (select count(*) from ({_ARRIVED}) arrived),
      (select extract(epoch from clock_timestamp() - max(occurred_at))::float8
         from telemetry_latest where tenant_id = %(tenant)s),
      (select count(*) from weight_sessions where status = 'finalized' and start_at >= %(since)s),
      (select count(*) from media_objects
       where stored_at is not null and captured_at >= %(since)s),
      (select count(*) from device_images where status = 'complete' and created_at >= %(since)s),
      (select count(*) from ({_OPEN}) episodes),
      (select message from ({_OPEN}) episodes
       order by severity in ('critical', 'security') desc, opened_at desc limit 1)
"""  # noqa: S608 - of constants


_EDGE_READINGS = """
    select id::text as event_id, device_id, metric_type, metric_value, unit, occurred_at
    from telemetry_raw
"""
_CLOUD_READINGS = """
    select event_id::text, device_id, metric_type, metric_value, unit, occurred_at
    from telemetry_readings
"""
# Sessions with the hashes of the bytes that each site found in its bucket.
_EDGE_SESSIONS = """
    select s.id::text, s.status, s.final_weight_kg, s.image_count,
      array(select m.sha256 from media_objects m
        where m.session_id = s.id and m.upload_status = 'stored' and m.sha256 is not null)
    from weight_sessions s
"""
_CLOUD_SESSIONS = """
    select s.session_id::text, s.status, s.final_weight_kg, s.image_count,
      array(select m.sha256 from media_objects m
        where m.tenant_id = s.tenant_id and m.media_id = any(s.media_ids)
          and m.stored_at is not null)
    from weight_sessions s
"""


class Observer:
    """Looks with the owners' eyes: it is the demo's, no service has these rights."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        edge_url: str,
        journal: Path,
        stations: Path,
        captures: Path,
        since: datetime,
    ) -> None:
        self._urls = {
            "edge": environment["FARMIQ_EDGE_DB_ADMIN_URL"],
            "cloud": environment["FARMIQ_CLOUD_DB_ADMIN_URL"],
        }
        self._connections: dict[str, Any] = {}
        self._open_queries: dict[str, asyncio.Task[Any]] = {}
        self._amqp_url = environment["FARMIQ_AMQP_URL"]
        self._edge_url, self._stations, self._captures = edge_url, stations, captures
        first = UUID(int=int(since.timestamp() * 1000) << 80)
        self._run = {"tenant": TENANT_ID, "since": since, "first": first}
        self._repeats_seen, self._repeats_before = 0, 0
        self.tally = Tally(journal)

    async def look(self) -> Figures:
        """Return within PATIENCE_S; a place that does not answer by then is left out."""
        edge, cloud, queue, _ = await asyncio.gather(
            self._bounded("edge", self._edge_figures),
            self._bounded("cloud", self._cloud_figures),
            self._bounded("queue", self._queue),
            self._bounded("repeats", self._count_repeats),
        )
        # The journals last: nothing can be further than they say.
        self.tally.look()
        cameras = camera_account.read(self._captures)
        return Figures(
            sent=self.tally.count("sent"),
            confirmed=self.tally.count("ok"),
            captured=len(cameras.captures),
            on_cards=len(cameras.waiting),
            repeats_absorbed=self._repeats_before + self._repeats_seen,
            queue_waiting=queue,
            edge=edge,
            cloud=cloud,
        )

    async def totals(self) -> Totals:
        edge = await self._row(
            "edge",
            "select (select count(*) from telemetry_raw), "
            "(select count(*) from sync_outbox where status = 'acked')",
        )
        cloud = await self._row(
            "cloud",
            "select (select count(*) from ingestion_dedupe), (select count(*) from "
            "telemetry_readings), (select coalesce(sum(reading_count), 0)::bigint "
            "from telemetry_latest)",
        )
        return Totals(*edge, *cloud)

    async def missing(self, event_ids: set[str]) -> set[str]:
        """Return those of these events of this run that are not in the cloud's tables."""
        rows = await self._rows("cloud", _ARRIVED, self._run)
        return event_ids - {str(row[0]) for row in rows}

    async def aggregated(self, event_ids: set[str]) -> set[str]:
        """Return those that the edge has and does not send: they go as aggregates."""
        query = """
            select r.id from telemetry_raw r join metric_settings using (metric_type)
            where r.id = any(%(ids)s::uuid[])
              and not exists (select from sync_outbox o where o.id = r.id)
        """
        rows = await self._rows("edge", query, {"ids": list(event_ids)}) if event_ids else []
        return {str(row[0]) for row in rows}

    async def counted_twice(self) -> int:
        """Return how many readings more the page's totals have than there are rows, of all runs."""
        row = await self._row(
            "cloud",
            "select (select coalesce(sum(reading_count), 0) from telemetry_latest)::bigint "
            "- (select count(*) from telemetry_readings)",
        )
        return int(row[0])

    async def weighed_days(self, *, before: date) -> int:
        """Return how many days of batches before a date have a figure of their weighings."""
        row = await self._row(
            "cloud",
            "select count(*) from kpi_daily where tenant_id = %(tenant)s and kpi_date < %(before)s "
            "and kpi_type = 'weight_mean' and value is not null",
            {"tenant": TENANT_ID, "before": before},
        )
        return int(row[0])

    async def aclose(self) -> None:
        for task in self._open_queries.values():
            task.cancel()
        await asyncio.gather(*self._open_queries.values(), return_exceptions=True)
        for connection in self._connections.values():
            await connection.close()

    async def at_the_edge(self) -> list[tuple[str, str]]:
        """(event id, content) of everything that devices sent."""
        return [
            *await _contents(await self._connection("edge"), _EDGE_READINGS, check.content),
            *await _recorded(await self._connection("edge"), delivered=False),
        ]

    async def in_the_cloud(self) -> list[tuple[str, str]]:
        """The same; of what has no table there yet, what the cloud has confirmed to the outbox."""
        return [
            *await _contents(await self._connection("cloud"), _CLOUD_READINGS, check.content),
            *await _recorded(await self._connection("edge"), delivered=True),
        ]

    async def weighings(self) -> tuple[Findings, Findings]:
        """Who stood on the scales against the sessions and pictures of the edge and the cloud."""
        visits = stations.read_all(self._stations)
        return (
            weighings.compare(
                visits, await self._sessions("edge", _EDGE_SESSIONS), tolerance_kg=TOLERANCE_KG
            ),
            weighings.compare(
                visits, await self._sessions("cloud", _CLOUD_SESSIONS), tolerance_kg=TOLERANCE_KG
            ),
        )

    async def _sessions(self, site: str, query: str) -> list[Session]:
        return [
            Session(
                session_id=session_id,
                status=status,
                weight_kg=weight_kg,
                image_count=image_count,
                sha256s=tuple(sha256s),
            )
            for session_id, status, weight_kg, image_count, sha256s in await self._rows(site, query)
        ]

    async def _bounded(self, place: str, query: Callable[[], Awaitable[Any]]) -> Any:
        """Ask a place; a question that is not answered in time stays open for the next look."""
        task = self._open_queries.get(place)
        if task is None or task.done():
            task = self._open_queries[place] = asyncio.ensure_future(query())
            # One that fails after its time asks nobody: the next look asks anew.
            task.add_done_callback(lambda late: late.cancelled() or late.exception())
        await asyncio.wait([task], timeout=PATIENCE_S)
        if not task.done():
            return None
        try:
            return task.result()
        except (*db.UNAVAILABLE, *amqp.UNAVAILABLE, httpx2.HTTPError):
            return None

    async def _edge_figures(self) -> EdgeFigures:
        return EdgeFigures(*await self._row("edge", _EDGE, self._run))

    async def _cloud_figures(self) -> CloudFigures:
        return CloudFigures(*await self._row("cloud", _CLOUD, self._run))

    async def _queue(self) -> int | None:
        depth = await amqp.depth(self._amqp_url, TELEMETRY_QUEUE)
        return depth[0] if depth else None

    async def _count_repeats(self) -> None:
        """Messages that came again and changed nothing; a gateway that restarts counts anew."""
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
            text = (await client.get(f"{self._edge_url}/metrics")).text
        now = sum(
            int(sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "farmiq_ingress_messages_total"
            and sample.labels["outcome"] == "repeated"
        )
        if now < self._repeats_seen:
            self._repeats_before += self._repeats_seen
        self._repeats_seen = now

    async def _connection(self, site: str) -> Any:
        if site not in self._connections:
            self._connections[site] = await psycopg.AsyncConnection.connect(
                self._urls[site], autocommit=True, connect_timeout=5
            )
        return self._connections[site]

    async def _rows(self, site: str, query: str, values: Mapping[str, Any] | None = None) -> Any:
        try:
            cursor = await (await self._connection(site)).execute(query, values)
            return await cursor.fetchall()
        except db.UNAVAILABLE:
            # The next look connects anew.
            self._connections.pop(site, None)
            raise

    async def _row(self, site: str, query: str, values: Mapping[str, Any] | None = None) -> Any:
        return (await self._rows(site, query, values))[0]


async def _recorded(connection: Any, *, delivered: bool) -> list[tuple[str, str]]:
    """Feed and barn: (event id, content) of what devices sent, or of what was delivered of it."""
    intakes = """
        select i.intake_id::text as event_id, i.device_id, i.source, i.feed_lot_id, i.quantity_kg,
          i.occurred_at
        from feed_intakes i left join sync_outbox o on o.id = i.intake_id and o.status = 'acked'
        where i.parent_event_id is null and (not %s or o.id is not null)
        """
    records = """
        select r.event_id::text, r.device_id, r.record_id, r.record_type,
          coalesce(to_jsonb(r.value_number), to_jsonb(r.value_text)) as value, r.recorded_at
        from barn_records r left join sync_outbox o on o.id = r.event_id and o.status = 'acked'
        where not %s or o.id is not null
        """
    return [
        *await _contents(connection, intakes, check.intake, delivered),
        *await _contents(connection, records, _record, delivered),
    ]


def _record(*, value: Any, **columns: Any) -> str:
    return check.record(value=value if isinstance(value, str) else float(value), **columns)


async def _contents(
    connection: Any, query: str, describe: Callable[..., str], *values: object
) -> list[tuple[str, str]]:
    """(event id, content) of every row, in the checker's words."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(query, values or None)
        return [(row.pop("event_id"), describe(**row)) for row in await cursor.fetchall()]

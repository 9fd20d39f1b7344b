"""What is where, right now: the figures of the live view and of the smoke check."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from prometheus_client.parser import text_string_to_metric_families
from psycopg import sql

from farmiq.cloud.bus import TELEMETRY_QUEUE
from farmiq.demo import weighed
from farmiq.plumbing import amqp
from farmiq.simulate import check, weighings
from farmiq.simulate.check import Findings
from farmiq.simulate.journal import Tally


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts along the way of an event; ages in seconds, None when there is nothing to be old.

    `edge_stored` counts what devices sent; of it, `edge_readings` have a table in the cloud.
    """

    sent: int
    confirmed: int
    receipted: int
    edge_stored: int
    edge_readings: int
    repeats_absorbed: int
    quarantined: int
    outbox_waiting: int
    outbox_oldest_s: float | None
    outbox_dlq: int
    outbox_delivered: int
    cloud_accepted: int
    queue_waiting: int | None
    cloud_stored: int
    cloud_counted: int
    newest_age_s: float | None
    weighed_edge: int
    weighed_cloud: int
    pictures_edge: int
    pictures_cloud: int


class Observer:
    """Looks with the owners' eyes: it is the demo's, no service has these rights."""

    def __init__(
        self, edge: Any, cloud: Any, *, amqp_url: str, edge_url: str, journal: Path, stations: Path
    ) -> None:
        self._edge, self._cloud, self._amqp_url = edge, cloud, amqp_url
        self._stations = stations
        self._edge_url = edge_url
        self.tally = Tally(journal)

    async def look(self) -> Figures:
        self.tally.look()
        edge = await _row(
            self._edge,
            """
            select (select count(*) from telemetry_raw),
              (select coalesce(sum(received_count), 0) from quarantine),
              (select count(*) from sync_outbox where status in ('pending', 'claimed', 'sending')),
              (select extract(epoch from clock_timestamp() - min(created_at))
                 from sync_outbox where status in ('pending', 'claimed', 'sending')),
              (select count(*) from sync_outbox where status = 'dlq'),
              (select count(*) from sync_outbox where status = 'acked'),
              (select count(*) from feed_intakes where parent_event_id is null)
                + (select count(*) from barn_records),
              (select count(*) from weight_sessions where status = 'finalized'),
              (select count(*) from media_objects where upload_status = 'stored')
            """,
        )
        cloud = await _row(
            self._cloud,
            """
            select (select count(*) from ingestion_dedupe),
              (select count(*) from telemetry_readings),
              (select coalesce(sum(reading_count), 0) from telemetry_latest),
              (select extract(epoch from clock_timestamp() - max(occurred_at))
                 from telemetry_latest),
              (select count(*) from weight_sessions where status = 'finalized'),
              (select count(*) from media_objects where stored_at is not null)
            """,
        )
        return Figures(
            sent=self.tally.count("sent"),
            confirmed=self.tally.count("ok"),
            receipted=self.tally.count("stored"),
            edge_stored=edge[0] + edge[6],
            edge_readings=edge[0],
            repeats_absorbed=await self._repeats(),
            quarantined=int(edge[1]),
            outbox_waiting=edge[2],
            outbox_oldest_s=_seconds(edge[3]),
            outbox_dlq=edge[4],
            outbox_delivered=edge[5],
            cloud_accepted=cloud[0],
            queue_waiting=await self._queue(),
            cloud_stored=cloud[1],
            cloud_counted=int(cloud[2]),
            newest_age_s=_seconds(cloud[3]),
            weighed_edge=edge[7],
            weighed_cloud=cloud[4],
            pictures_edge=edge[8],
            pictures_cloud=cloud[5],
        )

    async def at_the_edge(self) -> list[tuple[str, str]]:
        """(event id, content) of everything that devices sent."""
        return [
            *await _readings(self._edge, "telemetry_raw", "id"),
            *await _told(self._edge, delivered=False),
        ]

    async def in_the_cloud(self) -> list[tuple[str, str]]:
        """The same; of what has no table there yet, what the cloud has confirmed to the outbox."""
        return [
            *await _readings(self._cloud, "telemetry_readings", "event_id"),
            *await _told(self._edge, delivered=True),
        ]

    async def weighings(self) -> tuple[Findings, Findings]:
        """Who stood on the scales against the sessions and pictures of the edge and the cloud."""
        visits = weighed.visited(self._stations)
        return (
            weighings.compare(visits, await weighed.at_the_edge(self._edge)),
            weighings.compare(visits, await weighed.in_the_cloud(self._cloud)),
        )

    async def _repeats(self) -> int:
        """Messages that came again and changed nothing, as the gateway counts them."""
        try:
            async with httpx2.AsyncClient(timeout=5) as client:
                text = (await client.get(f"{self._edge_url}/metrics")).text
        except httpx2.HTTPError:
            return 0
        samples = (
            each for family in text_string_to_metric_families(text) for each in family.samples
        )
        return sum(
            int(each.value)
            for each in samples
            if each.name == "farmiq_ingress_messages_total" and each.labels["outcome"] == "repeated"
        )

    async def _queue(self) -> int | None:
        try:
            found = await amqp.depth(self._amqp_url, TELEMETRY_QUEUE)
        except amqp.UNAVAILABLE:
            return None
        return found[0] if found else None


@contextlib.asynccontextmanager
async def observing(
    environment: Mapping[str, str], *, edge_url: str, journal: Path, stations: Path
) -> AsyncIterator[Observer]:
    edge_db = environment["FARMIQ_EDGE_DB_ADMIN_URL"]
    cloud_db = environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
    async with (
        await psycopg.AsyncConnection.connect(edge_db, autocommit=True) as edge,
        await psycopg.AsyncConnection.connect(cloud_db, autocommit=True) as cloud,
    ):
        amqp_url = environment["FARMIQ_AMQP_URL"]
        yield Observer(
            edge, cloud, amqp_url=amqp_url, edge_url=edge_url, journal=journal, stations=stations
        )


async def _row(connection: Any, query: str) -> tuple[Any, ...]:
    cursor = await connection.execute(query)
    row: tuple[Any, ...] = await cursor.fetchone()
    return row


async def _readings(connection: Any, table: str, key: str) -> list[tuple[str, str]]:
    """(event id, content) of every row, in the checker's words."""
    cursor = await connection.execute(
        sql.SQL(
            "select {}::text, device_id, metric_type, metric_value, unit, occurred_at from {}"
        ).format(sql.Identifier(key), sql.Identifier(table))
    )
    return [
        (
            row[0],
            check.content(
                device_id=row[1],
                metric_type=row[2],
                metric_value=row[3],
                unit=row[4],
                occurred_at=row[5],
            ),
        )
        for row in await cursor.fetchall()
    ]


async def _told(connection: Any, *, delivered: bool) -> list[tuple[str, str]]:
    """Feed and barn: (event id, content) of what devices told, or of what was delivered of it."""
    intakes = await connection.execute(
        """
        select i.intake_id::text, i.device_id, i.source, i.feed_lot_id, i.quantity_kg, i.occurred_at
        from feed_intakes i left join sync_outbox o on o.id = i.intake_id and o.status = 'acked'
        where i.parent_event_id is null and (not %s or o.id is not null)
        """,
        (delivered,),
    )
    records = await connection.execute(
        """
        select r.event_id::text, r.device_id, r.record_id, r.record_type,
          coalesce(to_jsonb(r.value_number), to_jsonb(r.value_text)), r.recorded_at
        from barn_records r left join sync_outbox o on o.id = r.event_id and o.status = 'acked'
        where not %s or o.id is not null
        """,
        (delivered,),
    )
    return [
        *((row[0], _intake(row[1:])) for row in await intakes.fetchall()),
        *((row[0], _record(row[1:])) for row in await records.fetchall()),
    ]


def _intake(row: tuple[Any, ...]) -> str:
    device_id, source, feed_lot_id, quantity_kg, occurred_at = row
    return check.intake(
        device_id=device_id,
        source=source,
        feed_lot_id=feed_lot_id,
        quantity_kg=quantity_kg,
        occurred_at=occurred_at,
    )


def _record(row: tuple[Any, ...]) -> str:
    device_id, record_id, record_type, value, recorded_at = row
    return check.record(
        device_id=device_id,
        record_id=record_id,
        record_type=record_type,
        value=value if isinstance(value, str) else float(value),
        recorded_at=recorded_at,
    )


def _seconds(value: Any) -> float | None:
    return None if value is None else max(0.0, float(value))

"""Ingestion: publishes every event of an edge's batch on the bus, then accepts the batch.

edge-sync-forwarder --POST batch--> [ingestion] --ingestion_dedupe, farmiq.*.exchange--> consumers

Publishing happens inside the transaction (C-10): 202 means stored AND confirmed by the bus. After a
crash before the commit the edge sends again and the bus gets duplicates, which consumers ignore.
Events of the batch itself: sync.batch.sent with its events, sync.batch.acked after the commit.
"""

import asyncio
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import prometheus_client
from fastapi import Depends, Request
from fastapi.responses import JSONResponse

from farmiq import api, crash
from farmiq.cloud import publishing, retentions
from farmiq.cloud.bus import TOPOLOGY
from farmiq.cloud.edges import keyring
from farmiq.cloud.edges.keyring import Edge, Keyring
from farmiq.cloud.ingestion import batch, store
from farmiq.cloud.ingestion.backpressure import Backpressure
from farmiq.cloud.ingestion.batch import Batch, Received
from farmiq.cloud.ingestion.store import Offered, Tally
from farmiq.config import CloudSettings
from farmiq.messages import bus
from farmiq.plumbing import db, http, ids, log, retention
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.schedule import Job

NAME = "cloud-ingestion"
ROUTE = "/api/v1/ingestion/batch"

RETRY_AFTER_S = 5
MAX_BYTES_IN_LOOP = 256 * 1024
POOL = 8
# Publishing holds a connection, so fewer may publish at once than there are connections (C-10).
MAX_PUBLISHING = POOL - 2
TALLY_EVERY_S = 10.0

EVENTS = prometheus_client.Counter(
    "farmiq_ingestion_events_total", "Events offered by edges", ["outcome"]
)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    async with (
        db.pool(
            settings.db_url.get_secret_value(), name=NAME, max_size=POOL, timeout_s=3.0
        ) as pool,
        amqp.publisher(
            settings.amqp_url.get_secret_value(), name=NAME, topology=TOPOLOGY, tls=settings.tls
        ) as publisher,
    ):
        backpressure = Backpressure(
            settings.amqp_url.get_secret_value(), limit=settings.ingestion_waiting, tls=settings.tls
        )
        ingestion = Ingestion(settings, Keyring(settings, pool), pool, publisher, backpressure)
        server.ready("ingestion.database", lambda: db.problem(pool))
        server.ready("ingestion.bus", publisher.problem)
        ingestion.add_to(server.app)
        known, hours = retentions.ingestion_dedupe(settings), retentions.edge_hours(settings)
        async with asyncio.TaskGroup() as group:
            group.create_task(backpressure.watch())
            for job in (
                retention.job(pool, known, name="ingestion.forget"),
                retention.job(pool, hours, name="ingestion.forget_hours"),
                Job("ingestion.tally", TALLY_EVERY_S, ingestion.write_tallies),
            ):
                group.create_task(schedule.run_repeatedly(job))


class Ingestion(api.Routes):
    def __init__(
        self,
        settings: CloudSettings,
        keys: Keyring,
        pool: db.Pool,
        publisher: amqp.Publisher,
        backpressure: Backpressure,
    ) -> None:
        self._settings, self._keyring = settings, keys
        self._pool, self._publisher, self._backpressure = pool, publisher, backpressure
        self._publishing = asyncio.Semaphore(MAX_PUBLISHING)
        self._tallies: dict[store.HourKey, Tally] = {}
        self._log = log.get(NAME)

    @api.route(
        "POST",
        ROUTE,
        batch.BatchAccepted,
        route_class_override=http.RawRoute,
        operation_id="postBatch",
        status_code=202,
        response_description="Accepted: noted, and confirmed by the bus.",
        dependencies=[
            keyring.EDGE_TOKEN,
            Depends(api.BodyOf(batch.OutboxBatch, max_bytes=batch.MAX_BYTES)),
        ],
        responses=batch.ERRORS,
    )
    async def post_batch(self, request: Request) -> JSONResponse:
        """Ingest edge outbox batch.

        The body may be sent with Content-Encoding: gzip.
        """
        edge = await self._keyring.identify(request)
        body = await _body(request)
        # A large body is parsed in a thread, so that other requests go on.
        large = len(body) > MAX_BYTES_IN_LOOP
        offered = await asyncio.to_thread(_read, body) if large else _read(body)
        _allow(edge, offered)
        batch_id = offered.batch_id or f"batch-{ids.new()}"
        async with self._backpressure.admitted(event.event_type for event in offered.events):
            known = await self._accept(
                offered, batch_id, edge=edge.edge_cluster_id, trace_id=http.trace_id(request)
            )
        answer: dict[str, object] = {"accepted": True}
        if known:
            answer["deduped"] = known
        return JSONResponse({**answer, "batchId": batch_id}, status_code=202)

    async def _accept(self, offered: Batch, batch_id: str, *, edge: str, trace_id: str) -> int:
        """Store and publish what is new; returns how many were known or repeated."""
        try:
            async with self._publishing:
                known, at = await self._store_and_publish(
                    offered, batch_id, edge=edge, trace_id=trace_id
                )
            # Not confirmed means not acknowledged: the edge sends the batch again.
            acked = _batch(offered, batch_id, at, edge=edge, trace_id=trace_id).acked()
            await self._publish(acked, batch_id=batch_id)
        except (*db.UNAVAILABLE, amqp.BusDownError) as error:
            self._log.warning("ingestion.unavailable", error=db.first_line(error))
            raise HttpError(
                503, "the database or the bus is away; try again", retry_after_s=RETRY_AFTER_S
            ) from None
        return known

    async def _store_and_publish(
        self, offered: Batch, batch_id: str, *, edge: str, trace_id: str
    ) -> tuple[int, datetime]:
        """Returns how many were known, and when the batch was first received."""
        events = [Offered(event, bus.content_hash(event)) for event in offered.events]
        # Of two events with one id the first counts; the bus gets them in the order of the batch.
        first: dict[store.Key, Offered] = {}
        for offer in events:
            first.setdefault(offer.key, offer)
        async with db.transaction(self._pool) as tx:
            await _require_known_tenants(tx, offered)
            new = await store.insert_new(tx, list(first.values()), batch_id=batch_id)
            if 0 < len(new) == len(events):
                conflicts, at = 0, next(iter(new.values()))
            else:
                conflicts = await store.insert_conflicts(tx, events, batch_id=batch_id)
                at = await store.received_at(tx, events, batch_id=batch_id)
            wanted = set(new)
            if offered.republish:
                # Known events are published again (C-99), but not with another content (C-05).
                wanted = set(first) - await store.changed(tx, list(first.values()))
            crash.here("ingestion.after_note")
            batch_events = _batch(offered, batch_id, at, edge=edge, trace_id=trace_id).sent()
            await self._publish(
                [*(offer.event for key, offer in first.items() if key in wanted), *batch_events],
                batch_id=batch_id,
            )
            crash.here("ingestion.after_publish")
        crash.here("ingestion.after_commit")
        self._count(events, new, edge)
        EVENTS.labels(outcome="new").inc(len(new))
        EVENTS.labels(outcome="deduped").inc(len(events) - len(new))
        if offered.republish:
            EVENTS.labels(outcome="republished").inc(len(wanted) - len(new))
        if conflicts:
            EVENTS.labels(outcome="conflict").inc(conflicts)
            self._log.error("ingestion.event_id_conflict", count=conflicts, batch_id=batch_id)
        return len(events) - len(new), at

    def _count(self, events: Sequence[Offered], new: Iterable[store.Key], edge: str) -> None:
        """Count for the page of the edge; written at times, so that no batch waits for it."""
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        new_by_tenant = Counter(tenant_id for tenant_id, _ in new)
        for tenant_id, count in Counter(offer.event.tenant_id for offer in events).items():
            tally = self._tallies.setdefault((tenant_id, edge, hour), Tally())
            tally.events += count
            tally.duplicates += count - new_by_tenant[tenant_id]

    async def write_tallies(self) -> dict[str, object]:
        """Counts that a killed process had not written are missing from pages; no event is."""
        tallies, self._tallies = self._tallies, {}
        if not tallies:
            return {}
        try:
            async with db.transaction(self._pool) as tx:
                await store.add_to_hours(tx, tallies)
        except db.UNAVAILABLE:
            for key, tally in tallies.items():
                later = self._tallies.setdefault(key, Tally())
                later.events += tally.events
                later.duplicates += tally.duplicates
            raise
        return {"edges": len(tallies)}

    async def _publish(self, events: Sequence[bus.BusEvent], *, batch_id: str) -> None:
        await publishing.publish(
            self._publisher, events, timeout_s=self._settings.bus_timeout_s, batch_id=batch_id
        )
        self._log.info("ingestion.published", batch_id=batch_id, count=len(events))
        named = ((event.event_id, event.event_type, event.trace_id) for event in events)
        log.events(self._log, "ingestion.events", named, batch_id=batch_id)


def _batch(offered: Batch, batch_id: str, at: datetime, *, edge: str, trace_id: str) -> Received:
    counts = Counter(event.tenant_id for event in offered.events)
    return Received(batch_id, edge, counts, at, trace_id)


async def _body(request: Request) -> bytes:
    """The body; raises HttpError 413 as soon as it is larger than a batch may be."""
    unpack = _unpacker(request.headers.get("content-encoding", ""))
    body = bytearray()
    async for part in http.body_parts(request, what="a batch", max_bytes=batch.MAX_BYTES):
        body += unpack(part, batch.MAX_BYTES + 1 - len(body))
        if len(body) > batch.MAX_BYTES:
            raise HttpError(413, f"a batch has at most {batch.MAX_BYTES} bytes")
    return bytes(body + unpack(b"", batch.MAX_BYTES + 1 - len(body)))


def _unpacker(encoding: str) -> Callable[[bytes, int], bytes]:
    """Returns a function that decompresses a part, up to a number of bytes; b"" ends the body."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return lambda part, _: part
    if name != "gzip":
        raise HttpError(415, "send the batch as it is or with Content-Encoding: gzip")
    gzip = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)

    def unpack(part: bytes, max_bytes: int) -> bytes:
        try:
            unpacked = gzip.decompress(part, max_bytes)
        except zlib.error as error:
            raise HttpError(400, f"the body is not gzip: {error}") from None
        if gzip.unused_data or (not part and not gzip.eof):
            raise HttpError(400, "the gzip body is cut off or has something behind its end")
        return unpacked

    return unpack


def _read(body: bytes) -> Batch:
    try:
        return batch.read(body)
    except batch.TooLargeError as large:
        raise HttpError(413, large.message) from None
    except batch.BadBatchError as bad:
        raise HttpError(400, bad.message, details=bad.details) from None


def _allow(edge: Edge, offered: Batch) -> None:
    others = {event.tenant_id for event in offered.events}.difference(edge.tenants)
    if others:
        raise HttpError(403, f"this token does not speak for tenant {min(others)!r}")
    if details := batch.not_an_edges(offered.events):
        kinds = ", ".join(sorted({detail["event_type"] for detail in details}))
        log.get(NAME).error("ingestion.not_an_edges", name=edge.edge_cluster_id, event_type=kinds)
        EVENTS.labels(outcome="not an edge's").inc(len(details))
        raise HttpError(403, f"only the cloud makes {kinds}: no edge may post it", details=details)
    if offered.republish and not edge.admin:
        raise HttpError(403, "to republish takes a token with the role admin (farmiq resync)")


async def _require_known_tenants(tx: db.Connection, offered: Batch) -> None:
    unknown = await store.unknown_tenants(tx, sorted({e.tenant_id for e in offered.events}))
    if unknown:
        log.get(NAME).error("ingestion.unknown_tenant", tenant_id=unknown[0])
        raise HttpError(403, f"tenant {unknown[0]!r} is not registered here")

"""Telemetry in the cloud: readings from the bus into tables, acknowledged after the commit.

farmiq.telemetry.exchange --ingest.queue--> [telemetry] --telemetry_readings, telemetry_latest-->
console
"""

from collections.abc import Sequence

import prometheus_client
import psycopg

from farmiq import crash
from farmiq.cloud.bus import TELEMETRY_QUEUE, TOPOLOGY
from farmiq.cloud.telemetry import store
from farmiq.cloud.telemetry.store import Ingested
from farmiq.config import CloudSettings
from farmiq.messages import bus, telemetry
from farmiq.messages.check import Invalid
from farmiq.plumbing import amqp, db, http, log

NAME = "cloud-telemetry-service"

CONSUMED = prometheus_client.Counter(
    "farmiq_telemetry_events_total", "Events taken from the bus", ["outcome"]
)


async def run(settings: CloudSettings, door: http.Door) -> None:
    async with db.pool(settings.db_url.get_secret_value(), name=NAME) as pool:

        async def handle(bodies: list[bytes]) -> set[int]:
            return await keep(pool, bodies)

        consumer = amqp.Consumer(
            settings.amqp_url.get_secret_value(),
            queue=TELEMETRY_QUEUE,
            topology=TOPOLOGY,
            handle=handle,
            retry_on=db.UNAVAILABLE,
            tls=settings.tls,
        )
        door.ready("telemetry.database", lambda: db.problem(pool))
        door.ready("telemetry.queue", consumer.problem)
        await consumer.run()


async def keep(pool: db.Pool, bodies: Sequence[bytes]) -> set[int]:
    """Keep the readings; returns the positions of messages that can never be understood."""
    ingested, refused = _sort(bodies)
    try:
        new = await _record(pool, list(ingested.values()))
    except psycopg.Error as error:
        if not db.is_data_error(error):
            raise
        new, poison = await _record_one_by_one(pool, ingested)
        refused |= poison
    CONSUMED.labels(outcome="new").inc(new)
    CONSUMED.labels(outcome="repeated").inc(len(bodies) - len(refused) - new)
    CONSUMED.labels(outcome="dead").inc(len(refused))
    return refused


def _sort(bodies: Sequence[bytes]) -> tuple[dict[int, Ingested], set[int]]:
    ingested: dict[int, Ingested] = {}
    refused: set[int] = set()
    for index, body in enumerate(bodies):
        try:
            ingested[index] = _ingested(bus.read(body))
        except Invalid as invalid:
            log.get(NAME).error("telemetry.not_understood", reason="; ".join(invalid.reasons)[:500])
            refused.add(index)
    return ingested, refused


def _ingested(event: bus.BusEvent) -> Ingested:
    if not isinstance(event.device_id, str):
        raise Invalid(["a reading without a device_id belongs to no series"])
    return Ingested(event, telemetry.read_ingested(event.payload))


async def _record(pool: db.Pool, ingested: Sequence[Ingested]) -> int:
    if not ingested:
        return 0
    async with db.transaction(pool) as tx:
        new = await store.record(tx, ingested)
        crash.here("telemetry.before_commit")
    crash.here("telemetry.after_commit")
    return new


async def _record_one_by_one(pool: db.Pool, ingested: dict[int, Ingested]) -> tuple[int, set[int]]:
    """When the data of one breaks the batch, only that one goes to the dead letters."""
    new, poison = 0, set()
    for index, each in ingested.items():
        try:
            new += await _record(pool, [each])
        except psycopg.Error as error:
            if not db.is_data_error(error):
                raise
            log.get(NAME).error(
                "telemetry.poison", event_id=str(each.event.event_id), error=db.first_line(error)
            )
            poison.add(index)
    return new, poison

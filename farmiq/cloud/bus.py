"""The bus of the cloud as it should be: exchanges, queues, retries and dead letters (RB-31).

Pure: desired state made from the catalogue. `farmiq topology` compares it with a broker and applies
it; services declare their own part of it when they start, if their login may.

Names follow document 001: `farmiq.{domain}.exchange`, `farmiq.{service}.{purpose}.queue`,
`farmiq.{service}.dlq.queue`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from farmiq.messages import inference, kpi, media, sync, telemetry, weighvision
from farmiq.messages.catalogue import BUS
from farmiq.plumbing.bus.amqp import Exchange, Queue, Topology
from farmiq.plumbing.bus.consume import Route

UNROUTED_EXCHANGE = "farmiq.unrouted.exchange"
UNROUTED_QUEUE = "farmiq.cloud-ingestion.unrouted.queue"
# Routes to every queue by its name. With the default exchange, a login that may write to its retry
# queues could write into every queue; here the broker checks the names (topic permissions).
RETRY_EXCHANGE = "farmiq.retry.exchange"

# How long a message that failed waits before it is tried again; after the last it is dead (C-39).
DELAYS_S = (1.0, 5.0, 30.0, 120.0)


@dataclass(frozen=True, slots=True)
class Work:
    """What one service consumes from one queue. `events_per_s` is what a large company sends.

    `former_types` were bound by earlier versions: those that still wait are taken, and the binding
    is removed.
    """

    service: str
    purpose: str
    event_types: tuple[str, ...]
    events_per_s: float
    former_types: tuple[str, ...] = ()

    @property
    def queue(self) -> str:
        return f"farmiq.{self.service}.{self.purpose}.queue"

    @property
    def dead_letters(self) -> str:
        return f"farmiq.{self.service}.dlq.queue"

    def retry(self, delay_s: float) -> str:
        return f"farmiq.{self.service}.{self.purpose}-retry-{_delay_text(delay_s)}.queue"

    def route(self, delays_s: tuple[float, ...] = DELAYS_S) -> Route:
        retries = tuple(self.retry(delay) for delay in delays_s)
        return Route(self.queue, retries, self.dead_letters, RETRY_EXCHANGE)


def _delay_text(delay_s: float) -> str:
    return f"{delay_s:.0f}s" if delay_s == int(delay_s) else f"{delay_s * 1000:.0f}ms"


def _family(name: str) -> tuple[str, ...]:
    return tuple(kind for kind in BUS if kind.startswith(f"{name}."))


TELEMETRY = Work("cloud-telemetry-service", "ingest", (telemetry.INGESTED,), 20)
AGGREGATES = Work("cloud-telemetry-service", "agg", (telemetry.AGGREGATED,), 2)
WEIGHVISION = Work("cloud-weighvision-service", "ingest", _family("weighvision"), 5)
MEDIA = Work("cloud-media-store", "store", (media.STORED,), 2)
INFERENCE = Work("cloud-inference-service", "ingest", _family("inference"), 2)
FEED = Work("cloud-feed-service", "ingest", _family("feed"), 2)
BARN = Work("cloud-barn-service", "ingest", _family("barn"), 1)
DEVICE = Work("cloud-device-service", "ingest", _family("device"), 2)
SYNC = Work("cloud-sync-service", "ingest", (sync.BATCH_SENT, sync.BATCH_ACKED), 8)
KPI = Work("cloud-analytics-service", "kpi", (kpi.DAILY_UPDATED,), 1)
# Events that mark days (C-112); a weighing that comes after its session's end changes its weight.
# The days of readings are marked by cloud-telemetry-service, which reads each of them once (D-470).
DAYS = Work(
    "cloud-analytics-service",
    "days",
    (
        telemetry.AGGREGATED,
        weighvision.SESSION_CREATED,
        weighvision.SESSION_FINALIZED,
        weighvision.SESSION_CANCELLED,
        weighvision.WEIGHT_RECORDED,
        inference.COMPLETED,
        *_family("feed"),
        *_family("barn"),
    ),
    10,
    former_types=(telemetry.INGESTED,),
)
# Values that alert rules look at, and the alerts of edges (C-110); readings come from the table
# alert_readings (D-471).
ALERTS = Work(
    "cloud-alerts-service",
    "signals",
    (telemetry.AGGREGATED, kpi.DAILY_UPDATED),
    5,
    former_types=(telemetry.INGESTED,),
)
EDGE = Work("cloud-alerts-service", "edge", _family("edge"), 1)
# Each stores the events of its queue in a table.
SINKS = (TELEMETRY, AGGREGATES, WEIGHVISION, MEDIA, INFERENCE, FEED, BARN, DEVICE, SYNC, KPI)
WORKS = (*SINKS, DAYS, ALERTS, EDGE)

TELEMETRY_QUEUE = TELEMETRY.queue

EXCHANGES = (
    Exchange(UNROUTED_EXCHANGE),
    Exchange(RETRY_EXCHANGE),
    *(
        Exchange(name, alternate=UNROUTED_EXCHANGE)
        for name in sorted({kind.exchange for kind in BUS.values()})
    ),
)
_UNROUTED = Queue(UNROUTED_QUEUE, bindings=((UNROUTED_EXCHANGE, "#"),))


def _work_queue(work: Work) -> Queue:
    bindings = tuple((BUS[kind].exchange, kind) for kind in work.event_types)
    by_name = (RETRY_EXCHANGE, work.queue)
    return Queue(
        work.queue,
        bindings=(*bindings, by_name),
        former_bindings=tuple((BUS[kind].exchange, kind) for kind in work.former_types),
        dead_letters=work.dead_letters,
    )


def _retry_and_dead_letters(work: Work, delays_s: tuple[float, ...]) -> Iterator[Queue]:
    yield Queue(work.dead_letters, bindings=((RETRY_EXCHANGE, work.dead_letters),))
    for delay_s in delays_s:
        name = work.retry(delay_s)
        yield Queue(
            name,
            bindings=((RETRY_EXCHANGE, name),),
            dead_letters=work.queue,
            ttl_ms=round(delay_s * 1000),
        )


# What has to be there before anything is published: with a queue missing, its events would go to
# the unrouted ones, which no service consumes.
TOPOLOGY = Topology(EXCHANGES, (_UNROUTED, *map(_work_queue, WORKS)))


def part(work: Work, delays_s: tuple[float, ...] = DELAYS_S) -> Topology:
    """What the consumer of one queue needs."""
    sources = {BUS[kind].exchange for kind in (*work.event_types, *work.former_types)}
    sources |= {UNROUTED_EXCHANGE, RETRY_EXCHANGE}
    exchanges = tuple(exchange for exchange in EXCHANGES if exchange.name in sources)
    return Topology(exchanges, (*_retry_and_dead_letters(work, delays_s), _work_queue(work)))


def unknown_tenant(tenant_id: str | None) -> str:
    """Why a consumer does not take an event of a tenant that is no company here (C-104)."""
    return f"tenant {tenant_id!r} is not registered here"


def max_waiting(work: Work, *, days: float, scale: float) -> int:
    """How many events come while the consumer is down for so long: the limit of its queue."""
    return round(work.events_per_s * scale * days * 86400)


def whole(delays_s: tuple[float, ...] = DELAYS_S) -> Topology:
    """All exchanges and queues."""
    queues = {
        queue.name: queue for work in WORKS for queue in _retry_and_dead_letters(work, delays_s)
    }
    return Topology(EXCHANGES, (*TOPOLOGY.queues, *queues.values()))

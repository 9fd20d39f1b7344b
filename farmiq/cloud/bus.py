"""The bus of the cloud: its exchanges and queues, as code (RB-31)."""

from farmiq.messages.catalogue import BUS
from farmiq.messages.telemetry import INGESTED
from farmiq.plumbing.amqp import Exchange, Queue, Topology

UNROUTED_EXCHANGE = "farmiq.unrouted.exchange"
UNROUTED_QUEUE = "farmiq.cloud-ingestion.unrouted.queue"
TELEMETRY_QUEUE = "farmiq.cloud-telemetry-service.ingest.queue"
TELEMETRY_DEAD_LETTERS = "farmiq.cloud-telemetry-service.dlq.queue"

TOPOLOGY = Topology(
    exchanges=(
        Exchange(UNROUTED_EXCHANGE),
        *(
            Exchange(name, alternate=UNROUTED_EXCHANGE)
            for name in sorted({kind.exchange for kind in BUS.values()})
        ),
    ),
    queues=(
        Queue(UNROUTED_QUEUE, bindings=((UNROUTED_EXCHANGE, "#"),)),
        Queue(TELEMETRY_DEAD_LETTERS),
        Queue(
            TELEMETRY_QUEUE,
            bindings=((BUS[INGESTED].exchange, INGESTED),),
            dead_letters=TELEMETRY_DEAD_LETTERS,
        ),
    ),
)

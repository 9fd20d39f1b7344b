"""The broker's streams at the edge: their limits, and the log that ingress reads."""

from dataclasses import replace
from urllib.parse import urlsplit

import httpx2

from farmiq.config import EdgeSettings
from farmiq.config.settings import secret
from farmiq.messages import topics
from farmiq.nats_users import subject
from farmiq.plumbing import db
from farmiq.plumbing.broker.store import Bounds, LogStream, Store

# What MQTT clients send with QoS 1 lies under this prefix in the broker.
QOS1 = "$MQTT.msgs."

# A device's status is retained (C-45), nothing else is.
BOUNDS = Bounds(
    retained=[subject(topic) for topic in topics.UP if topic in topics.RETAINED],
    not_retained=[subject(topic) for topic in topics.UP if topic not in topics.RETAINED],
)
# What devices send is the log; what goes down to them stays in the broker's queue.
LOG = LogStream(
    topics.LOG,
    subjects=[QOS1 + subject(topic) for topic in topics.UP],
    queue_subjects=[QOS1 + subject(topic) for topic in topics.DOWN],
)


def log_url(settings: EdgeSettings) -> str | None:
    """Where the broker's log is read, or None where ingress has a session at the broker."""
    url = secret(settings.ingress_url)
    return url if url is not None and urlsplit(url).scheme in {"nats", "tls"} else None


def store(settings: EdgeSettings, pool: db.Pool, web: httpx2.AsyncClient) -> Store | None:
    """Limits the broker's streams and creates the log, if this edge administers the broker."""
    if settings.broker_monitor_url is None:
        return None
    return Store(
        pool,
        web,
        nats_url=secret(settings.broker_nats_url),
        monitor_url=settings.broker_monitor_url,
        bounds=replace(
            BOUNDS,
            log=None if log_url(settings) is None else LOG,
            replicas=settings.broker_replicas,
        ),
        tls=settings.tls,
    )

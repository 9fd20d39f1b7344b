"""What a NATS broker may keep: bounds for its streams, and a word in time before they are full.

A broker whose store is full lets nobody in any more, not even after a restart. So what one sender
can make it keep is bounded: a message is retained only where the topic map says so and only if it
is short, and the queue of what nobody has taken leaves room for sessions and logins.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from farmiq.plumbing import db, hosts
from farmiq.plumbing.backoff import Attempts
from farmiq.plumbing.messaging import nats, stream
from farmiq.plumbing.tls import Tls

QUEUE, RETAINED, QOS2 = "$MQTT_msgs", "$MQTT_rmsgs", "$MQTT_qos2in"
# A retained message on any other topic meets this stream, which takes none: the broker delivers
# the message as usual, keeps nothing and says so in its log. It is in memory because it must be
# gone after a restart: the broker then claims all these subjects before it lets the first client
# in, and lets in nobody if another stream has them. We narrow them again with the next look.
NOT_RETAINED = "FARMIQ_NOT_RETAINED"
MAX_RETAINED_BYTES = 16 * 1024
# Of the whole store: the queue, what is retained, and messages of QoS 2 that their senders have
# not released. The rest is for sessions. Where a gateway reads a log, that has most of the queue.
QUEUE_SHARE, RETAINED_SHARE, QOS2_SHARE = 0.75, 0.10, 0.05
LOG_SHARE = 0.60
# An alert opens at this share of the store, and closes below the second.
WARN_SHARE, CALM_SHARE = 0.5, 0.4
TIMEOUT_S = 5.0

_PREFIX = "$MQTT.rmsgs."
_STREAM_NOT_FOUND = 10059
_UNAVAILABLE = (
    httpx2.HTTPError, httpx2.InvalidURL, msgspec.DecodeError, nats.NatsError, *db.PASSING
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogStream:
    """The stream that a gateway reads (stream.py), and its subjects.

    `queue_subjects` is what is left to the broker's own queue: no subject may be in both.
    """

    name: str
    subjects: Sequence[str]
    queue_subjects: Sequence[str]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Subjects of devices: where a message may be retained, and where none is."""

    retained: Sequence[str]
    not_retained: Sequence[str]
    log: LogStream | None = None
    # How many nodes of a cluster hold each message.
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Use:
    used_bytes: int
    max_bytes: int

    @property
    def share(self) -> float:
        return self.used_bytes / self.max_bytes if self.max_bytes > 0 else 0.0

    def words(self) -> str:
        return f"{self.share:.0%} of the {self.max_bytes / 2**20:.0f} MiB that it may keep"


class _JetStream(msgspec.Struct, frozen=True):
    class Config(msgspec.Struct, frozen=True):
        max_storage: int = 0

    storage: int = 0
    config: Config = Config()


_jsz = msgspec.json.Decoder(_JetStream)


def changes(bounds: Bounds, *, store_bytes: int) -> dict[str, dict[str, Any]]:
    """By stream: what has to be so in its configuration."""
    queue: dict[str, Any] = {"max_bytes": int(store_bytes * QUEUE_SHARE), "discard": "new"}
    if bounds.log is not None:
        queue["max_bytes"] = int(store_bytes * (QUEUE_SHARE - LOG_SHARE))
    retained: dict[str, Any] = {
        "max_msg_size": MAX_RETAINED_BYTES,
        "max_bytes": int(store_bytes * RETAINED_SHARE),
        "discard": "new",
    }
    if bounds.replicas == 1:
        retained["subjects"] = [_PREFIX + subject for subject in bounds.retained]
    return {RETAINED: retained, QUEUE: queue, QOS2: {"max_bytes": int(store_bytes * QOS2_SHARE)}}


def sink(bounds: Bounds) -> dict[str, Any]:
    return {
        "name": NOT_RETAINED,
        "subjects": [_PREFIX + subject for subject in bounds.not_retained],
        "storage": "memory",
        "retention": "limits",
        "max_msgs": 1,
        "max_msg_size": 1,
    }


def queue(bounds: LogStream, *, replicas: int) -> dict[str, Any]:
    """The broker's queue, made before it makes one itself with all subjects."""
    return {
        "name": QUEUE,
        "subjects": list(bounds.queue_subjects),
        "storage": "file",
        "retention": "interest",
        "num_replicas": replicas,
    }


def log_stream(bounds: LogStream, *, store_bytes: int, replicas: int) -> dict[str, Any]:
    return {
        "name": bounds.name,
        "subjects": list(bounds.subjects),
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_bytes": int(store_bytes * LOG_SHARE),
        "num_replicas": replicas,
    }


async def use(client: httpx2.AsyncClient, monitor_url: str) -> Use:
    """How full the broker's store is, at its fullest node that answers.

    Raises httpx2.HTTPError, or msgspec.DecodeError.
    """
    uses, error = list[Use](), None
    for node in hosts.split(monitor_url):
        try:
            answer = await client.get(node.rstrip("/") + "/jsz", timeout=TIMEOUT_S)
            report = _jsz.decode(answer.raise_for_status().content)
        except (httpx2.HTTPError, msgspec.DecodeError) as problem:
            error = problem
        else:
            uses.append(Use(report.storage, report.config.max_storage))
    if not uses and error is not None:
        raise error
    return max(uses, key=lambda use: use.share)


class Store:
    """Keeps a broker's streams within `bounds`. `problem` says why they are not, or None.

    One process at a time changes them, by a lock in the database: a NATS server (2.15.1) that is
    given new subjects of a stream twice at once stores each message twice from then on.
    """

    def __init__(
        self,
        pool: db.Pool,
        client: httpx2.AsyncClient,
        *,
        nats_url: str | None,
        monitor_url: str,
        bounds: Bounds,
        tls: Tls | None = None,
    ) -> None:
        self._pool, self._client = pool, client
        self._nats_url, self._monitor_url = nats_url, monitor_url
        self._bounds, self._tls = bounds, tls
        self._attempts = Attempts(
            "what the broker may keep is not bounded", problem="not looked at yet"
        )
        # All streams are as they must be before the first device may send.
        self.is_bounded = asyncio.Event()
        self.use: Use | None = None

    @property
    def problem(self) -> str | None:
        return self._attempts.problem

    async def look(self) -> dict[str, object]:
        """One look: how full it is, and how many streams had to be bounded (again)."""
        try:
            with self._attempts:
                self.use = await use(self._client, self._monitor_url)
                done = await self._bound(self.use.max_bytes)
        except _UNAVAILABLE:
            return {}
        return {"bounded": len(done)} if done else {}

    async def _bound(self, store_bytes: int) -> list[str]:
        if self._nats_url is None:
            raise nats.NatsError("FARMIQ_…_BROKER_NATS_URL is not set")
        if store_bytes <= 0:
            raise nats.NatsError("it does not say how much it may keep (max_file_store)")
        async with nats.connected(self._nats_url, tls=self._tls) as server:
            done = await self._differing(server, store_bytes, change=False)
            if done:
                async with db.transaction(self._pool) as tx:
                    await tx.execute("select pg_advisory_xact_lock(hashtext('broker streams'))")
                    done = await self._differing(server, store_bytes, change=True)
        self.is_bounded.set()
        return done

    async def _differing(
        self, server: nats.Connection, store_bytes: int, *, change: bool
    ) -> list[str]:
        """The streams that are not as they must be; with `change` they are afterwards."""
        differing = []
        for name, wanted in changes(self._bounds, store_bytes=store_bytes).items():
            config = await _config(server, name)
            # The broker makes its streams when the first MQTT client comes.
            if config is None or _is_so(config, wanted):
                continue
            differing.append(name)
            if change:
                if name == RETAINED:
                    await self._purge(server)
                await stream.request(server, f"STREAM.UPDATE.{name}", {**config, **wanted})
        # In a cluster the others remember it when one node starts again: nobody got in there.
        if self._bounds.replicas == 1 and await _make(server, sink(self._bounds), change=change):
            differing.append(NOT_RETAINED)
        log = self._bounds.log
        if log is not None and await self._make_log(server, log, store_bytes, change=change):
            differing.append(log.name)
        return differing

    async def _purge(self, server: nats.Connection) -> None:
        """What was retained before and may not be: a store that it filled has room again."""
        for subject in self._bounds.not_retained:
            purged = {"filter": _PREFIX + subject}
            await stream.request(server, f"STREAM.PURGE.{RETAINED}", purged)

    async def _make_log(
        self, server: nats.Connection, log: LogStream, store_bytes: int, *, change: bool
    ) -> bool:
        """The log, and what is left to the queue; whether anything has to be done.

        The log is made before the queue gives its subjects away: where there is no room for one,
        the queue goes on as it was.
        """
        replicas = self._bounds.replicas
        wanted = log_stream(log, store_bytes=store_bytes, replicas=replicas)
        of_queue = queue(log, replicas=replicas)
        differs = False
        if await _config(server, log.name) is None:
            without_subjects = {**wanted, "subjects": [f"{log.name}.none"]}
            differs = await _make(server, without_subjects, change=change)
        config = await _config(server, QUEUE)
        if config is None:
            of_queue["max_bytes"] = int(store_bytes * (QUEUE_SHARE - LOG_SHARE))
            differs |= await _make(server, {**of_queue, "discard": "new"}, change=change)
        else:
            narrowed = {**config, "subjects": of_queue["subjects"]}
            differs |= await _make(server, narrowed, change=change)
        return await _make(server, wanted, change=change) or differs


async def _make(server: nats.Connection, wanted: dict[str, Any], *, change: bool) -> bool:
    """Whether a stream is not as wanted; with `change` it is afterwards."""
    name = wanted["name"]
    current = await _config(server, name)
    if current is not None and _is_so(current, wanted):
        return False
    if change:
        verb = "CREATE" if current is None else "UPDATE"
        await stream.request(server, f"STREAM.{verb}.{name}", {**(current or {}), **wanted})
    return True


async def _config(server: nats.Connection, name: str) -> dict[str, Any] | None:
    """None: there is no such stream."""
    answer = await stream.request(server, f"STREAM.INFO.{name}", {}, unless=_STREAM_NOT_FOUND)
    config: dict[str, Any] | None = answer.get("config")
    return config


def _is_so(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(config.get(name) == value for name, value in wanted.items())

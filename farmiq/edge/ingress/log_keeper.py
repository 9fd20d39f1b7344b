"""The broker's log at the edge: purged of what is stored, told of when it fills or was set back.

What is stored stays in the log for a while: a database that is restored from a backup reads it
again. When the log is half full, only what is not stored stays.
"""

import time
from collections import deque

import prometheus_client

from farmiq.edge import alerts
from farmiq.edge.ingress.source import LogSource
from farmiq.plumbing import db, log, nats, stream
from farmiq.plumbing.chores import Chore

NAME = "edge-ingress-gateway"
EVERY_S = 5.0
FULL_KIND, GAP_KIND = "broker.log_full", "broker.log_gap"
# So full a log is told of, and holds nothing that is stored; below the other it is calm again.
WARN_SHARE, CALM_SHARE = 0.5, 0.4

BYTES = prometheus_client.Gauge("farmiq_ingress_log_bytes", "Bytes in the broker's log")
MAX_BYTES = prometheus_client.Gauge("farmiq_ingress_log_max_bytes", "Bytes that the log may hold")
PURGED = prometheus_client.Counter(
    "farmiq_ingress_log_purged_total", "Messages removed from the broker's log after storing"
)


class LogKeeper:
    """`hold_s`: for so long the log holds what is stored."""

    def __init__(
        self, pool: db.Pool, reader: stream.Reader, source: LogSource, *, hold_s: float
    ) -> None:
        self._pool, self._reader, self._source, self._hold_s = pool, reader, source, hold_s
        # When we looked, and how far all was stored then.
        self._seen: deque[tuple[float, int]] = deque()
        self._has_warned = True

    def chore(self) -> Chore:
        return Chore("ingress.log", EVERY_S, self.look)

    async def look(self) -> dict[str, object]:
        try:
            info = await self._reader.info()
        except nats.NatsError:
            return {}  # the reader tells of it
        BYTES.set(info.bytes)
        MAX_BYTES.set(info.max_bytes)
        await self._tell(info)
        below_seq = self._purgeable(info)
        try:
            purged = await self._reader.purge(below_seq=below_seq) if below_seq else 0
        except nats.NatsError as error:
            log.get(NAME).warning("ingress.log_not_purged", reason=str(error))
            return {}
        PURGED.inc(purged)
        return {"count": purged} if purged else {}

    async def report(self, start: stream.Start) -> None:
        """Tell of a log that does not go on where it was read last."""
        self._seen.clear()
        if not start.rewound:
            return
        log.get(NAME).warning("ingress.log_rewound", reason=start.rewound, count=start.lost)
        if not start.lost:
            return
        told = (
            f"{start.lost} messages that the broker took are neither in this database nor in the "
            f"broker's log any more ({start.rewound}). After a database was restored from a "
            "backup that is what came since. To do: restore a newer backup, or close this alert"
        )
        async with db.transaction(self._pool) as tx:
            await alerts.raise_(tx, alerts.Alert(GAP_KIND, "broker", "critical", told))

    def _purgeable(self, info: stream.Info) -> int | None:
        """Purge below this number; the message at the cursor itself stays, to be compared."""
        now, stored_seq = time.monotonic(), self._source.stored_seq
        if not self._seen or self._seen[-1][1] != stored_seq:
            self._seen.append((now, stored_seq))
        below_seq = stored_seq if info.share >= WARN_SHARE else 0
        while self._seen and self._seen[0][0] <= now - self._hold_s:
            below_seq = max(below_seq, self._seen.popleft()[1])
        # Never what is not stored, whatever stream the numbers that we saw were of.
        below_seq = min(below_seq, stored_seq)
        return below_seq if below_seq > info.first_seq else None

    async def _tell(self, info: stream.Info) -> None:
        """Before the log is full, when nobody can send any more; and again when it is over."""
        if info.share >= WARN_SHARE:
            told = (
                f"the broker's log is {info.share:.0%} full and {self._source.lag} messages in it "
                "are not stored yet. When it is full, devices cannot send. To do: see whether the "
                "database takes writes and how full the disk is (farmiq doctor)"
            )
            async with db.transaction(self._pool) as tx:
                await alerts.raise_(tx, alerts.Alert(FULL_KIND, "broker", "critical", told))
            self._has_warned = True
        elif info.share < CALM_SHARE and self._has_warned:
            async with db.transaction(self._pool) as tx:
                await alerts.close(tx, kind=FULL_KIND, subject="broker")
            self._has_warned = False

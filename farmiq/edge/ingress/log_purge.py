"""The broker's log at the edge: purge what is stored, alert if it fills or messages are lost.

Stored messages stay in the log for some time: a database that is restored from a backup reads them
again. When the log is half full, they are purged at once.
"""

import prometheus_client

from farmiq.edge import alerts
from farmiq.plumbing import db, log
from farmiq.plumbing.messaging import nats, stream
from farmiq.plumbing.messaging.cursor import CROWDED_SHARE, Cursors
from farmiq.plumbing.runtime.schedule import Job

NAME = "edge-ingress-gateway"
EVERY_S = 5.0
FULL_KIND, GAP_KIND = "broker.log_full", "broker.log_gap"
# Above the first an alert is raised, below the second it is closed.
WARN_SHARE, CALM_SHARE = CROWDED_SHARE, 0.4

BYTES = prometheus_client.Gauge("farmiq_ingress_log_bytes", "Bytes in the broker's log")
MAX_BYTES = prometheus_client.Gauge("farmiq_ingress_log_max_bytes", "Bytes that the log may hold")
PURGED = prometheus_client.Counter(
    "farmiq_ingress_log_purged_total", "Messages removed from the broker's log after storing"
)


class LogPurge:
    """Purges the log and raises alerts about it."""

    def __init__(self, pool: db.Pool, cursors: Cursors) -> None:
        self._pool, self._cursors = pool, cursors
        self._has_warned = True

    def job(self) -> Job:
        return Job("ingress.log", EVERY_S, self.run_once)

    async def run_once(self) -> dict[str, object]:
        try:
            info, purged = await self._cursors.purge()
        except nats.NatsError as error:
            log.get(NAME).warning("ingress.log_not_purged", reason=str(error))
            return {}
        BYTES.set(info.bytes)
        MAX_BYTES.set(info.max_bytes)
        PURGED.inc(purged)
        await self._warn_of_fill(info)
        return {"count": purged} if purged else {}

    async def _warn_of_fill(self, info: stream.Info) -> None:
        """Raise an alert before the log is full, and close it afterwards."""
        if info.share >= WARN_SHARE:
            message = (
                f"the broker's log is {info.share:.0%} full and {self._cursors.lag} messages in it "
                "are not stored yet. When it is full, devices cannot send. To do: see whether the "
                "database takes writes and how full the disk is (farmiq doctor)"
            )
            async with db.transaction(self._pool) as tx:
                await alerts.raise_(tx, alerts.Alert(FULL_KIND, "broker", "critical", message))
            self._has_warned = True
        elif info.share < CALM_SHARE and self._has_warned:
            async with db.transaction(self._pool) as tx:
                await alerts.close(tx, kind=FULL_KIND, subject="broker")
            self._has_warned = False


async def report_gap(tx: db.Connection, start: stream.Start) -> None:
    """Raise an alert if messages are neither stored nor in the log."""
    if start.rewound:
        log.get(NAME).warning("ingress.log_rewound", reason=start.rewound, count=start.lost)
    if start.lost:
        reason = f" ({start.rewound})" if start.rewound else ""
        message = (
            f"{start.lost} messages that the broker took are neither in this database nor in the "
            f"broker's log any more{reason}. After a database was restored from a "
            "backup that is what came since. To do: restore a newer backup, or close this alert"
        )
        await alerts.raise_(tx, alerts.Alert(GAP_KIND, "broker", "critical", message))

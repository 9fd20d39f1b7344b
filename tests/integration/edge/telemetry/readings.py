"""Readings through the gateway's own transaction, and what they come to, counted independently."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.edge.arrival import accept
from farmiq.edge.ingress import handlers as ingress
from farmiq.edge.telemetry import handlers
from farmiq.messages import topics
from farmiq.messages.topics import Place
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.support import databases

MOVE = """
insert into test_clock (ahead) values (%s)
on conflict on constraint test_clock_pkey do update set ahead = excluded.ahead
"""
# Whoever waits for a table of this database.
WAITING = """
select pid from pg_locks
where not granted and relation is not null
  and database = (select oid from pg_database where datname = current_database())
"""


@dataclass(frozen=True, slots=True)
class Reading:
    at: datetime
    value: float
    device: str = "d-1"
    metric: str = "temperature"
    tenant: str = "t-1"
    farm: str = "f-1"
    barn: str = "b-1"
    unit: str = "C"
    id: UUID = field(default_factory=ids.new)

    @property
    def message(self) -> tuple[str, bytes]:
        place = Place(self.tenant, self.farm, self.barn, self.device)
        envelope = {
            "schema_version": "1.0",
            "event_id": str(self.id),
            "trace_id": "trace-1",
            "tenant_id": self.tenant,
            "device_id": self.device,
            "event_type": "telemetry.reading",
            "ts": self.at.isoformat(),
            "payload": {"metric_value": self.value, "unit": self.unit},
        }
        return topics.telemetry(place, self.metric), json.dumps(envelope).encode()


async def keep(pool: db.Pool, readings: Iterable[Reading]) -> None:
    """As the gateway does it once a device is let in: here devices move about as tests like."""
    arrivals, refused = ingress.parse([each.message for each in readings])
    assert refused == []
    async with db.transaction(pool) as tx:
        outcome = await ingress.apply_events(tx, arrivals, check_outbox=True)
    assert outcome.rejected == ()


async def keep_at(pool: db.Pool, readings: Sequence[Reading], *, now: datetime) -> None:
    """As if they had come at `now`: their time is believed or not as of then."""
    arrivals = [accept(*each.message, now=now) for each in readings]
    async with db.transaction(pool) as tx:
        await handlers.record(tx, arrivals)
        await tx.execute(
            "update telemetry_latest set ingested_at = %s where event_id = any(%s)",
            (now, [each.id for each in readings]),
        )


def rows(database: Database, query: str, *args: Any) -> list[tuple[Any, ...]]:
    with databases.connected(database.admin_url) as connection:
        return connection.execute(query.encode(), args or None).fetchall()


def execute(database: Database, query: str, *args: Any) -> None:
    """As the owner, without the guards: tests put rows into any state at once."""
    with databases.connected(database.admin_url) as connection:
        connection.execute("set local session_replication_role = replica")
        connection.execute(query.encode(), args or None)


def move_clock(database: Database, ahead: str) -> None:
    execute(database, MOVE, ahead)


Key = tuple[str, str, str, str, datetime | date]
Sums = tuple[int, float, float, float]


def recomputed(readings: Iterable[Reading], *, zone: str) -> dict[Key, Sums]:
    """Every bucket from all its readings at once: count, mean, least, most."""
    groups: dict[Key, dict[UUID, float]] = defaultdict(dict)
    for each in readings:
        at = each.at.astimezone(UTC)
        series = (each.tenant, each.device, each.metric)
        for key in (
            (*series, "1m", at.replace(second=0, microsecond=0)),
            (*series, "1h", at.replace(minute=0, second=0, microsecond=0)),
            (*series, "1d", at.astimezone(ZoneInfo(zone)).date()),
        ):
            groups[key][each.id] = each.value
    return {key: _sums(list(values.values())) for key, values in groups.items()}


def _sums(values: list[float]) -> Sums:
    total = sum((Decimal(repr(value)) for value in values), Decimal(0))
    mean = 0.0 if abs(total) < Decimal("1e-290") else float(total) / len(values)
    return len(values), mean, min(values), max(values)


def stored(database: Database, *, zone: str) -> dict[Key, Sums]:
    found = rows(
        database,
        """
        select tenant_id, device_id, metric_type, "window", bucket_start_at, bucket_end_at,
          count, avg_value, min_value, max_value from telemetry_agg
        """,
    )
    buckets: dict[Key, Sums] = {}
    for tenant, device, metric, window, starts_at, ends_at, *sums in found:
        begins: datetime | date = starts_at
        if window == "1d":
            local, end = starts_at.astimezone(ZoneInfo(zone)), ends_at.astimezone(ZoneInfo(zone))
            assert (end.date() - local.date()).days == 1, (starts_at, ends_at)
            begins = local.date()
        key = (tenant, device, metric, window, begins)
        assert key not in buckets, key
        buckets[key] = (int(sums[0]), *sums[1:])
    return buckets

"""Alerts as events for the cloud: one when an alert opens, one when it closes (C-110).

Written to the outbox in the transaction that opens or closes it; a repeat only counts, and makes an
event only if it is more urgent than what the cloud knows. An alert about something of a tenant goes
to that tenant, one of the whole edge to every tenant; none sees what is another's (D-431).
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote
from uuid import UUID

import msgspec

from farmiq import crash
from farmiq.edge import outbox
from farmiq.messages import edge
from farmiq.messages.bus import BusEvent
from farmiq.messages.edge import Severity
from farmiq.messages.text import storable
from farmiq.messages.topics import Place
from farmiq.plumbing import db, ids

# The order on a page: an intruder shows in no other way.
URGENCY: tuple[Severity, ...] = ("security", "critical", "warning", "info")
# Open alerts of one kind that are sent to the cloud: anybody can invent senders.
MAX_OPEN_OF_KIND = 200
MAX_SUBJECT, MAX_MESSAGE, MAX_NAME = 1024, 4096, 256
# Alerts of the edge's own evaluation of rules: the cloud evaluates those rules too (D-432).
RULE = "rule."
# Kinds whose subject is anybody who connects.
_OF_UNKNOWN_SENDERS = ("broker.", "ingress.", "device.flood")
# tenant/farm/barn/device
_PLACED = 4
_PORTION = 500


@dataclass(frozen=True, slots=True)
class Row:
    """A row of alerts. `reported_severity` is the most urgent one that the cloud was told of."""

    alert_id: UUID
    kind: str
    subject: str
    severity: Severity
    message: str
    seen_count: int
    raised_at: datetime
    last_seen_at: datetime
    closed_at: datetime | None
    closed_by: str | None
    whole_edge: bool
    reported_to: list[str]
    reported_severity: Severity | None

    @property
    def is_more_urgent(self) -> bool:
        """Than what was reported, if anything was."""
        known = self.reported_severity
        return known is None or URGENCY.index(self.severity) < URGENCY.index(known)

    @property
    def first(self) -> str:
        """The first part of the subject: the tenant, if it is something of a tenant."""
        return self.names[0]

    @property
    def names(self) -> list[str]:
        """The parts of the subject; in a login they are written as in a URL (ids.broker_user)."""
        return [unquote(part) for part in self.subject.split("/")]


COLUMNS = """
alert_id, kind, subject, severity, message, seen_count, raised_at, last_seen_at, closed_at,
closed_by, whole_edge, reported_to, reported_severity
"""


def recipients(row: Row, accepted: Collection[str], others: Collection[str]) -> list[str]:
    """The tenant whose it is, or all that are `accepted` by the cloud for what is no tenant's.

    What is of one of the `others`, tenants here for whom the cloud has not accepted this edge yet,
    goes to nobody.
    """
    if row.whole_edge:
        return sorted(accepted)
    if row.first in accepted:
        return [row.first]
    is_unknown = row.kind.startswith(_OF_UNKNOWN_SENDERS) and row.first not in others
    return sorted(accepted) if is_unknown else []


def shown(row: Row, tenant_id: str) -> tuple[str, str]:
    """(subject, message) as this tenant may see them.

    Words of a sender that is no tenant's, or of another tenant, stay at the edge; the subject only
    tells one such sender from another.
    """
    if row.whole_edge or row.first == tenant_id:
        subject = row.subject if row.whole_edge else row.subject.partition("/")[2] or tenant_id
        message = row.message
        return storable(subject, max_length=MAX_SUBJECT), storable(message, max_length=MAX_MESSAGE)
    digest = hashlib.sha256(row.subject.encode(errors="replace")).hexdigest()[:8]
    message = (
        "about somebody whom this edge does not know; what was seen stands at the edge: "
        f"`farmiq alert ls --kind {row.kind}` there"
    )
    return f"unknown sender {digest}", message


async def report_opened(tx: db.Connection, row: Row) -> None:
    """Report an open alert to those who do not know of it, or not that it is so urgent."""
    await _report_opened(tx, [row])


async def report_closed(tx: db.Connection, rows: Sequence[Row]) -> None:
    """Report closed alerts to those to whom they were reported when they opened."""
    reported = [row for row in rows if row.reported_to]
    if reported:
        accepted, places = await _accepted(tx), await _places(tx, reported)
        await _append(
            tx,
            [
                _event(edge.ALERT_CLOSED, row, tenant_id, accepted[tenant_id], places)
                for row in reported
                for tenant_id in row.reported_to
            ],
        )


async def accept(tx: db.Connection, tenant_id: str, *, edge_cluster_id: str) -> None:
    """Note that the cloud has accepted this edge for a tenant, and its name there."""
    await tx.execute(
        """
        insert into cloud_tenants as c (tenant_id, edge_cluster_id) values (%s, %s)
        on conflict on constraint cloud_tenants_pkey do update set
          edge_cluster_id = excluded.edge_cluster_id
        where c.edge_cluster_id <> excluded.edge_cluster_id
        """,
        (tenant_id, edge_cluster_id),
    )


async def report_pending(tx: db.Connection) -> int:
    """Report open alerts that a tenant does not know of; returns how many.

    Those from before the cloud accepted this edge for the tenant, and from an older version.
    """
    rows = await db.fetch_as(
        tx,
        Row,
        f"""
        select {COLUMNS} from alerts,
          (select coalesce(array_agg(tenant_id), '{{}}') as accepted from cloud_tenants) c,
          lateral (select split_part(subject, '/', 1) as first) f
        where closed_at is null and case
          when whole_edge then not reported_to @> accepted
          when first = any(accepted) then first <> all(reported_to)
          else reported_to = '{{}}' and kind ^@ any(%s::text[]) end
        order by not whole_edge and first <> all(accepted), kind, subject
        limit %s for update of alerts skip locked
        """.encode(),  # noqa: S608 - the text is of this file
        (list(_OF_UNKNOWN_SENDERS), _PORTION),
    )
    return await _report_opened(tx, rows)


async def open_counts(tx: db.Connection) -> dict[str, int]:
    """How many alerts are open by the tenant that they were reported to, without those of rules."""
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, count(*) from alerts, unnest(reported_to) t(tenant_id)
        where closed_at is null and not starts_with(kind, %s) group by 1
        """,
        RULE,
    )
    return dict(rows)


async def _report_opened(tx: db.Connection, rows: Sequence[Row]) -> int:
    accepted = await _accepted(tx) if rows else {}
    if not accepted:
        return 0
    others = await _tenants_of_devices(tx) - accepted.keys()
    known = await _open_of_kinds(tx, {row.kind for row in rows})
    reports: dict[UUID, tuple[Row, list[str]]] = {}
    for row in rows:
        if not row.reported_to and known.get(row.kind, 0) >= MAX_OPEN_OF_KIND:
            continue
        to = recipients(row, accepted, others)
        new = to if row.is_more_urgent else [name for name in to if name not in row.reported_to]
        if new:
            reports[row.alert_id] = row, new
            known[row.kind] = known.get(row.kind, 0) + (not row.reported_to)
    places = await _places(tx, [row for row, _ in reports.values()])
    await _append(
        tx,
        [
            _event(edge.ALERT_OPENED, row, tenant_id, accepted[tenant_id], places)
            for row, to in reports.values()
            for tenant_id in to
        ],
    )
    await _mark(tx, reports.values())
    return len(reports)


async def _append(tx: db.Connection, events: Sequence[BusEvent]) -> None:
    if events:
        crash.here("alert.before_event")
        await outbox.append(tx, events)
        crash.here("alert.after_event")


async def _mark(tx: db.Connection, reports: Iterable[tuple[Row, list[str]]]) -> None:
    """Note who knows of it, and how urgent they know it to be."""
    for row, to in reports:
        worst = row.severity if row.is_more_urgent else row.reported_severity
        await tx.execute(
            "update alerts set reported_to = %s, reported_severity = %s where alert_id = %s",
            (sorted({*row.reported_to, *to}), worst, row.alert_id),
        )


def _event(
    event_type: str,
    row: Row,
    tenant_id: str,
    edge_cluster_id: str,
    places: Mapping[str, Place],
) -> BusEvent:
    subject, message = shown(row, tenant_id)
    is_own = row.first == tenant_id and not row.whole_edge
    place = places.get(row.subject) if is_own else None
    payload = edge.EdgeAlert(
        alert_id=row.alert_id,
        code=row.kind[:MAX_NAME],
        subject=subject,
        severity=row.severity,
        first_at=row.raised_at,
        last_at=row.last_seen_at,
        count=max(1, row.seen_count),
        message=message,
        edge_cluster_id=edge_cluster_id,
        closed_by=storable(row.closed_by, max_length=MAX_NAME) if row.closed_by else msgspec.UNSET,
    )
    event_id = ids.new()
    return BusEvent(
        event_id=event_id,
        event_type=event_type,
        tenant_id=tenant_id,
        farm_id=place.farm_id if place else None,
        barn_id=place.barn_id if place else None,
        device_id=place.device_id if place else None,
        occurred_at=row.closed_at or (row.last_seen_at if row.reported_to else row.raised_at),
        trace_id=f"edge-{event_id}",
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )


async def _accepted(tx: db.Connection) -> dict[str, str]:
    """The tenants for whom the cloud accepts this edge, and its name there."""
    return dict(await db.fetch_all(tx, "select tenant_id, edge_cluster_id from cloud_tenants"))


async def _tenants_of_devices(tx: db.Connection) -> set[str]:
    rows = await db.fetch_all(tx, "select distinct tenant_id from devices")
    return {tenant_id for (tenant_id,) in rows}


async def _open_of_kinds(tx: db.Connection, kinds: Collection[str]) -> dict[str, int]:
    rows = await db.fetch_all(
        tx,
        "select kind, count(*) from alerts where kind = any(%s) and closed_at is null "
        "and reported_to <> '{}' group by kind",
        sorted(kinds),
    )
    return dict(rows)


async def _places(tx: db.Connection, rows: Sequence[Row]) -> dict[str, Place]:
    """By subject: where the device, or that of the station, stands whose name ends it.

    A station's name is unique in its barn, which such a subject names.
    """
    named = {row.subject: row.names for row in rows}
    devices = await db.fetch_all(
        tx,
        """
        select distinct on (n.subject) n.subject, d.tenant_id, d.farm_id, d.barn_id, d.device_id
        from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
          as n(subject, tenant_id, farm_id, barn_id, name)
          join devices d on d.tenant_id = n.tenant_id and (d.device_id = n.name
            or d.farm_id = n.farm_id and d.barn_id = n.barn_id and d.station_id = n.name)
        order by n.subject, d.device_id = n.name desc, d.revoked_at desc nulls first
        """,
        list(named),
        [names[0] for names in named.values()],
        [names[1] if len(names) == _PLACED else None for names in named.values()],
        [names[2] if len(names) == _PLACED else None for names in named.values()],
        [names[-1] if len(names) > 1 else None for names in named.values()],
    )
    return {subject: Place(*place) for subject, *place in devices}

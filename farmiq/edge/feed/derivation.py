"""Derive intakes from silos' weights: a job, in the order of time and not of arrival.

A silo's readings, its intakes, their events and how far it was read are one transaction: after a
crash the next round does the same again.
"""

from datetime import datetime

import msgspec
from prometheus_client import Counter

from farmiq import crash
from farmiq.edge import alerts, outbox
from farmiq.edge.alerts import Alert
from farmiq.edge.feed import silo, store
from farmiq.edge.feed.rules import DEFAULT_SOURCE, Intake
from farmiq.edge.feed.silo import Fall, Reported, State
from farmiq.edge.feed.store import Silo
from farmiq.messages import bus, feed
from farmiq.messages.topics import Place
from farmiq.messages.wording import worded
from farmiq.plumbing import db, log

MAX_READINGS = 5_000

DERIVED = Counter("farmiq_feed_derived_total", "Intakes derived from silos' weights")
FAILED = Counter(
    "farmiq_feed_derivation_failed_total", "Rounds of a silo that failed; an alert names it"
)
HELD_BACK = Counter(
    "farmiq_feed_told_by_device_total", "Falls of weight not counted: the device dispensed itself"
)


async def derive(pool: db.Pool, *, settle_s: float) -> dict[str, object]:
    """One round over all silos; returns how many intakes it made."""
    async with db.transaction(pool) as tx:
        silos = await store.silos(tx)
    count = 0
    for of in silos:
        try:
            count += await _derive_all(pool, of, settle_s=settle_s)
        except db.UNAVAILABLE:
            raise
        except Exception as error:  # noqa: BLE001 - the other silos have nothing to do with it
            FAILED.inc()
            reason = db.first_line(error)
            # Logs name no device; the alert does.
            log.get("derivation").error(
                "feed.derivation_failed", tenant_id=of.tenant_id, error=reason
            )
            async with db.transaction(pool) as tx:
                await alerts.raise_(tx, _failed(of, reason))
    return {"count": count}


async def _derive_all(pool: db.Pool, of: Silo, *, settle_s: float) -> int:
    count, read = 0, MAX_READINGS
    while read == MAX_READINGS:
        async with db.transaction(pool) as tx:
            read, made = await derive_one(tx, of, settle_s=settle_s)
        DERIVED.inc(made)
        count += made
    return count


async def derive_one(tx: db.Connection, of: Silo, *, settle_s: float) -> tuple[int, int]:
    """The next readings of one silo; returns (readings, new intakes)."""
    before = await store.state(tx, of)
    reported = await store.reported(tx, of)
    before = await _note_report(tx, of, before, reported.first_since)
    reported = msgspec.structs.replace(reported, first_since=before.reports_since)
    readings = await store.settled_readings(
        tx, of, after=before.read_to, settle_s=settle_s, limit=MAX_READINGS
    )
    if not readings:
        return 0, 0
    odd = sum(not reading.is_sensible for reading in readings)
    if odd:
        await alerts.raise_(tx, _absurd_weight(of), count=odd)
    after, falls = silo.derive(before, readings, of.limits)
    made = await _record(tx, of, falls, reported) if falls else 0
    await store.set_state(tx, of, after)
    crash.here("feed.in_derivation")
    return len(readings), made


async def _note_report(
    tx: db.Connection, of: Silo, before: State, first_since: datetime | None
) -> State:
    """Note since when the device reports itself; what was derived by then cannot be undone."""
    known = before.reports_since
    if first_since is None or (known is not None and known <= first_since):
        return before
    count, total_kg = await store.derived_between(
        tx,
        of,
        begin=silo.uncertain_from(first_since),
        end=silo.uncertain_from(known) if known else None,
    )
    if count:
        await alerts.raise_(tx, _counted_twice(of, count, total_kg, first_since), count=count)
    after = msgspec.structs.replace(before, reports_since=first_since)
    await store.set_state(tx, of, after)
    return after


async def _record(tx: db.Connection, of: Silo, falls: tuple[Fall, ...], reported: Reported) -> int:
    counted = silo.not_reported(falls, reported)
    if len(counted) < len(falls):
        HELD_BACK.inc(len(falls) - len(counted))
        await alerts.raise_(tx, _reports_itself(of), count=len(falls) - len(counted))
    intakes = await store.find_batches(tx, [intake_of(fall, of) for fall in counted])
    new = await store.add_intakes(tx, intakes)
    await outbox.append(tx, [intake.event for intake in intakes if intake.key in new])
    return len(new)


def intake_of(fall: Fall, of: Silo) -> Intake:
    intake_id = fall.intake_id(tenant_id=of.tenant_id, device_id=of.device_id)
    return Intake(
        event=bus.own_event(
            feed.INTAKE_RECORDED,
            Place(of.tenant_id, fall.end.farm_id, fall.end.barn_id, of.device_id),
            feed.FeedIntakeRecorded(source=DEFAULT_SOURCE, quantity_kg=fall.quantity_kg),
            event_id=intake_id,
            occurred_at=fall.end.at,
            trace_id=str(intake_id),
        ),
        source=DEFAULT_SOURCE,
        quantity_kg=fall.quantity_kg,
        parent_event_id=fall.end.event_id,
    )


def _alert(of: Silo, kind: str, severity: alerts.Severity, text: str) -> Alert:
    return Alert(f"feed.{kind}", f"{of.tenant_id}/{of.device_id}", severity, text)


def _absurd_weight(of: Silo) -> Alert:
    text = worded(
        "%(device)s sent weights beyond %(number)s kg; they are kept as "
        "readings, and no intake is derived from them. Look at the scale and "
        "its unit",
        device=of.device_id,
        number=f"{silo.MAX_WEIGHT_KG:,.0f}",
    )
    return _alert(of, "weight_absurd", "warning", text)


def _failed(of: Silo, reason: str) -> Alert:
    text = worded(
        "nothing can be derived from %(device)s's weight (%(why)s); other "
        "silos go on. If it stays, begin afresh: farmiq silo set %(tenant)s "
        "%(device2)s --no-derive, then --derive",
        device=of.device_id,
        why=reason,
        tenant=of.tenant_id,
        device2=of.device_id,
    )
    return _alert(of, "derivation_failed", "warning", text)


def _reports_itself(of: Silo) -> Alert:
    text = worded(
        "%(device)s sends feed.dispensed itself, so nothing is derived from "
        "its weight; switch it off: farmiq silo set %(tenant)s %(device2)s "
        "--no-derive. If it stopped sending them, switch it off and on again "
        "(--derive)",
        device=of.device_id,
        tenant=of.tenant_id,
        device2=of.device_id,
    )
    return _alert(of, "derivation_off", "info", text)


def _counted_twice(of: Silo, count: int, total_kg: float, first_since: datetime) -> Alert:
    text = worded(
        "%(device)s told of feed itself for the first time, at %(day)sZ. "
        "%(number)s intakes of %(number2)s kg were derived from its weight "
        "since a day before and went to the cloud: they may be the same feed. "
        "Nothing more is derived from it; see docs/feed.md",
        device=of.device_id,
        day=f"{first_since:%Y-%m-%d %H:%M}",
        number=count,
        number2=f"{total_kg:g}",
    )
    return _alert(of, "counted_twice", "warning", text)

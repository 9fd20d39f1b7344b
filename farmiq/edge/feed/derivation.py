"""Intakes derived from silos' weights: a chore, in the order of time and not of arrival.

A silo's readings, its intakes, the events owed for them and how far it was read are one
transaction: what dies in the middle has not happened, and the next round does the same again.
"""

from datetime import datetime

import msgspec
import prometheus_client

from farmiq import crash
from farmiq.edge import alerts, outbox
from farmiq.edge.alerts import Alert
from farmiq.edge.feed import silo, store
from farmiq.edge.feed.intake import DEFAULT_SOURCE, Intake
from farmiq.edge.feed.silo import Fall, State, Told
from farmiq.edge.feed.store import Silo
from farmiq.messages import feed
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, log

MOST_READINGS = 5_000

DERIVED = prometheus_client.Counter(
    "farmiq_feed_derived_total", "Intakes derived from silos' weights"
)
FAILED = prometheus_client.Counter(
    "farmiq_feed_derivation_failed_total", "Rounds of a silo that failed; an alert names it"
)
HELD_BACK = prometheus_client.Counter(
    "farmiq_feed_told_by_device_total", "Falls of weight not counted: the device dispensed itself"
)


async def derive(pool: db.Pool, *, settle_s: float) -> dict[str, object]:
    """One round over all silos; returns how many intakes it made."""
    async with db.transaction(pool) as tx:
        silos = await store.silos(tx)
    count = 0
    for each in silos:
        try:
            count += await _derive_all(pool, each, settle_s=settle_s)
        except db.UNAVAILABLE:
            raise
        except Exception as error:  # noqa: BLE001 - the other silos have nothing to do with it
            await _say_failed(pool, each, error)
    return {"count": count}


async def _derive_all(pool: db.Pool, of: Silo, *, settle_s: float) -> int:
    count, read = 0, MOST_READINGS
    while read == MOST_READINGS:
        async with db.transaction(pool) as tx:
            read, made = await derive_one(tx, of, settle_s=settle_s)
        DERIVED.inc(made)
        count += made
    return count


async def _say_failed(pool: db.Pool, of: Silo, error: Exception) -> None:
    FAILED.inc()
    why = db.first_line(error)
    # Logs name no device; the alert does.
    log.get("derivation").error("feed.derivation_failed", tenant_id=of.tenant_id, error=why)
    async with db.transaction(pool) as tx:
        await alerts.raise_(tx, _failed(of, why))


async def derive_one(tx: db.Connection, of: Silo, *, settle_s: float) -> tuple[int, int]:
    """The next readings of one silo; returns (readings, new intakes)."""
    before = await store.state(tx, of)
    told = await store.told(tx, of)
    before = await _hear(tx, of, before, told.first_since)
    told = msgspec.structs.replace(told, first_since=before.told_since)
    readings = await store.settled_readings(
        tx, of, after=before.read_to, settle_s=settle_s, most=MOST_READINGS
    )
    if not readings:
        return 0, 0
    odd = sum(not each.is_sensible for each in readings)
    if odd:
        await alerts.raise_(tx, _no_weight(of), count=odd)
    after, falls = silo.derive(before, readings, of.limits)
    made = await _record(tx, of, falls, told) if falls else 0
    await store.keep_state(tx, of, after)
    crash.here("feed.in_derivation")
    return len(readings), made


async def _hear(tx: db.Connection, of: Silo, before: State, first_since: datetime | None) -> State:
    """Remember since when the device tells; what was derived by then cannot be taken back."""
    known = before.told_since
    if first_since is None or (known is not None and known <= first_since):
        return before
    count, total_kg = await store.derived_between(
        tx,
        of,
        begin=silo.doubted_from(first_since),
        end=silo.doubted_from(known) if known else None,
    )
    if count:
        await alerts.raise_(tx, _counted_twice(of, count, total_kg, first_since), count=count)
    after = msgspec.structs.replace(before, told_since=first_since)
    await store.keep_state(tx, of, after)
    return after


async def _record(tx: db.Connection, of: Silo, falls: tuple[Fall, ...], told: Told) -> int:
    counted = silo.not_told(falls, told)
    if len(counted) < len(falls):
        HELD_BACK.inc(len(falls) - len(counted))
        await alerts.raise_(tx, _tells_itself(of), count=len(falls) - len(counted))
    intakes = [intake_of(fall, of) for fall in counted]
    new = await store.keep(tx, intakes)
    await outbox.append(tx, [each.event for each in intakes if each.key in new])
    return len(new)


def intake_of(fall: Fall, of: Silo) -> Intake:
    intake_id = fall.intake_id(tenant_id=of.tenant_id, device_id=of.device_id)
    said = feed.FeedIntakeRecorded(source=DEFAULT_SOURCE, quantity_kg=fall.quantity_kg)
    return Intake(
        event=BusEvent(
            event_id=intake_id,
            event_type=feed.INTAKE_RECORDED,
            tenant_id=of.tenant_id,
            farm_id=fall.end.farm_id,
            barn_id=fall.end.barn_id,
            device_id=of.device_id,
            occurred_at=fall.end.at,
            trace_id=str(intake_id),
            payload=msgspec.Raw(msgspec.json.encode(said)),
        ),
        source=DEFAULT_SOURCE,
        quantity_kg=fall.quantity_kg,
        parent_event_id=fall.end.event_id,
    )


def _no_weight(of: Silo) -> Alert:
    return Alert(
        kind="feed.weight_absurd",
        subject=f"{of.tenant_id}/{of.device_id}",
        severity="warning",
        message=(
            f"{of.device_id} sent weights beyond {silo.MOST_WEIGHT_KG:,.0f} kg; they are kept as "
            "readings, and no intake is derived from them. Look at the scale and its unit"
        ),
    )


def _failed(of: Silo, why: str) -> Alert:
    return Alert(
        kind="feed.derivation_failed",
        subject=f"{of.tenant_id}/{of.device_id}",
        severity="warning",
        message=(
            f"nothing can be derived from {of.device_id}'s weight ({why}); other silos go on. If "
            f"it stays, begin afresh: farmiq silo set {of.tenant_id} {of.device_id} --no-derive, "
            "then --derive"
        ),
    )


def _tells_itself(of: Silo) -> Alert:
    return Alert(
        kind="feed.derivation_off",
        subject=f"{of.tenant_id}/{of.device_id}",
        severity="info",
        message=(
            f"{of.device_id} sends feed.dispensed itself, so nothing is derived from its weight; "
            f"switch it off: farmiq silo set {of.tenant_id} {of.device_id} --no-derive. If it "
            "stopped sending them, switch it off and on again (--derive)"
        ),
    )


def _counted_twice(of: Silo, count: int, total_kg: float, first_since: datetime) -> Alert:
    return Alert(
        kind="feed.counted_twice",
        subject=f"{of.tenant_id}/{of.device_id}",
        severity="warning",
        message=(
            f"{of.device_id} told of feed itself for the first time, "
            f"at {first_since:%Y-%m-%d %H:%M}Z. {count} intakes of {total_kg:g} kg were derived "
            "from its weight since a day before and went to the cloud: they may be the same feed. "
            "Nothing more is derived from it; see docs/operate/feed.md"
        ),
    )

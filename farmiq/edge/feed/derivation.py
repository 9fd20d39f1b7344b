"""Intakes derived from silos' weights: a chore, in the order of time and not of arrival.

A silo's readings, its intakes, the events owed for them and how far it was read are one
transaction: what dies in the middle has not happened, and the next round does the same again.
"""

import msgspec
import prometheus_client

from farmiq import crash
from farmiq.edge import alerts, outbox
from farmiq.edge.alerts import Alert
from farmiq.edge.feed import silo, store
from farmiq.edge.feed.intake import DEFAULT_SOURCE, Intake
from farmiq.edge.feed.silo import Fall
from farmiq.edge.feed.store import Silo
from farmiq.messages import feed
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db

MOST_READINGS = 5_000

DERIVED = prometheus_client.Counter(
    "farmiq_feed_derived_total", "Intakes derived from silos' weights"
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
        read = MOST_READINGS
        while read == MOST_READINGS:
            async with db.transaction(pool) as tx:
                read, made = await derive_one(tx, each, settle_s=settle_s)
            count += made
    DERIVED.inc(count)
    return {"count": count}


async def derive_one(tx: db.Connection, of: Silo, *, settle_s: float) -> tuple[int, int]:
    """The next readings of one silo; returns (readings, new intakes)."""
    before = await store.state(tx, of)
    readings = await store.settled_readings(
        tx, of, after=before.read_to, settle_s=settle_s, most=MOST_READINGS
    )
    if not readings:
        return 0, 0
    after, falls = silo.derive(before, readings, of.limits)
    made = await _record(tx, of, falls) if falls else 0
    await store.keep_state(tx, of, after)
    crash.here("feed.in_derivation")
    return len(readings), made


async def _record(tx: db.Connection, of: Silo, falls: tuple[Fall, ...]) -> int:
    begin, end = falls[0].begin.at - silo.OWN_WORD_LASTS, falls[-1].end.at
    told = await store.dispensed_at(tx, of, begin=begin, end=end)
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


def _tells_itself(of: Silo) -> Alert:
    return Alert(
        kind="feed.derivation_off",
        subject=f"{of.tenant_id}/{of.device_id}",
        severity="info",
        message=(
            f"{of.device_id} sends feed.dispensed itself, so nothing is derived from its weight; "
            f"switch it off: farmiq silo set {of.tenant_id} {of.device_id} --no-derive"
        ),
    )

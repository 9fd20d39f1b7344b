"""Weigh sessions inside ingress's one transaction (C-81): store facts, update their sessions.

`problems` finds, before anything is stored, events on another device's session (SC-02);
`record` stores the facts, updates their sessions and returns the events for the cloud.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from farmiq.edge import batches
from farmiq.edge.arrival import Arrival
from farmiq.edge.batches import Placed
from farmiq.edge.weighvision import store
from farmiq.edge.weighvision.store import Owner
from farmiq.farm.sessions import Fact, Session, fold
from farmiq.messages import weighvision as words
from farmiq.messages.bus import BusEvent
from farmiq.messages.kinds import BATCH_DERIVED
from farmiq.messages.topics import SessionTopic
from farmiq.plumbing import db

OTHER_DEVICE = "FOREIGN_SESSION"


async def problems(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[str | None]:
    """For each message why it may not be on its session, or None.

    A session belongs to the device of its first message, also within one batch.
    """
    session_ids = {
        arrival.where.session_id for arrival in arrivals if isinstance(arrival.where, SessionTopic)
    }
    if not session_ids:
        return [None] * len(arrivals)
    owners = await store.owners(tx, sorted(session_ids))
    return [_problem(arrival, owners) for arrival in arrivals]


def _problem(arrival: Arrival, owners: dict[UUID, Owner]) -> str | None:
    if not isinstance(arrival.where, SessionTopic):
        return None
    sender = arrival.place.tenant_id, arrival.place.device_id
    if owners.setdefault(arrival.where.session_id, sender) == sender:
        return None
    # The owner is not named: it may be another company's.
    return f"{OTHER_DEVICE}: session {arrival.where.session_id} belongs to another device"


async def record(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Store what stations sent; returns the events for the cloud.

    An image outside of a session has no fact here: its event is passed on as it is.
    """
    of_sessions = [
        (arrival, arrival.where) for arrival in arrivals if isinstance(arrival.where, SessionTopic)
    ]
    batch_ids = await _find_batches(tx, arrivals)
    sessions = await _store(tx, of_sessions, batch_ids) if of_sessions else {}
    finalized = [
        topic.session_id
        for arrival, topic in of_sessions
        if arrival.kind == words.SESSION_FINALIZED
    ]
    result_ids = await store.inference_results(tx, finalized) if finalized else {}
    return [_cloud_event(arrival, sessions, batch_ids, result_ids) for arrival in arrivals]


async def _find_batches(tx: db.Connection, arrivals: Sequence[Arrival]) -> dict[UUID, str]:
    """By event, the batch that was in the barn where the station named none."""
    unnamed = [
        arrival
        for arrival in arrivals
        if isinstance(arrival.payload, words.SessionCreatedByDevice)
        and arrival.payload.batch_id is None
        and not arrival.clock_suspect
    ]
    places = [
        Placed(place.tenant_id, place.farm_id, place.barn_id, arrival.event.occurred_at)
        for arrival in unnamed
        for place in [arrival.place]
    ]
    batch_ids = await batches.at(tx, places)
    return {
        arrival.event.event_id: batch_id
        for arrival, batch_id in zip(unnamed, batch_ids, strict=True)
        if batch_id is not None
    }


async def _store(
    tx: db.Connection,
    arrivals: Sequence[tuple[Arrival, SessionTopic]],
    batch_ids: Mapping[UUID, str],
) -> dict[UUID, Session]:
    """The sessions of these arrivals as they are with them; `batch_ids` as of _find_batches."""
    stubs = {
        topic.session_id: store.Stub(
            topic.session_id, arrival.place, topic.station_id, arrival.event.occurred_at
        )
        for arrival, topic in reversed(arrivals)
    }
    session_ids = sorted(stubs)
    owners = await store.begin(tx, [stubs[session_id] for session_id in session_ids])
    if any(_problem(arrival, owners) for arrival, _ in arrivals):
        # Another writer began it since `problems` looked: the batch is tried again and sees it.
        raise psycopg.errors.SerializationFailure("a session was begun by another device meanwhile")
    await store.add_facts(
        tx,
        [
            store.SessionFact(
                arrival.place.tenant_id,
                topic.session_id,
                fact(arrival, batch_ids.get(arrival.event.event_id)),
                arrival.clock_suspect,
                _given(getattr(arrival.payload, "animal_id", None)),
            )
            for arrival, topic in arrivals
        ],
    )
    facts = await store.deciding_facts(tx, session_ids)
    sessions = {session_id: fold(facts[session_id]) for session_id in session_ids}
    await store.update_sessions(tx, sessions)
    return sessions


def fact(arrival: Arrival, batch_id: str | None) -> Fact:
    """What the message says of its session; `batch_id` is of the barn, if the message has none."""
    payload: Any = arrival.payload
    event = arrival.event
    match arrival.kind:
        case words.SESSION_CREATED:
            weight_kg = _given(payload.initial_weight_kg)
            values = {"batch_id": payload.batch_id or batch_id, "weight_kg": weight_kg}
        case words.WEIGHT_RECORDED:
            values = {"weight_kg": payload.weight_kg}
        case words.IMAGE_CAPTURED:
            values = {"media_id": payload.media_id}
        case words.SESSION_FINALIZED:
            weight_kg = _given(payload.final_weight_kg)
            values = {"image_count": payload.image_count, "weight_kg": weight_kg}
        case _:
            values = {"reason": _given(payload.reason)}
    return Fact(event.event_id, arrival.kind, event.occurred_at, arrival.seq, **values)


def _given(value: Any) -> Any:
    return None if value is msgspec.UNSET else value


def _cloud_event(
    arrival: Arrival,
    sessions: Mapping[UUID, Session],
    batch_ids: Mapping[UUID, str],
    result_ids: Mapping[UUID, UUID],
) -> BusEvent:
    """Every key that the device sent, and what the edge adds (C-96, C-109)."""
    if not isinstance(arrival.where, SessionTopic):
        return arrival.event
    session, payload = sessions[arrival.where.session_id], arrival.payload
    adds: dict[str, Any] = {words.STATION: arrival.where.station_id}
    match arrival.kind:
        case words.SESSION_CREATED:
            weight = _weight(payload.initial_weight_kg, session.initial_weight_kg)
            adds |= {"status": "created", "initial_weight_kg": weight[0], **weight[1]}
            if batch_id := batch_ids.get(arrival.event.event_id):
                adds |= {"batch_id": batch_id, BATCH_DERIVED: True}
        case words.SESSION_FINALIZED:
            weight = _weight(payload.final_weight_kg, session.final_weight_kg)
            adds |= {"status": "finalized", "final_weight_kg": weight[0], **weight[1]}
            adds |= {"inference_result_id": result_ids.get(arrival.where.session_id)}
        case words.SESSION_CANCELLED:
            adds |= {"status": "cancelled"}
    body = {**msgspec.json.decode(arrival.event.payload), **adds}
    return msgspec.structs.replace(arrival.event, payload=msgspec.Raw(msgspec.json.encode(body)))


def _weight(named: Any, weighed: float | None) -> tuple[Any, dict[str, Any]]:
    """The device's own weight, else that of its weighings so far (C-29), and the mark of that.

    More weighings may come after a marked one.
    """
    if _given(named) is not None:
        return named, {}
    return weighed, {words.DERIVED: True} if weighed is not None else {}

"""Weigh sessions inside the door's one transaction (C-81): facts kept, sessions made from them.

`problems` says before anything is noted whose session an event would speak on (SC-02); `record`
keeps the facts, makes the sessions they belong to and returns what the cloud is owed.
"""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from farmiq.edge.arrival import Arrival
from farmiq.edge.weighvision import store
from farmiq.edge.weighvision.session import Fact, Session, fold
from farmiq.edge.weighvision.store import Owner
from farmiq.messages import weighvision as words
from farmiq.messages.bus import BusEvent
from farmiq.messages.topics import SessionTopic
from farmiq.plumbing import db

REFUSED = "FOREIGN_SESSION"


async def problems(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[str | None]:
    """For each message why it cannot speak of its session, or None.

    A session belongs to the device that spoke of it first. Of two that begin the same id in one
    batch, the first has it.
    """
    wanted = {one.where.session_id for one in arrivals if isinstance(one.where, SessionTopic)}
    if not wanted:
        return [None] * len(arrivals)
    owners = await store.owners(tx, sorted(wanted))
    return [_problem(one, owners) for one in arrivals]


def _problem(arrival: Arrival, owners: dict[UUID, Owner]) -> str | None:
    if not isinstance(arrival.where, SessionTopic):
        return None
    me = arrival.place.tenant_id, arrival.place.device_id
    if owners.setdefault(arrival.where.session_id, me) == me:
        return None
    # Whose it is stays unsaid: it may be another company's.
    return f"{REFUSED}: session {arrival.where.session_id} belongs to another device"


async def record(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Keep what stations told; returns it as the cloud is owed it.

    An image outside of a session has no fact here: it is owed as it was said.
    """
    told = [(one, one.where) for one in arrivals if isinstance(one.where, SessionTopic)]
    sessions = await _keep(tx, told) if told else {}
    return [_owed(one, sessions) for one in arrivals]


async def _keep(
    tx: db.Connection, told: Sequence[tuple[Arrival, SessionTopic]]
) -> dict[UUID, Session]:
    """The sessions of these arrivals as they stand with them."""
    stubs = {where.session_id: _stub(one, where) for one, where in reversed(told)}
    wanted = sorted(stubs)
    owners = await store.begin(tx, [stubs[session_id] for session_id in wanted])
    if any(_problem(one, owners) for one, _ in told):
        # Another writer began it since we looked: the batch is tried again, and then it is seen.
        raise psycopg.errors.SerializationFailure("a session was begun by another device meanwhile")
    await store.keep_facts(
        tx,
        [
            (one.place.tenant_id, where.session_id, fact(one), one.clock_suspect)
            for one, where in told
        ],
    )
    facts = await store.deciding_facts(tx, wanted)
    sessions = {session_id: fold(facts[session_id]) for session_id in wanted}
    await store.keep_sessions(tx, sessions)
    return sessions


def fact(arrival: Arrival) -> Fact:
    """What the message says of its session."""
    said: Any = arrival.payload
    event = arrival.event
    match arrival.kind:
        case words.SESSION_CREATED:
            what = {"batch_id": said.batch_id, "weight_kg": _given(said.initial_weight_kg)}
        case words.WEIGHT_RECORDED:
            what = {"weight_kg": said.weight_kg}
        case words.IMAGE_CAPTURED:
            what = {"media_id": said.media_id}
        case words.SESSION_FINALIZED:
            what = {
                "image_count": said.image_count,
                "weight_kg": _given(said.final_weight_kg),
            }
        case _:
            what = {"reason": _given(said.reason)}
    return Fact(event.event_id, arrival.kind, event.occurred_at, arrival.seq, **what)


def _given(value: Any) -> Any:
    return None if value is msgspec.UNSET else value


def _stub(arrival: Arrival, where: SessionTopic) -> store.Stub:
    return store.Stub(where.session_id, arrival.place, where.station_id, arrival.event.occurred_at)


def _owed(arrival: Arrival, sessions: dict[UUID, Session]) -> BusEvent:
    """Every key that the device sent, and what the edge knows beside it (C-96, C-109)."""
    if not isinstance(arrival.where, SessionTopic):
        return arrival.event
    session = sessions[arrival.where.session_id]
    said = arrival.payload
    adds: dict[str, Any] = {words.STATION: arrival.where.station_id}
    match arrival.kind:
        case words.SESSION_CREATED:
            weight = _weight(said.initial_weight_kg, session.initial_weight_kg)
            adds |= {"status": "created", **weight("initial_weight_kg")}
        case words.SESSION_FINALIZED:
            weight = _weight(said.final_weight_kg, session.final_weight_kg)
            adds |= {
                "status": "finalized",
                **weight("final_weight_kg"),
                "inference_result_id": None,
            }
        case words.SESSION_CANCELLED:
            adds |= {"status": "cancelled"}
    payload = {**msgspec.json.decode(arrival.event.payload), **adds}
    return msgspec.structs.replace(arrival.event, payload=msgspec.Raw(msgspec.json.encode(payload)))


def _weight(named: Any, weighed: float | None) -> Callable[[str], dict[str, Any]]:
    """The weight of an event: the device's own, else that of its weighings so far (C-29).

    The latter is marked, since more of them may come: whoever has them all looks there.
    """

    def under(name: str) -> dict[str, Any]:
        if _given(named) is not None:
            return {name: named}
        return {name: weighed, **({words.DERIVED: True} if weighed is not None else {})}

    return under

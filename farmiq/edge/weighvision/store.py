"""The SQL of weigh sessions: owners, facts and states."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from farmiq.farm import sessions as rules
from farmiq.farm.sessions import Fact, Session
from farmiq.messages import weighvision as words
from farmiq.messages.topics import Place
from farmiq.plumbing import db

Owner = tuple[str, str]  # tenant and device


@dataclass(frozen=True, slots=True)
class Stub:
    """A session of which only one of its events is known (C-28)."""

    session_id: UUID
    place: Place
    station_id: str
    occurred_at: datetime


async def owners(tx: db.Connection, sessions: Sequence[UUID]) -> dict[UUID, Owner]:
    """The owners of the sessions that exist."""
    rows = await db.fetch_all(
        tx,
        "select id, tenant_id, device_id from weight_sessions where id = any(%s::uuid[])",
        list(sessions),
    )
    return {id_: (tenant_id, device_id) for id_, tenant_id, device_id in rows}


async def begin(tx: db.Connection, stubs: Sequence[Stub]) -> dict[UUID, Owner]:
    """Insert the rows that are missing, and lock all until the transaction ends.

    Other writers of these sessions wait, and then see our facts. In the order of their ids, as
    `stubs` are: so two writers cannot deadlock.
    """
    await tx.execute(
        """
        insert into weight_sessions (id, tenant_id, farm_id, barn_id, device_id, station_id,
          start_at, received_at, heard_at)
        select s.*, clock.now, clock.now
        from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
          %s::timestamptz[]) as s,
          (select fn_now() as now) clock
        on conflict on constraint weight_sessions_pkey do nothing
        """,
        db.columns(
            stubs, "session_id", "place.tenant_id", "place.farm_id", "place.barn_id",
            "place.device_id", "station_id", "occurred_at",
        ),
    )  # fmt: skip
    rows = await db.fetch_all(
        tx,
        "select id, tenant_id, device_id from weight_sessions where id = any(%s::uuid[]) "
        "order by id for update",
        [stub.session_id for stub in stubs],
    )
    return {id_: (tenant_id, device_id) for id_, tenant_id, device_id in rows}


async def inference_results(tx: db.Connection, sessions: Sequence[UUID]) -> dict[UUID, UUID]:
    """By session its result of inference, where that is there before the session ends (RB-17)."""
    rows = await db.fetch_all(
        tx,
        """
        select w.id, r.id from weight_sessions w
          join inference_results r on r.tenant_id = w.tenant_id and r.session_id = w.id
        where w.id = any(%s::uuid[])
        """,
        list(sessions),
    )
    return dict(rows)


class SessionFact(NamedTuple):
    tenant_id: str
    session_id: UUID
    fact: Fact
    clock_suspect: bool
    animal_id: str | None


async def add_facts(tx: db.Connection, facts: Sequence[SessionFact]) -> None:
    """A known one stays as it is."""
    await tx.execute(
        """
        insert into weight_session_events (tenant_id, event_id, session_id, event_type, occurred_at,
          seq, batch_id, weight_kg, image_count, media_id, reason, clock_suspect, animal_id,
          received_at)
        select f.*, clock.now
        from unnest(%s::text[], %s::uuid[], %s::uuid[], %s::text[], %s::timestamptz[], %s::int8[],
          %s::text[], %s::float8[], %s::int8[], %s::uuid[], %s::text[], %s::bool[],
          %s::text[]) as f,
          (select fn_now() as now) clock
        on conflict on constraint weight_session_events_pkey do nothing
        """,
        db.columns(
            facts, "tenant_id", "fact.event_id", "session_id", "fact.event_type",
            "fact.occurred_at", "fact.seq", "fact.batch_id", "fact.weight_kg", "fact.image_count",
            "fact.media_id", "fact.reason", "clock_suspect", "animal_id",
        ),
    )  # fmt: skip


async def deciding_facts(
    connection: db.Connection, sessions: Sequence[UUID]
) -> dict[UUID, list[Fact]]:
    """The facts of each session without weighings between its first and its last.

    Those decide nothing, and a scale that was left on may have sent thousands.
    """
    rows = await db.fetch_all(
        connection,
        """
        select s.id, f.event_id, f.event_type, f.occurred_at, f.seq, f.batch_id, f.weight_kg,
          f.image_count, f.media_id, f.reason
        from unnest(%s::uuid[]) as s(id), lateral (
          select * from weight_session_events e
          where e.session_id = s.id and e.event_type <> %s
          union all (
            select * from weight_session_events e
            where e.session_id = s.id and e.event_type = %s
            order by e.occurred_at, e.seq nulls first, e.event_id limit 1)
          union all (
            select * from weight_session_events e
            where e.session_id = s.id and e.event_type = %s
            order by e.occurred_at desc, e.seq desc nulls last, e.event_id desc limit 1)) f
        """,
        list(sessions),
        *[words.WEIGHT_RECORDED] * 3,
    )
    facts: dict[UUID, list[Fact]] = defaultdict(list)
    for session_id, *columns in rows:
        facts[session_id].append(Fact(*columns))
    return facts


async def update_sessions(tx: db.Connection, sessions: Mapping[UUID, Session]) -> None:
    """Write the states that follow from the facts; the timer judges them again."""
    await tx.execute(
        """
        update weight_sessions w set
          status = s.status, start_at = s.start_at, end_at = s.end_at, batch_id = s.batch_id,
          initial_weight_kg = s.initial_weight_kg, final_weight_kg = s.final_weight_kg,
          image_count = s.image_count, cancel_reason = s.cancel_reason,
          heard_at = (select fn_now()), is_settled = false, judged_at = null
        from unnest(%s::uuid[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s::text[],
          %s::float8[], %s::float8[], %s::int8[], %s::text[])
          as s(id, status, start_at, end_at, batch_id, initial_weight_kg, final_weight_kg,
            image_count, cancel_reason)
        where w.id = s.id
        """,
        (list(sessions), *db.columns(sessions.values(), *rules.COLUMNS)),
    )

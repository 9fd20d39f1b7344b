"""Weigh sessions' SQL in the door's transaction: owners, stubs, facts, and what they come to."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from farmiq.edge.weighvision.session import Fact, Session
from farmiq.messages import weighvision as words
from farmiq.messages.topics import Place
from farmiq.plumbing import db

Owner = tuple[str, str]  # tenant and device


@dataclass(frozen=True, slots=True)
class Stub:
    """A session of which no more is known than that somebody spoke of it (C-28)."""

    session_id: UUID
    place: Place
    station_id: str
    occurred_at: datetime


async def owners(tx: db.Connection, sessions: Sequence[UUID]) -> dict[UUID, Owner]:
    """Whose the sessions are that exist."""
    rows = await db.fetch_all(
        tx,
        "select id, tenant_id, device_id from weight_sessions where id = any(%s::uuid[])",
        list(sessions),
    )
    return {id_: (tenant_id, device_id) for id_, tenant_id, device_id in rows}


async def begin(tx: db.Connection, stubs: Sequence[Stub]) -> dict[UUID, Owner]:
    """Make the rows that are not there, and lock all until the transaction ends.

    Whoever else brings facts of them waits, and then sees ours. In the order of their ids, as
    `stubs` stand: two writers wait for each other one way only.
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
        (
            [each.session_id for each in stubs],
            [each.place.tenant_id for each in stubs],
            [each.place.farm_id for each in stubs],
            [each.place.barn_id for each in stubs],
            [each.place.device_id for each in stubs],
            [each.station_id for each in stubs],
            [each.occurred_at for each in stubs],
        ),
    )
    rows = await db.fetch_all(
        tx,
        "select id, tenant_id, device_id from weight_sessions where id = any(%s::uuid[]) "
        "order by id for update",
        [each.session_id for each in stubs],
    )
    return {id_: (tenant_id, device_id) for id_, tenant_id, device_id in rows}


async def keep_facts(tx: db.Connection, facts: Sequence[tuple[str, UUID, Fact, bool]]) -> None:
    """(tenant, session, fact, whether its clock is suspect); one that is there already stays."""
    await tx.execute(
        """
        insert into weight_session_events (tenant_id, event_id, session_id, event_type, occurred_at,
          seq, batch_id, weight_kg, image_count, media_id, reason, clock_suspect, received_at)
        select f.*, clock.now
        from unnest(%s::text[], %s::uuid[], %s::uuid[], %s::text[], %s::timestamptz[], %s::int8[],
          %s::text[], %s::float8[], %s::int8[], %s::uuid[], %s::text[], %s::bool[]) as f,
          (select fn_now() as now) clock
        on conflict on constraint weight_session_events_pkey do nothing
        """,
        (
            [tenant_id for tenant_id, _, _, _ in facts],
            [each.event_id for _, _, each, _ in facts],
            [session_id for _, session_id, _, _ in facts],
            [each.event_type for _, _, each, _ in facts],
            [each.occurred_at for _, _, each, _ in facts],
            [each.seq for _, _, each, _ in facts],
            [each.batch_id for _, _, each, _ in facts],
            [each.weight_kg for _, _, each, _ in facts],
            [each.image_count for _, _, each, _ in facts],
            [each.media_id for _, _, each, _ in facts],
            [each.reason for _, _, each, _ in facts],
            [suspect for _, _, _, suspect in facts],
        ),
    )


async def deciding_facts(
    connection: db.Connection, sessions: Sequence[UUID]
) -> dict[UUID, list[Fact]]:
    """The facts of each session without weighings between its first and its last.

    These decide nothing, and a scale that was left on may have told thousands.
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
    found: dict[UUID, list[Fact]] = defaultdict(list)
    for session_id, *columns in rows:
        found[session_id].append(Fact(*columns))
    return found


async def keep_sessions(tx: db.Connection, sessions: Mapping[UUID, Session]) -> None:
    """Write down what their facts come to now; the timer looks at them again."""
    made = list(sessions.values())
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
        (
            list(sessions),
            [each.status for each in made],
            [each.start_at for each in made],
            [each.end_at for each in made],
            [each.batch_id for each in made],
            [each.initial_weight_kg for each in made],
            [each.final_weight_kg for each in made],
            [each.image_count for each in made],
            [each.reason for each in made],
        ),
    )

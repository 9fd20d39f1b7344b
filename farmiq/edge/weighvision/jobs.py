"""Flag weigh sessions that wait too long for a part, by the edge's own clock (SC-03, C-27).

A session that may have changed is evaluated again from its facts and its stored images, so a part
that arrives clears it, in any transaction.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import prometheus_client

from farmiq.edge import alerts, outbox
from farmiq.edge.alerts import Alert
from farmiq.edge.weighvision import store
from farmiq.farm import sessions as rules
from farmiq.messages import bus
from farmiq.messages import weighvision as words
from farmiq.messages.bus import BusEvent
from farmiq.messages.wording import worded
from farmiq.plumbing import db, ids

INCOMPLETE = "weighvision.session_incomplete"
PORTION = 500

NOW_INCOMPLETE = prometheus_client.Gauge(
    "farmiq_weighvision_incomplete_sessions", "Weigh sessions that lack a part for too long"
)
UNBOUND = prometheus_client.Gauge(
    "farmiq_weighvision_unbound_media", "Stored images whose weigh session did not begin yet"
)
FLAGGED = prometheus_client.Counter(
    "farmiq_weighvision_flagged_total", "Weigh sessions flagged or cleared", ["outcome"]
)


@dataclass(frozen=True, slots=True)
class Waiting:
    id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str
    incomplete_reason: str | None
    received_at: datetime
    looked_at: datetime
    waited_s: float
    quiet_s: float

    @property
    def subject(self) -> str:
        """Of its station's alert."""
        return f"{self.tenant_id}/{self.farm_id}/{self.barn_id}/{self.station_id}"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """`missing` is what lacks for too long."""

    waiting: Waiting
    is_settled: bool
    images: int
    missing: tuple[str, ...]

    @property
    def reason(self) -> str | None:
        """All of it in words; None if nothing is missing."""
        return "; ".join(self.missing) or None

    def event(self) -> BusEvent:
        """That the session became incomplete (C-110)."""
        waiting = self.waiting
        payload = words.SessionIncomplete(
            session_id=waiting.id,
            missing=list(self.missing),
            since=waiting.received_at,
            station_id=waiting.station_id,
        )
        return bus.own_event(
            words.SESSION_INCOMPLETE,
            waiting,
            payload,
            event_id=ids.new(),
            occurred_at=waiting.looked_at,
            session_id=waiting.id,
        )


@dataclass(frozen=True, slots=True)
class Counts:
    seen: int
    flagged: int
    cleared: int


async def flag_incomplete(pool: db.Pool, *, patience_s: float) -> dict[str, object]:
    """One round: flag what waits for too long, clear what does not any more."""
    flagged = cleared = 0
    async with pool.connection() as connection:
        began_at: datetime = await db.fetch_value(connection, "select fn_now()")
    while True:
        async with db.transaction(pool) as tx:
            counts = await evaluate_portion(tx, patience_s=patience_s, began_at=began_at)
        flagged, cleared = flagged + counts.flagged, cleared + counts.cleared
        if counts.seen < PORTION:
            break
    FLAGGED.labels(outcome="incomplete").inc(flagged)
    FLAGGED.labels(outcome="cleared").inc(cleared)
    return {"flagged": flagged, "cleared": cleared}


async def evaluate_portion(tx: db.Connection, *, patience_s: float, began_at: datetime) -> Counts:
    """The next sessions of a round that began then: evaluated, updated and alerted at once."""
    waiting = await _next(tx, patience_s=patience_s, began_at=began_at)
    evaluated = await _evaluate(tx, waiting, patience_s=patience_s)
    await _update(tx, evaluated)
    changed = [
        session for session in evaluated if session.reason != session.waiting.incomplete_reason
    ]
    if changed:
        await update_alerts(tx, {session.waiting.subject for session in changed})
    flagged = [session for session in changed if session.waiting.incomplete_reason is None]
    if flagged:
        await outbox.append(tx, [session.event() for session in flagged])
    cleared = sum(session.reason is None for session in changed)
    return Counts(len(waiting), len(flagged), cleared)


async def count(pool: db.Pool) -> dict[str, object]:
    """How many are incomplete, and how many images wait for their session (MD-06)."""
    async with db.transaction(pool) as connection:
        await update_alerts(connection)
        NOW_INCOMPLETE.set(
            await db.fetch_value(
                connection, "select count(*) from weight_sessions where is_incomplete"
            )
        )
        UNBOUND.set(
            await db.fetch_value(
                connection,
                """
                select count(*) from media_objects m
                where m.session_id is not null and m.upload_status = 'stored' and not exists (
                  select from weight_sessions w where w.id = m.session_id)
                """,
            )
        )
    return {}


async def _next(tx: db.Connection, *, patience_s: float, began_at: datetime) -> list[Waiting]:
    """Sessions that may have changed since they were last evaluated; once per round.

    A session that was evaluated after all was quiet for long enough changes only by an event, which
    resets it, or by an image. Images are counted, not timed: other transactions commit them, and
    one that is older than our last look may not have been visible to it.
    """
    return await db.fetch_as(
        tx,
        Waiting,
        """
        select w.id, w.tenant_id, w.farm_id, w.barn_id, w.device_id, w.station_id,
          w.incomplete_reason, w.received_at, c.now as looked_at,
          extract(epoch from c.now - w.received_at)::float8 as waited_s,
          extract(epoch from c.now - w.heard_at)::float8 as quiet_s
        from weight_sessions w, (select fn_now() as now) c
        where not w.is_settled and (
          w.judged_at is null
          or w.judged_at < %(began_at)s
            and w.judged_at <= w.heard_at + %(patience_s)s * interval '1 second'
          or w.stored_image_count <> (
            select count(*) from media_objects m
            where m.tenant_id = w.tenant_id and m.session_id = w.id
              and m.upload_status = 'stored'))
        order by w.received_at, w.id limit %(limit)s
        for update of w skip locked
        """,
        {"patience_s": patience_s, "began_at": began_at, "limit": PORTION},
    )


async def _evaluate(
    tx: db.Connection, sessions: Sequence[Waiting], *, patience_s: float
) -> list[Evaluated]:
    session_ids = [waiting.id for waiting in sessions]
    facts = await store.deciding_facts(tx, session_ids)
    stored = await stored_images(tx, session_ids)
    evaluated = []
    for waiting in sessions:
        session = rules.fold(facts[waiting.id], stored=bound(stored[waiting.id]))
        missing = rules.overdue(
            session, waited_s=waiting.waited_s, quiet_s=waiting.quiet_s, patience_s=patience_s
        )
        evaluated.append(Evaluated(waiting, session.is_settled, len(stored[waiting.id]), missing))
    return evaluated


async def stored_images(
    connection: db.Connection, sessions: Sequence[UUID]
) -> dict[UUID, dict[UUID, bool]]:
    """The stored images under each session's id, and whether its own device stored them.

    The device is no condition: of a station's thousands of images the session alone finds its few.
    """
    rows = await db.fetch_all(
        connection,
        """
        select w.id, m.id, m.device_id = w.device_id from weight_sessions w
        join media_objects m on m.tenant_id = w.tenant_id and m.session_id = w.id
        where w.id = any(%s::uuid[]) and m.upload_status = 'stored'
        """,
        list(sessions),
    )
    images: dict[UUID, dict[UUID, bool]] = defaultdict(dict)
    for session_id, media_id, is_own in rows:
        images[session_id][media_id] = is_own
    return images


def bound(stored: Mapping[UUID, bool]) -> set[UUID]:
    """Those that the session's own device stored (C-26, SC-02)."""
    return {media_id for media_id, is_own in stored.items() if is_own}


async def _update(tx: db.Connection, evaluated: Sequence[Evaluated]) -> None:
    await tx.execute(
        """
        update weight_sessions w set
          is_settled = j.is_settled, judged_at = c.now, stored_image_count = j.images,
          is_incomplete = j.reason is not null, incomplete_reason = j.reason,
          incomplete_at = case when j.reason is not null then coalesce(w.incomplete_at, c.now) end
        from unnest(%s::uuid[], %s::bool[], %s::int8[], %s::text[])
          as j(id, is_settled, images, reason), (select fn_now() as now) c
        where w.id = j.id
        """,
        db.columns(evaluated, "waiting.id", "is_settled", "images", "reason"),
    )


@dataclass(frozen=True, slots=True)
class _Station:
    """A station with incomplete sessions; `unseen` ones were flagged since its last alert."""

    subject: str
    farm_id: str
    barn_id: str
    station_id: str
    sessions: int
    unseen: int
    newest_id: UUID
    newest_reason: str

    def alert(self) -> Alert:
        sessions = worded("a weigh session")
        if self.sessions != 1:
            sessions = worded("%(number)s weigh sessions", number=f"{self.sessions:,}")
        return Alert(
            kind=INCOMPLETE,
            subject=self.subject,
            severity="warning",
            message=worded(
                "%(sentence)s of station %(station)s, barn %(place)s of farm %(estate)s, lack a "
                "part; of the newest (%(session)s): %(missing)s. It may still be on the station: "
                "look at it, and with `farmiq weighings ls --station %(station)s --state "
                "INCOMPLETE`. Closes by itself when every part has arrived",
                sentence=sessions,
                station=self.station_id,
                place=self.barn_id,
                estate=self.farm_id,
                session=self.newest_id,
                missing=self.newest_reason,
            ),
        )


async def update_alerts(tx: db.Connection, subjects: Collection[str] | None = None) -> None:
    """One alert per station while sessions of it lack a part, counted once for each of them.

    It follows from the sessions, so it is right after any change; one that a person closed opens
    again only for a session that was flagged since.
    """
    stations = await db.fetch_as(
        tx,
        _Station,
        """
        with lacking as (
          select concat_ws('/', tenant_id, farm_id, barn_id, station_id) as subject,
            farm_id, barn_id, station_id, id, incomplete_at, incomplete_reason
          from weight_sessions where is_incomplete and not is_settled
        ), raised as (
          select subject, max(last_seen_at) as last_at from alerts where kind = %s group by subject
        )
        select subject, farm_id, barn_id, station_id, count(*) as sessions,
          count(*) filter (where incomplete_at > coalesce(last_at, '-infinity')) as unseen,
          (array_agg(id order by incomplete_at desc, id))[1] as newest_id,
          (array_agg(incomplete_reason order by incomplete_at desc, id))[1] as newest_reason
        from lacking left join raised using (subject)
        where %s::text[] is null or subject = any(%s::text[])
        group by subject, farm_id, barn_id, station_id order by subject
        """,
        (INCOMPLETE, *[None if subjects is None else sorted(subjects)] * 2),
    )
    for station in stations:
        if station.unseen:
            await alerts.raise_(tx, station.alert(), count=station.unseen)
        else:
            await alerts.restate(tx, station.alert())
    known = await alerts.open_subjects(tx, INCOMPLETE) if subjects is None else subjects
    for subject in sorted({*known}.difference(station.subject for station in stations)):
        await alerts.close(tx, kind=INCOMPLETE, subject=subject)

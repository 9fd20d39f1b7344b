"""What weigh sessions wait for: looked at round by round, by the edge's own clock (SC-03, C-27).

Whatever may have changed is judged anew from its facts and from the images that are stored, so a
part that arrives clears its session by itself, whoever brought it.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import prometheus_client
from psycopg.rows import TupleRow, class_row

from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.weighvision import session, store
from farmiq.plumbing import db

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
    station_id: str
    incomplete_reason: str | None
    waited_s: float
    quiet_s: float

    @property
    def subject(self) -> str:
        """Of its station's alert."""
        return f"{self.tenant_id}/{self.farm_id}/{self.barn_id}/{self.station_id}"


@dataclass(frozen=True, slots=True)
class Judged:
    """`reason` is what is missing for too long; None if nothing is."""

    waiting: Waiting
    is_settled: bool
    images: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class Done:
    seen: int
    flagged: int
    cleared: int


async def look(pool: db.Pool, *, patience_s: float) -> dict[str, object]:
    """One round: flag what waits for too long, clear what does not any more."""
    flagged = cleared = 0
    async with pool.connection() as connection:
        began_at: datetime = await db.fetch_value(connection, "select fn_now()")
    while True:
        async with db.transaction(pool) as tx:
            done = await portion(tx, patience_s=patience_s, began_at=began_at)
        flagged, cleared = flagged + done.flagged, cleared + done.cleared
        if done.seen < PORTION:
            break
    FLAGGED.labels(outcome="incomplete").inc(flagged)
    FLAGGED.labels(outcome="cleared").inc(cleared)
    return {"flagged": flagged, "cleared": cleared}


async def portion(tx: db.Connection, *, patience_s: float, began_at: datetime) -> Done:
    """The next of a round that began then: judged, written down and told in one transaction."""
    some = await _some(tx, patience_s=patience_s, began_at=began_at)
    judged = await _judge(tx, some, patience_s=patience_s)
    await _keep(tx, judged)
    flagged, cleared = await _tell(tx, judged)
    return Done(len(some), flagged, cleared)


async def count(pool: db.Pool) -> dict[str, object]:
    """How many are incomplete, and how many images wait for their session (MD-06)."""
    async with db.transaction(pool) as connection:
        await tell_stations(connection)
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


async def _some(tx: db.Connection, *, patience_s: float, began_at: datetime) -> list[Waiting]:
    """Sessions that something may have come to since they were last judged; once per round.

    A session that was judged when all was quiet for long enough changes only by an event, which
    says so itself, or by an image. Images are counted, not timed: they are committed by others,
    and may be older than our look and yet not have been seen by it.
    """
    async with tx.cursor(row_factory=class_row(Waiting)) as cursor:
        await cursor.execute(
            """
            select w.id, w.tenant_id, w.farm_id, w.barn_id, w.station_id, w.incomplete_reason,
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
            order by w.received_at, w.id limit %(most)s
            for update of w skip locked
            """,
            {"patience_s": patience_s, "began_at": began_at, "most": PORTION},
        )
        return await cursor.fetchall()


async def _judge(tx: db.Connection, some: Sequence[Waiting], *, patience_s: float) -> list[Judged]:
    wanted = [each.id for each in some]
    facts = await store.deciding_facts(tx, wanted)
    stored = await stored_images(tx, wanted)
    judged = []
    for each in some:
        found = session.fold(facts[each.id], stored=bound(stored[each.id]))
        lacking = session.overdue(
            found, waited_s=each.waited_s, quiet_s=each.quiet_s, patience_s=patience_s
        )
        reason = "; ".join(lacking) or None
        judged.append(Judged(each, found.is_settled, len(stored[each.id]), reason))
    return judged


async def stored_images(
    connection: db.Connection, sessions: Sequence[UUID]
) -> dict[UUID, dict[UUID, bool]]:
    """The images that are stored under each session's id, and whether its own device stored them.

    The device is not asked for in the condition: of a station's thousands of images the few of a
    session are found by the session alone.
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
    found: dict[UUID, dict[UUID, bool]] = defaultdict(dict)
    for session_id, media_id, is_own in rows:
        found[session_id][media_id] = is_own
    return found


def bound(stored: Mapping[UUID, bool]) -> set[UUID]:
    """Those that the session's own device stored (C-26, SC-02)."""
    return {media_id for media_id, is_own in stored.items() if is_own}


async def _keep(tx: db.Connection, judged: Sequence[Judged]) -> None:
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
        (
            [each.waiting.id for each in judged],
            [each.is_settled for each in judged],
            [each.images for each in judged],
            [each.reason for each in judged],
        ),
    )


async def _tell(tx: db.Connection, judged: Sequence[Judged]) -> tuple[int, int]:
    """Bring the alerts of their stations up to date; (how many began to lack, how many ceased)."""
    changed = [each for each in judged if each.reason != each.waiting.incomplete_reason]
    if changed:
        await tell_stations(tx, {each.waiting.subject for each in changed})
    began = sum(each.waiting.incomplete_reason is None for each in changed)
    return began, sum(each.reason is None for each in changed)


async def tell_stations(tx: db.Connection, only: Collection[str] | None = None) -> None:
    """One alert per station while sessions of it lack a part, counted once for each of them.

    It is read off the sessions, so whatever became of them it comes right; one that a person closed
    opens again only for a session that was flagged since.
    """
    lacking = [_Lacking(*row) for row in await _lacking(tx, only)]
    for each in lacking:
        if each.unseen:
            await alerts.raise_(tx, _alert(each), count=each.unseen)
        else:
            await alerts.restate(tx, _alert(each))
    subjects = await alerts.open_subjects(tx, INCOMPLETE) if only is None else only
    for subject in sorted({*subjects}.difference(each.subject for each in lacking)):
        await alerts.close(tx, kind=INCOMPLETE, subject=subject)


@dataclass(frozen=True, slots=True)
class _Lacking:
    """A station with sessions that lack a part; `unseen` ones were flagged since its last alert."""

    subject: str
    farm_id: str
    barn_id: str
    station_id: str
    sessions: int
    unseen: int
    newest_id: UUID
    newest_reason: str


async def _lacking(tx: db.Connection, only: Collection[str] | None) -> list[TupleRow]:
    return await db.fetch_all(
        tx,
        """
        with lacking as (
          select concat_ws('/', tenant_id, farm_id, barn_id, station_id) as subject,
            farm_id, barn_id, station_id, id, incomplete_at, incomplete_reason
          from weight_sessions where is_incomplete and not is_settled
        ), raised as (
          select subject, max(last_seen_at) as last_at from alerts where kind = %s group by subject
        )
        select subject, farm_id, barn_id, station_id, count(*),
          count(*) filter (where incomplete_at > coalesce(last_at, '-infinity')),
          (array_agg(id order by incomplete_at desc, id))[1],
          (array_agg(incomplete_reason order by incomplete_at desc, id))[1]
        from lacking left join raised using (subject)
        where %s::text[] is null or subject = any(%s::text[])
        group by subject, farm_id, barn_id, station_id order by subject
        """,
        INCOMPLETE,
        *[None if only is None else sorted(only)] * 2,
    )


def _alert(lacking: _Lacking) -> Alert:
    count = lacking.sessions
    sessions = "a weigh session" if count == 1 else f"{count:,} weigh sessions"
    return Alert(
        kind=INCOMPLETE,
        subject=lacking.subject,
        severity="warning",
        message=(
            f"{sessions} of station {lacking.station_id}, barn {lacking.barn_id} of farm "
            f"{lacking.farm_id}, lack a part; of the newest ({lacking.newest_id}): "
            f"{lacking.newest_reason}. It may still be on the station: look at it, and with "
            f"`farmiq weighings ls --station {lacking.station_id} --state INCOMPLETE`. Closes by "
            "itself when every part has arrived"
        ),
    )

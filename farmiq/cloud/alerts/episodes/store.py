"""SQL of episodes that values keep open, and that are put right when values came late."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from farmiq.cloud.alerts.episodes.corrections import Past
from farmiq.cloud.alerts.evaluating.advance import Span
from farmiq.cloud.episodes import NewEpisode
from farmiq.plumbing import db


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Values that found an episode still open."""

    tenant_id: str
    cause: str
    at: datetime
    value: float | None
    worst_value: float | None
    count: int


async def see_again(tx: db.Connection, sightings: Sequence[Sighting]) -> None:
    """Note on open episodes that values still were as bad."""
    if not sightings:
        return
    await tx.execute(
        """
        update alert_episodes e set last_at = greatest(e.last_at, n.at),
          last_value = coalesce(n.value, e.last_value),
          worst_value = coalesce(n.worst_value, e.worst_value),
          seen_count = e.seen_count + n.count
        from unnest(%s::text[], %s::text[], %s::timestamptz[], %s::float8[], %s::float8[],
          %s::bigint[]) as n(tenant_id, cause, at, value, worst_value, count)
        where e.tenant_id = n.tenant_id and e.cause = n.cause
          and e.state in ('active', 'acknowledged')
        """,
        db.columns(sightings, "tenant_id", "cause", "at", "value", "worst_value", "count"),
    )


async def set_severities(
    tx: db.Connection, severities: Collection[tuple[str, UUID, str]], *, may_fall: bool
) -> None:
    """Of open episodes, by tenant and id; who was told of less is told again."""
    await tx.execute(
        """
        with changed as materialized (
          select e.tenant_id, e.episode_id, e.paged_at, n.severity,
            array_position(s.rising, n.severity)
              > array_position(s.rising, e.severity) as is_worse
          from unnest(%s::text[], %s::uuid[], %s::text[]) as n(tenant_id, episode_id, severity)
            cross join (select array['info', 'warning', 'critical', 'security'] as rising) s
            join alert_episodes e on e.tenant_id = n.tenant_id and e.episode_id = n.episode_id
              and e.state in ('active', 'acknowledged')
          order by n.tenant_id, n.episode_id for update of e
        ), steps as (
          insert into alert_steps (tenant_id, episode_id, step, created_at)
          select tenant_id, episode_id, 'worsened', fn_now() from changed
          where is_worse and paged_at is not null
          on conflict on constraint alert_steps_pkey do update set
            created_at = excluded.created_at, routed_at = null
        )
        update alert_episodes e set severity = c.severity
        from changed c where e.tenant_id = c.tenant_id and e.episode_id = c.episode_id
          and (c.is_worse or %s)
        """,
        (*map(list, zip(*severities, strict=True)), may_fall),
    )


async def fill_in(tx: db.Connection, episodes: Sequence[NewEpisode]) -> None:
    """Give what edges said of these, while their readings were still on the way, times and values.

    It is the same matter: what is filled in is known to `raise_episodes`.
    """
    over = [episode for episode in episodes if episode.resolved_at is not None]
    if not over:
        return
    await tx.execute(
        """
        update alert_episodes e set opened_at = n.opened_at, resolved_at = n.resolved_at,
          last_at = n.last_at, first_value = n.value, worst_value = n.worst_value,
          last_value = n.last_value
        from unnest(%s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[],
          %s::timestamptz[], %s::float8[], %s::float8[], %s::float8[]) as n(tenant_id, cause,
          opened_at, resolved_at, last_at, value, worst_value, last_value)
        where e.tenant_id = n.tenant_id and e.cause = n.cause and e.state = 'resolved'
          and e.first_value is null and not e.is_absence and e.ended_reason is null
          and e.opened_at between n.opened_at and n.resolved_at
        """,
        db.columns(
            over, "tenant_id", "cause", "opened_at", "resolved_at", "last_at", "value",
            "worst_value", "last_value",
        ),
    )  # fmt: skip


async def history(
    tx: db.Connection, tenant_id: str, causes: Collection[str], *, since: datetime
) -> list[Past]:
    """Episodes of these causes that were open at `since` or later, oldest first.

    What a person ended was over with its last value, as in `raise_episodes`.
    """
    return await db.fetch_as(
        tx,
        Past,
        """
        select episode_id, cause, opened_at,
          case when ended_reason = 'person' then greatest(opened_at, last_at) else resolved_at end
            as resolved_at, raised_at,
          paged_at is not null as is_paged,
          ended_reason is not null and ended_reason <> 'rule' as is_fixed
        from alert_episodes
        where tenant_id = %s and cause = any(%s) and state <> 'withdrawn'
          and (resolved_at is null or resolved_at >= %s)
        order by opened_at, episode_id
        """,
        (tenant_id, [*causes], since),
    )


async def correct(tx: db.Connection, tenant_id: str, changes: Sequence[tuple[Past, Span]]) -> None:
    """Give episodes other begins, ends and values; those who were told hear of an end.

    Those that are over first: of a cause only one may be open.
    """
    for changed in (
        [pair for pair in changes if pair[1].resolved_at is not None],
        [pair for pair in changes if pair[1].resolved_at is None],
    ):
        if changed:
            await _correct(tx, tenant_id, changed)


async def _correct(tx: db.Connection, tenant_id: str, changes: Sequence[tuple[Past, Span]]) -> None:
    spans = [span for _, span in changes]
    await tx.execute(
        """
        with corrected as (
          update alert_episodes e set opened_at = n.opened_at, resolved_at = n.resolved_at,
            state = case when n.resolved_at is not null then 'resolved'
              when e.state = 'resolved' then 'active' else e.state end,
            last_at = n.last_at, first_value = n.first_value, worst_value = n.worst_value,
            last_value = n.last_value,
            held_by = case when n.resolved_at is null then e.held_by end
          from unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[],
            %s::float8[], %s::float8[], %s::float8[]) as n(episode_id, opened_at, resolved_at,
              last_at, first_value, worst_value, last_value)
          where e.tenant_id = %s and e.episode_id = n.episode_id
          returning e.tenant_id, e.episode_id, e.paged_at, e.resolved_at
        )
        insert into alert_steps (tenant_id, episode_id, step, created_at)
        select tenant_id, episode_id, 'resolved', fn_now() from corrected
        where paged_at is not null and resolved_at is not null
        on conflict on constraint alert_steps_pkey do nothing
        """,
        (
            [past.episode_id for past, _ in changes],
            *db.columns(
                spans, "opened_at", "resolved_at", "last_at", "first_value", "worst_value",
                "last_value",
            ),
            tenant_id,
        ),
    )  # fmt: skip


async def withdraw(tx: db.Connection, tenant_id: str, episodes: Collection[UUID]) -> None:
    """Episodes that never were: data that came late says so."""
    if not episodes:
        return
    await tx.execute(
        """
        with withdrawn as (
          update alert_episodes set state = 'withdrawn',
            resolved_at = coalesce(resolved_at, greatest(opened_at, fn_now())), held_by = null
          where tenant_id = %s and episode_id = any(%s)
          returning tenant_id, episode_id, paged_at
        )
        insert into alert_steps (tenant_id, episode_id, step, created_at)
        select tenant_id, episode_id, 'resolved', fn_now() from withdrawn
        where paged_at is not null
        on conflict on constraint alert_steps_pkey do nothing
        """,
        (tenant_id, [*episodes]),
    )

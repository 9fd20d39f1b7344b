"""Episodes of alerts: opened, seen again, acknowledged and resolved, one open for each cause.

For every service of the cloud that finds something wrong or ends it. Who is told when is decided by
cloud-alerts-service alone: nobody else writes paged_at or the step `opened`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg.types.json import Jsonb

from farmiq.messages.alerts import EndReason
from farmiq.plumbing import db, ids

MAX_NOTE = 1000
# Maintenance at `clock.now` with the episode `e` in its scope; for what calls people (SQL).
WINDOWS_OF_EPISODE = """
  alert_windows w
  where w.tenant_id = e.tenant_id and w.begin_at <= clock.now and w.end_at > clock.now
    and (w.farm_id is null or w.farm_id = e.farm_id)
    and (w.barn_id is null or w.barn_id = e.barn_id)
    and (w.device_id is null or w.device_id = e.device_id)
    and (w.edge_cluster_id is null or w.edge_cluster_id = e.edge_cluster_id)
    and (w.rule_id is null or w.rule_id = e.rule_id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEpisode:
    """Something is wrong since `opened_at` and was so at `last_at`, both the event's own time.

    With `resolved_at` it is over already: history, of which nobody is told.
    """

    tenant_id: str
    cause: str
    source: Literal["rule", "edge", "camera", "cloud"]
    severity: str
    subject: str
    message: str
    opened_at: datetime
    last_at: datetime
    resolved_at: datetime | None = None
    value: float | None = None
    last_value: float | None = None
    worst_value: float | None = None
    rule_id: str | None = None
    signal: str | None = None
    is_absence: bool = False
    farm_id: str | None = None
    barn_id: str | None = None
    device_id: str | None = None
    edge_cluster_id: str | None = None
    batch_id: str | None = None
    episode_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a cause, by the event's own time."""

    tenant_id: str
    cause: str
    at: datetime
    value: float | None = None
    worst_value: float | None = None
    count: int = 0
    reason: EndReason | None = None


async def raise_episode(tx: db.Connection, episode: NewEpisode) -> None:
    """Open the episode, or note that the open one of its cause was seen again."""
    await raise_episodes(tx, [episode])


async def raise_episodes(tx: db.Connection, episodes: Collection[NewEpisode]) -> None:
    """As `raise_episode`, for at most one episode of a cause that is not over.

    An `episode_id` that is there already, or an episode of the cause that ended after `opened_at`,
    says that this one is known: then nothing happens. One that a person ended knows of nothing
    that began after its last value.
    """
    if not episodes:
        return
    await tx.execute(
        """
        insert into alert_episodes as e (tenant_id, episode_id, cause, source, severity, subject,
          message, opened_at, last_at, resolved_at, first_value, worst_value, last_value, rule_id,
          signal, is_absence, farm_id, barn_id, device_id, edge_cluster_id, batch_id, raised_at,
          state)
        select n.*, fn_now(), case when n.resolved_at is null then 'active' else 'resolved' end
        from unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[],
          %s::text[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::float8[],
          %s::float8[], %s::float8[], %s::text[], %s::text[], %s::bool[], %s::text[], %s::text[],
          %s::text[], %s::text[], %s::text[]) as n(tenant_id, episode_id, cause, source, severity,
          subject, message, opened_at, last_at, resolved_at, first_value, worst_value, last_value,
          rule_id, signal, is_absence, farm_id, barn_id, device_id, edge_cluster_id, batch_id)
        where not exists (
          select from alert_episodes k where k.tenant_id = n.tenant_id and k.cause = n.cause
            and k.state in ('resolved', 'withdrawn')
            and (k.episode_id = n.episode_id
              or k.state = 'resolved' and k.opened_at <= n.opened_at
                and k.resolved_at > n.opened_at
                -- Values lag: what a person ended was over with its last one.
                and (k.ended_reason is distinct from 'person' or k.last_at >= n.opened_at)))
        order by n.tenant_id, n.cause
        on conflict (tenant_id, cause) where state in ('active', 'acknowledged') do update set
          last_at = greatest(e.last_at, excluded.last_at),
          last_value = case when excluded.last_at >= e.last_at then excluded.last_value
            else e.last_value end,
          worst_value = coalesce(excluded.worst_value, e.worst_value),
          first_value = coalesce(e.first_value, excluded.first_value),
          signal = coalesce(e.signal, excluded.signal),
          is_absence = e.is_absence or excluded.is_absence,
          batch_id = coalesce(e.batch_id, excluded.batch_id),
          message = case when excluded.last_at >= e.last_at then excluded.message
            else e.message end,
          seen_count = e.seen_count + 1
        """,
        (
            *db.columns(episodes, "tenant_id"),
            [episode.episode_id or ids.new() for episode in episodes],
            *db.columns(
                episodes, "cause", "source", "severity", "subject", "message", "opened_at",
                "last_at", "resolved_at", "value",
            ),
            [
                None if episode.is_absence else _first(episode.worst_value, episode.value)
                for episode in episodes
            ],
            [_first(episode.last_value, episode.value) for episode in episodes],
            *db.columns(
                episodes, "rule_id", "signal", "is_absence", "farm_id", "barn_id", "device_id",
                "edge_cluster_id", "batch_id",
            ),
        ),
    )  # fmt: skip


def _first(value: float | None, otherwise: float | None) -> float | None:
    return otherwise if value is None else value


async def resolve(tx: db.Connection, tenant_id: str, cause: str, *, at: datetime) -> bool:
    """End the open episode of a cause; False if there is none."""
    return await resolve_all(tx, [Ending(tenant_id, cause, at)]) > 0


async def resolve_all(tx: db.Connection, endings: Collection[Ending]) -> int:
    """End the open episodes of these causes; those who were told of one hear of its end.

    An absence that ended before it began was none: data came late, and it is withdrawn.
    """
    if not endings:
        return 0
    count: int = await db.fetch_value(
        tx,
        """
        with ended as (
          update alert_episodes e set
            state = case when e.is_absence and n.at <= e.opened_at then 'withdrawn'
              else 'resolved' end,
            resolved_at = greatest(n.at, e.opened_at), last_at = greatest(e.last_at, n.at),
            last_value = coalesce(n.value, e.last_value),
            worst_value = coalesce(n.worst_value, e.worst_value),
            seen_count = e.seen_count + n.count, held_by = null, ended_reason = n.reason
          from unnest(%s::text[], %s::text[], %s::timestamptz[], %s::float8[], %s::float8[],
            %s::bigint[], %s::text[]) as n(tenant_id, cause, at, value, worst_value, count, reason)
          where e.tenant_id = n.tenant_id and e.cause = n.cause
            and e.state in ('active', 'acknowledged')
          returning e.tenant_id, e.episode_id, e.paged_at
        ), steps as (
          insert into alert_steps (tenant_id, episode_id, step, created_at)
          select tenant_id, episode_id, 'resolved', fn_now() from ended where paged_at is not null
          on conflict on constraint alert_steps_pkey do nothing
        )
        select count(*) from ended
        """,
        *db.columns(endings, "tenant_id", "cause", "at", "value", "worst_value", "count", "reason"),
    )
    return count


async def acknowledge(
    tx: db.Connection, tenant_id: str, episode_id: UUID, *, by: str, note: str | None = None
) -> Literal["acknowledged", "already", "ended"] | None:
    """Somebody looks after it: it stays one episode, and nobody else is called. None: unknown."""
    row = await db.fetch_all(
        tx,
        """
        select state from alert_episodes where tenant_id = %s and episode_id = %s for update
        """,
        tenant_id,
        episode_id,
    )
    if not row:
        return None
    if row[0][0] != "active":
        return "already" if row[0][0] == "acknowledged" else "ended"
    await tx.execute(
        """
        with acknowledged as (
          update alert_episodes set state = 'acknowledged', acknowledged_at = fn_now(),
            acknowledged_by = %s, note = %s
          where tenant_id = %s and episode_id = %s
          returning tenant_id, episode_id
        )
        insert into alert_steps (tenant_id, episode_id, step, created_at)
        select tenant_id, episode_id, 'acknowledged', fn_now() from acknowledged
        on conflict on constraint alert_steps_pkey do nothing
        """,
        (by, note, tenant_id, episode_id),
    )
    detail = {"note": note} if note else None
    await audit(tx, tenant_id, actor=by, action="acknowledge", key=str(episode_id), detail=detail)
    return "acknowledged"


async def end(
    tx: db.Connection, tenant_id: str, episode_id: UUID, *, by: str, note: str | None = None
) -> Literal["ended", "already"] | None:
    """A person says that it is over. None: there is no such episode.

    Its rule opens another one only when the values were clear and are bad again. What an edge has
    open stays open there; the alert of a camera is resolved with it.
    """
    state = await db.fetch_value(
        tx,
        "select state from alert_episodes where tenant_id = %s and episode_id = %s for update",
        tenant_id,
        episode_id,
    )
    if state is None:
        return None
    if state not in ("active", "acknowledged"):
        return "already"
    await tx.execute(
        """
        with ended as (
          update alert_episodes set state = 'resolved', resolved_at = greatest(opened_at, fn_now()),
            held_by = null, ended_reason = 'person', ended_by = %s, ended_note = %s,
            is_open_at_edge = source = 'edge'
          where tenant_id = %s and episode_id = %s
          returning tenant_id, episode_id, paged_at, source, cause
        ), cameras as (
          update device_alerts a set resolved_at = fn_now()
          from ended e join companies c using (tenant_id)
          where e.source = 'camera' and a.company_id = c.company_id and a.resolved_at is null
            and e.cause = 'camera:' || a.alert_type || '|' || coalesce(a.device_id, a.site_id)
        )
        insert into alert_steps (tenant_id, episode_id, step, created_at)
        select tenant_id, episode_id, 'resolved', fn_now() from ended where paged_at is not null
        on conflict on constraint alert_steps_pkey do nothing
        """,
        (by, note, tenant_id, episode_id),
    )
    detail = {"note": note} if note else None
    await audit(tx, tenant_id, actor=by, action="end", key=str(episode_id), detail=detail)
    return "ended"


Action = Literal[
    "acknowledge", "end", "rule.set", "rule.remove", "window.add", "window.remove", "add_channel",
    "change_channel", "remove_channel", "test_channel", "add_contact", "change_contact",
    "remove_contact", "change_settings", "add_report", "remove_report",
]  # fmt: skip


async def audit(
    tx: db.Connection,
    tenant_id: str,
    *,
    actor: str,
    action: Action,
    key: str,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Note who did what about alerts; `key` is the rule, episode, channel and so on."""
    await tx.execute(
        """
        insert into alert_actions (action_id, at, tenant_id, actor, action, key, detail)
        values (%s, fn_now(), %s, %s, %s, %s, %s)
        """,
        (ids.new(), tenant_id, actor, action, key, Jsonb(detail) if detail is not None else None),
    )

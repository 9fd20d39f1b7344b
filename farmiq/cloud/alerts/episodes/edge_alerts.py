"""Alerts that edges open and close, as episodes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from farmiq.cloud import episodes
from farmiq.cloud.alerts.episodes import store
from farmiq.cloud.alerts.evaluating import book
from farmiq.cloud.episodes import Ending, NewEpisode
from farmiq.farm.alerts import defaults
from farmiq.messages import catalogue, edge
from farmiq.messages.alerts import AlertRule
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db

OPEN = ("active", "acknowledged")


async def store_edge_alerts(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """Alerts that edges opened and closed become episodes; each may come late and twice.

    An alert of a rule that the edge evaluates itself is the episode that the cloud's own evaluation
    opens; where the cloud has the values, they say when it is over, and not a person who silences
    the siren.
    """
    alerts: dict[tuple[str, UUID], EdgeAlert] = {}
    for event in events:
        alert = _edge_alert(event)
        known = alerts.get(alert.key)
        alerts[alert.key] = alert if known is None else known.merged(alert)
    await _add_signals(tx, alerts)
    known_states = await _episode_states(tx, alerts.keys())
    open_causes = await _open_causes(tx, [alert.cause for alert in alerts.values()])
    still_open = await _open_rules(
        tx,
        [
            (alert.episode.tenant_id, alert.episode.rule_id, alert.episode.subject)
            for alert in alerts.values()
            if alert.episode.rule_id is not None and alert.episode.resolved_at is not None
        ],
    )
    latest = _latest(alerts.values(), known_states, open_causes)
    endings = [
        ending
        for ending in _endings(alerts.values(), known_states, open_causes, latest)
        if (ending.tenant_id, ending.cause) not in still_open
    ]
    await episodes.resolve_all(tx, endings)
    await episodes.raise_episodes(tx, [*_new(alerts.values(), known_states, open_causes, latest)])
    await _close_at_edge(
        tx, [alert.key for alert in alerts.values() if alert.episode.resolved_at is not None]
    )
    seen = [alert for alert in alerts.values() if alert.episode.resolved_at is None]
    await _see_edge_alerts(tx, [(alert.episode, alert.count) for alert in seen])
    return len(events)


@dataclass(frozen=True, slots=True)
class EdgeAlert:
    """An alert of an edge as an episode; its id is the alert's."""

    episode: NewEpisode
    alert_id: UUID
    count: int

    @property
    def key(self) -> tuple[str, UUID]:
        return self.episode.tenant_id, self.alert_id

    @property
    def cause(self) -> tuple[str, str]:
        return self.episode.tenant_id, self.episode.cause

    @property
    def order(self) -> tuple[datetime, UUID]:
        return self.episode.opened_at, self.alert_id

    def merged(self, other: "EdgeAlert") -> "EdgeAlert":
        """Of two events of one alert: over if one says so, else the newer."""
        mine, others = self.episode, other.episode
        if mine.resolved_at is not None:
            return self
        newer = others.resolved_at is not None or others.last_at >= mine.last_at
        return other if newer else self


States = Mapping[tuple[str, UUID], str]
Causes = Mapping[tuple[str, str], tuple[UUID, datetime]]
Latest = Mapping[tuple[str, str], EdgeAlert]


def _latest(alerts: Collection[EdgeAlert], states: States, open_causes: Causes) -> Latest:
    """Of each cause the alert that is open from now on, where that is a new one."""
    latest: dict[tuple[str, str], EdgeAlert] = {}
    for alert in alerts:
        if alert.key in states or alert.episode.resolved_at is not None:
            continue
        before = open_causes.get(alert.cause)
        if before is not None and before[1] > alert.episode.opened_at:
            continue
        known = latest.get(alert.cause)
        if known is None or alert.order > known.order:
            latest[alert.cause] = alert
    return latest


def _endings(
    alerts: Collection[EdgeAlert], states: States, open_causes: Causes, latest: Latest
) -> Iterator[Ending]:
    """Of alerts that closed, and of the one before if an edge opened another of the same cause."""
    for alert in alerts:
        episode = alert.episode
        if states.get(alert.key) in OPEN and episode.resolved_at is not None:
            yield Ending(episode.tenant_id, episode.cause, episode.resolved_at)
    for cause, alert in latest.items():
        if alert.episode.source == "edge" and cause in open_causes:
            yield Ending(*cause, alert.episode.opened_at)


def _new(
    alerts: Collection[EdgeAlert], states: States, open_causes: Causes, latest: Latest
) -> Iterator[NewEpisode]:
    """Of alerts without one; what the cloud's own evaluation opened is that of a rule.

    One that comes after a later one of its cause is history: it was over when that one began.
    """
    for alert in alerts:
        episode = alert.episode
        is_own = episode.source == "rule" and alert.cause in open_causes
        if alert.key in states or is_own:
            continue
        if episode.resolved_at is not None or latest.get(alert.cause) is alert:
            yield episode
        else:
            newer = latest.get(alert.cause)
            began_at = open_causes[alert.cause][1] if newer is None else newer.episode.opened_at
            yield replace(episode, resolved_at=began_at)


def _edge_alert(event: BusEvent) -> EdgeAlert:
    alert: edge.EdgeAlert = catalogue.BUS[event.event_type].decoder.decode(event.payload)
    rule_id = alert.code.removeprefix("rule.") if alert.code.startswith("rule.") else None
    cause = f"edge:{alert.edge_cluster_id}|{alert.code}|{alert.subject}"
    is_over = event.event_type == edge.ALERT_CLOSED
    return EdgeAlert(
        NewEpisode(
            tenant_id=event.tenant_id,
            episode_id=alert.alert_id,
            cause=f"rule:{rule_id}|{alert.subject}" if rule_id else cause,
            source="rule" if rule_id else "edge",
            rule_id=rule_id,
            severity=alert.severity,
            subject=alert.subject,
            message=alert.message,
            edge_cluster_id=alert.edge_cluster_id,
            farm_id=event.farm_id,
            barn_id=event.barn_id,
            device_id=event.device_id if isinstance(event.device_id, str) else None,
            opened_at=alert.first_at,
            last_at=alert.last_at,
            resolved_at=max(event.occurred_at, alert.first_at) if is_over else None,
        ),
        alert.alert_id,
        alert.count,
    )


async def _add_signals(tx: db.Connection, alerts: dict[tuple[str, UUID], EdgeAlert]) -> None:
    """What the rules look at that edges evaluate: an edge's alert names only its rule."""
    of_rules = [alert for alert in alerts.values() if alert.episode.rule_id is not None]
    if not of_rules:
        return
    tenants = {alert.episode.tenant_id for alert in of_rules}
    rules: dict[str, list[AlertRule]] = {tenant_id: [] for tenant_id in tenants}
    for tenant_id, rule, _ in await book.own_rules(tx, tenants):
        rules[tenant_id].append(rule)
    known = {tenant_id: defaults.with_defaults(own) for tenant_id, own in rules.items()}
    for alert in of_rules:
        episode = alert.episode
        rule_now = known[episode.tenant_id].get(episode.rule_id or "")
        if rule_now is None:
            continue
        named = replace(episode, signal=rule_now.signal)
        place = episode.subject.split("/")
        if episode.device_id is None and len(place) == len(("farm", "barn", "device")):
            named = replace(named, farm_id=place[0], barn_id=place[1], device_id=place[2])
        alerts[alert.key] = replace(alert, episode=named)


async def _episode_states(
    tx: db.Connection, keys: Collection[tuple[str, UUID]]
) -> dict[tuple[str, UUID], str]:
    """The states of episodes that are known, by tenant and id."""
    rows = await db.fetch_all(
        tx,
        """
        select e.tenant_id, e.episode_id, e.state
        from unnest(%s::text[], %s::uuid[]) as k(tenant_id, episode_id)
          join alert_episodes e on e.tenant_id = k.tenant_id and e.episode_id = k.episode_id
        """,
        [key[0] for key in keys],
        [key[1] for key in keys],
    )
    return {(row[0], row[1]): row[2] for row in rows}


async def _open_causes(
    tx: db.Connection, causes: Collection[tuple[str, str]]
) -> dict[tuple[str, str], tuple[UUID, datetime]]:
    """The open episodes of causes, with the moment at which each began."""
    rows = await db.fetch_all(
        tx,
        """
        select e.tenant_id, e.cause, e.episode_id, e.opened_at
        from unnest(%s::text[], %s::text[]) as k(tenant_id, cause)
          join alert_episodes e on e.tenant_id = k.tenant_id and e.cause = k.cause
            and e.state in ('active', 'acknowledged')
        """,
        [cause[0] for cause in causes],
        [cause[1] for cause in causes],
    )
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


async def _open_rules(
    tx: db.Connection, rules: Collection[tuple[str, str, str]]
) -> set[tuple[str, str]]:
    """(tenant, cause) of these rules, by tenant, id and subject, that our own values have open."""
    if not rules:
        return set()
    rows = await db.fetch_all(
        tx,
        """
        select k.tenant_id, 'rule:' || k.rule_id || '|' || k.subject
        from unnest(%s::text[], %s::text[], %s::text[]) as k(tenant_id, rule_id, subject)
          join alert_states s on s.tenant_id = k.tenant_id and s.subject = k.subject
        where s.states -> k.rule_id -> 'state' ->> 'opened_at' is not null
        """,
        *map(list, zip(*rules, strict=True)),
    )
    return {(row[0], row[1]) for row in rows}


async def _see_edge_alerts(tx: db.Connection, alerts: Sequence[tuple[NewEpisode, int]]) -> None:
    """Note on open episodes how often the edge saw them, and if they became more severe."""
    if not alerts:
        return
    keys = db.columns([alert for alert, _ in alerts], "tenant_id", "episode_id")
    severities, last_at, messages = db.columns(
        [alert for alert, _ in alerts], "severity", "last_at", "message"
    )
    await store.set_severities(tx, [*zip(*keys, severities, strict=True)], may_fall=False)
    await tx.execute(
        """
        update alert_episodes e set last_at = greatest(e.last_at, n.last_at),
          seen_count = greatest(e.seen_count, n.count),
          message = case when n.last_at >= e.last_at then n.message else e.message end
        from unnest(%s::text[], %s::uuid[], %s::timestamptz[], %s::text[], %s::bigint[])
          as n(tenant_id, episode_id, last_at, message, count)
        where e.tenant_id = n.tenant_id and e.episode_id = n.episode_id
          and e.state in ('active', 'acknowledged')
        """,
        (*keys, last_at, messages, [count for _, count in alerts]),
    )


async def _close_at_edge(tx: db.Connection, keys: Collection[tuple[str, UUID]]) -> None:
    """The edge has closed these too, which a person had ended here before."""
    if keys:
        await tx.execute(
            """
            update alert_episodes e set is_open_at_edge = false
            from unnest(%s::text[], %s::uuid[]) as k(tenant_id, episode_id)
            where e.tenant_id = k.tenant_id and e.episode_id = k.episode_id and e.is_open_at_edge
            """,
            ([key[0] for key in keys], [key[1] for key in keys]),
        )

"""What people ask and change about alerts, for the API and the command line; audited."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from farmiq.cloud import episodes
from farmiq.cloud.alerts.episodes import store
from farmiq.cloud.alerts.evaluating import book
from farmiq.farm.alerts import defaults
from farmiq.farm.alerts import rules as farm_rules
from farmiq.messages.alerts import MAX_RULES, AlertRule
from farmiq.plumbing import db, ids

MAX_WINDOWS = 1000
# Who did it, if nobody is named.
PROGRAM = "farmiq"
EPISODE = (
    "episode_id", "cause", "source", "rule_id", "severity", "subject", "farm_id", "barn_id",
    "device_id", "edge_cluster_id", "batch_id", "message", "state", "opened_at", "last_at",
    "resolved_at", "raised_at", "paged_at", "seen_count", "first_value", "worst_value",
    "last_value", "held_by", "acknowledged_at", "acknowledged_by", "note", "ended_reason",
    "ended_by", "ended_note",
)  # fmt: skip
WINDOW = (
    "window_id", "begin_at", "end_at", "reason", "farm_id", "barn_id", "device_id",
    "edge_cluster_id", "rule_id", "made_by", "made_at",
)  # fmt: skip
_EPISODE, _WINDOW = ", ".join(EPISODE), ", ".join(WINDOW)


class RejectedError(Exception):
    """The change is not possible as things are."""


# --- episodes


async def page(tx: db.Connection, tenant_id: str, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Episodes, newest first."""
    return await db.fetch_dicts(
        tx,
        f"""
        select {_EPISODE} from alert_episodes e
        where e.tenant_id = %(tenant)s
          and (%(state)s::text is null or e.state = %(state)s
            or %(state)s = 'open' and e.state in ('active', 'acknowledged'))
          and (%(severity)s::text is null or e.severity = %(severity)s)
          and (%(source)s::text is null or e.source = %(source)s)
          and (%(rule)s::text is null or e.rule_id = %(rule)s)
          and (%(farm)s::text is null or e.farm_id = %(farm)s)
          and (%(barn)s::text is null or e.barn_id = %(barn)s)
          and (%(device)s::text is null or e.device_id = %(device)s)
          and (%(edge)s::text is null or e.edge_cluster_id = %(edge)s)
          and (%(begin)s::timestamptz is null or e.opened_at >= %(begin)s)
          and (%(end)s::timestamptz is null or e.opened_at < %(end)s)
          and (%(after_at)s::timestamptz is null or e.opened_at <= %(after_at)s)
          and (%(after_at)s::timestamptz is null or e.opened_at < %(after_at)s
            or e.episode_id > %(after_id)s::uuid)
        order by e.opened_at desc, e.episode_id limit %(limit)s
        """.encode(),  # noqa: S608 - names of columns
        {**wanted, "tenant": tenant_id},
    )


async def episode(tx: db.Connection, tenant_id: str, episode_id: UUID) -> dict[str, Any] | None:
    """One episode with the steps that people were told of; None if there is none."""
    rows = await db.fetch_dicts(
        tx,
        f"select {_EPISODE} from alert_episodes where tenant_id = %s and episode_id = %s".encode(),  # noqa: S608
        (tenant_id, episode_id),
    )
    if not rows:
        return None
    steps = await db.fetch_dicts(
        tx,
        """
        select step, created_at, routed_at from alert_steps
        where tenant_id = %s and episode_id = %s order by created_at, step
        """,
        (tenant_id, episode_id),
    )
    return {**rows[0], "steps": steps}


# --- rules


def shown(
    rule: AlertRule, *, is_default: bool, changed_at: datetime | None, changed_by: str | None
) -> dict[str, Any]:
    """A rule as people see it."""
    return {
        **msgspec.to_builtins(rule),
        "sentence": farm_rules.sentence(rule),
        "is_default": is_default,
        "changed_at": changed_at,
        "changed_by": changed_by,
    }


async def all_rules(tx: db.Connection, tenant_id: str) -> list[dict[str, Any]]:
    """The rules of a company by id: its own, and those that ship where it has none of the id."""
    rows = await db.fetch_all(
        tx,
        "select rule::text, changed_at, changed_by from alert_rules where tenant_id = %s",
        tenant_id,
    )
    own = {}
    for row in rows:
        rule = msgspec.json.decode(row[0], type=AlertRule)
        own[rule.rule_id] = shown(rule, is_default=False, changed_at=row[1], changed_by=row[2])
    shipped = {
        rule.rule_id: shown(rule, is_default=True, changed_at=None, changed_by=None)
        for rule in defaults.DEFAULTS
    }
    return [rule for _, rule in sorted((shipped | own).items())]


async def rule(tx: db.Connection, tenant_id: str, rule_id: str) -> dict[str, Any] | None:
    return next((row for row in await all_rules(tx, tenant_id) if row["rule_id"] == rule_id), None)


async def set_rule(
    tx: db.Connection, tenant_id: str, wanted: AlertRule, *, actor: str = PROGRAM
) -> None:
    """Add or change a rule. What an older version of it has open is over.

    If only its name or severity is another, it stays open with the new severity. Raises
    RejectedError if the company has too many.
    """
    old = await _own_rule(tx, tenant_id, wanted.rule_id)
    if old is None:
        await tx.execute("select pg_advisory_xact_lock(hashtextextended(%s, 7503))", (tenant_id,))
        count = await db.fetch_value(
            tx, "select count(*) from alert_rules where tenant_id = %s", tenant_id
        )
        if count >= MAX_RULES:
            raise RejectedError(f"a company has at most {MAX_RULES} rules: remove some first")
    await tx.execute(
        """
        insert into alert_rules as r (tenant_id, rule_id, rule, changed_at, changed_by)
        values (%s, %s, %s, fn_now(), %s)
        on conflict on constraint alert_rules_pkey do update set rule = excluded.rule,
          revision = r.revision + 1, changed_at = excluded.changed_at,
          changed_by = excluded.changed_by
        """,
        (tenant_id, wanted.rule_id, Jsonb(msgspec.to_builtins(wanted)), actor),
    )
    before = old or {rule.rule_id: rule for rule in defaults.DEFAULTS}.get(wanted.rule_id)
    if before is not None and (
        not wanted.enabled or farm_rules.rule_hash(before) != farm_rules.rule_hash(wanted)
    ):
        await _end_rule(tx, tenant_id, wanted.rule_id)
    else:
        await _set_severity(tx, tenant_id, wanted)
    detail = msgspec.to_builtins(wanted)
    await episodes.audit(
        tx, tenant_id, actor=actor, action="rule.set", key=wanted.rule_id, detail=detail
    )
    await _notify(tx, tenant_id)


async def remove_rule(
    tx: db.Connection, tenant_id: str, rule_id: str, *, actor: str = PROGRAM
) -> bool:
    """Remove a company's own rule; one that ships with the same id is in force again.

    False if there is none. Raises RejectedError for one that ships: it can only be switched off.
    """
    cursor = await tx.execute(
        "delete from alert_rules where tenant_id = %s and rule_id = %s", (tenant_id, rule_id)
    )
    if not cursor.rowcount:
        if any(rule.rule_id == rule_id for rule in defaults.DEFAULTS):
            raise RejectedError("this rule ships with the product: set it with enabled false")
        return False
    await _end_rule(tx, tenant_id, rule_id)
    await episodes.audit(tx, tenant_id, actor=actor, action="rule.remove", key=rule_id)
    await _notify(tx, tenant_id)
    return True


async def _own_rule(tx: db.Connection, tenant_id: str, rule_id: str) -> AlertRule | None:
    text = await db.fetch_value(
        tx,
        "select rule::text from alert_rules where tenant_id = %s and rule_id = %s for update",
        tenant_id,
        rule_id,
    )
    return None if text is None else msgspec.json.decode(text, type=AlertRule)


async def _end_rule(tx: db.Connection, tenant_id: str, rule_id: str) -> None:
    """Forget what is pending for a rule, and end what it has open at its last value."""
    await tx.execute(
        """
        update alert_states set states = states - %(rule)s::text
        where tenant_id = %(tenant)s and states ? %(rule)s
        """,
        {"tenant": tenant_id, "rule": rule_id},
    )
    rows = await db.fetch_all(
        tx,
        """
        select cause, last_at from alert_episodes
        where tenant_id = %s and rule_id = %s and state in ('active', 'acknowledged')
        """,
        tenant_id,
        rule_id,
    )
    await episodes.resolve_all(
        tx, [episodes.Ending(tenant_id, row[0], row[1], reason="rule") for row in rows]
    )


async def _set_severity(tx: db.Connection, tenant_id: str, rule: AlertRule) -> None:
    """What a rule has open is as severe as the rule."""
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, episode_id, %s from alert_episodes
        where tenant_id = %s and rule_id = %s and state in ('active', 'acknowledged')
          and severity <> %s
        """,
        rule.severity,
        tenant_id,
        rule.rule_id,
        rule.severity,
    )
    if rows:
        await store.set_severities(tx, rows, may_fall=True)


async def _notify(tx: db.Connection, tenant_id: str) -> None:
    """At the commit, every instance that evaluates loads the rules of the company again.

    By the company's random id: every login may listen, and a tenant's name says more.
    """
    await tx.execute(
        "select pg_notify(%s, company_id::text) from companies where tenant_id = %s",
        (book.CHANGED, tenant_id),
    )


# --- maintenance windows


async def windows(
    tx: db.Connection, tenant_id: str, wanted: dict[str, Any]
) -> list[dict[str, Any]]:
    """Maintenance windows, the one that ends last first."""
    return await db.fetch_dicts(
        tx,
        f"""
        select {_WINDOW} from alert_windows w
        where w.tenant_id = %(tenant)s and (not %(current)s or w.end_at > fn_now())
          and (%(after_at)s::timestamptz is null or w.end_at <= %(after_at)s)
          and (%(after_at)s::timestamptz is null or w.end_at < %(after_at)s
            or w.window_id > %(after_id)s::uuid)
        order by w.end_at desc, w.window_id limit %(limit)s
        """.encode(),  # noqa: S608 - names of columns
        {**wanted, "tenant": tenant_id},
    )


async def add_window(
    tx: db.Connection, tenant_id: str, window: dict[str, Any], *, actor: str = PROGRAM
) -> dict[str, Any]:
    """Add a maintenance window. Raises RejectedError if too many are to come."""
    count = await db.fetch_value(
        tx,
        "select count(*) from alert_windows where tenant_id = %s and end_at > fn_now()",
        tenant_id,
    )
    if count >= MAX_WINDOWS:
        raise RejectedError(f"{MAX_WINDOWS} windows are open or to come: remove some first")
    rows = await db.fetch_dicts(
        tx,
        f"""
        insert into alert_windows (tenant_id, window_id, begin_at, end_at, reason, made_by,
          made_at, farm_id, barn_id, device_id, edge_cluster_id, rule_id)
        values (%(tenant)s, %(id)s, %(begin_at)s, %(end_at)s, %(reason)s, %(actor)s, fn_now(),
          %(farm_id)s, %(barn_id)s, %(device_id)s, %(edge_cluster_id)s, %(rule_id)s)
        returning {_WINDOW}
        """.encode(),  # noqa: S608 - names of columns
        {**window, "tenant": tenant_id, "id": ids.new(), "actor": actor},
    )
    detail = {name: str(value) for name, value in window.items() if value is not None}
    await episodes.audit(
        tx, tenant_id, actor=actor, action="window.add", key=str(rows[0]["window_id"]),
        detail=detail,
    )  # fmt: skip
    return rows[0]


async def remove_window(
    tx: db.Connection, tenant_id: str, window_id: UUID, *, actor: str = PROGRAM
) -> bool:
    """End a maintenance window now; False if there is none."""
    cursor = await tx.execute(
        "delete from alert_windows where tenant_id = %s and window_id = %s", (tenant_id, window_id)
    )
    if cursor.rowcount:
        await episodes.audit(tx, tenant_id, actor=actor, action="window.remove", key=str(window_id))
    return cursor.rowcount > 0

"""Alerts of a company, written as the services write them."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from farmiq.cloud import episodes
from farmiq.cloud.episodes import NewEpisode
from farmiq.cloud.identity import accounts
from farmiq.plumbing import db, ids
from tests.browser import barns
from tests.support import databases

TENANT = "tenant-a"
OPERATOR, ADMIN = "olga@example.com", "amir@example.com"
MINUTE = timedelta(minutes=1)
HOT = "temperature of air-01 in Barn 1 on Hill farm above 38 °C for 5 minutes: 38.4 °C"


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def add_people(admin_url: str) -> None:
    """Beside the viewer of the console: an operator and an admin."""
    with databases.connected(admin_url) as connection:
        row = connection.execute(
            "select company_id from companies where tenant_id = %s", (TENANT,)
        ).fetchone()
        assert row is not None
        for email, role in ((OPERATOR, "operator"), (ADMIN, "admin")):
            accounts.add_user(
                connection, email, company_id=row[0], password=barns.PASSWORD, role=role
            )


def execute(admin_url: str, query: str, *args: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(admin_url) as connection:
        cursor = connection.execute(query.encode(), args or None)
        return cursor.fetchall() if cursor.description else []


def add_farm(admin_url: str, *, barn: str = "Barn 1") -> None:
    execute(
        admin_url,
        "insert into farms (tenant_id, farm_id, name, timezone) "
        "values (%s, 'farm-1', 'Hill farm', 'Asia/Bangkok')",
        TENANT,
    )
    execute(
        admin_url,
        "insert into barns (tenant_id, farm_id, barn_id, name) values (%s, 'farm-1', 'barn-1', %s)",
        TENANT,
        barn,
    )


def raise_(url: str, **changes: Any) -> UUID:
    """One episode, as cloud-alerts-service raises it: deadly heat, unless the test says other."""
    fields: dict[str, Any] = {
        "tenant_id": TENANT, "cause": f"rule:default.heat.any|{ids.new()}", "source": "rule",
        "severity": "critical", "subject": "farm-1/barn-1/air-01",
        "message": HOT,
        "opened_at": now() - 12 * MINUTE, "last_at": now(), "value": 38.4, "worst_value": 39.6,
        "last_value": 39.1, "rule_id": "default.heat.any", "signal": "telemetry.temperature",
        "farm_id": "farm-1", "barn_id": "barn-1", "device_id": "air-01", "episode_id": ids.new(),
        **changes,
    }  # fmt: skip

    async def work() -> None:
        async with (
            db.pool(url, name="test", min_size=0) as pool,
            db.transaction(pool) as tx,
        ):
            await episodes.raise_episodes(tx, [NewEpisode(**fields)])

    # Playwright has an event loop in this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work()).result()
    episode_id: UUID = fields["episode_id"]
    return episode_id


def page(admin_url: str, episode_id: UUID, *, told: str = "sent", error: str | None = None) -> None:
    """People were called about an episode, and what became of the message to Ann."""
    execute(
        admin_url,
        "update alert_episodes set paged_at = raised_at where episode_id = %s",
        episode_id,
    )
    execute(
        admin_url,
        "insert into alert_steps (tenant_id, episode_id, step, routed_at) "
        "values (%s, %s, 'opened', now())",
        TENANT,
        episode_id,
    )
    execute(
        admin_url,
        """
        insert into alert_messages (tenant_id, message_id, episode_id, step, contact_id,
          channel_id, address, severity, subject, body, content, state, created_at, send_after,
          next_attempt_at, attempts, ended_at, error)
        values (%s, %s, %s, 'opened', 'ann', 'mail', 'ann@example.com', 'critical', 's', 'b', '{}',
          %s, now(), now(), now(), 1, now(), %s)
        """,
        TENANT,
        ids.new(),
        episode_id,
        told,
        error,
    )


def add_contacts(admin_url: str) -> None:
    execute(
        admin_url,
        """
        insert into alert_channels (tenant_id, channel_id, kind, settings, secret_names, host,
          changed_at, changed_by)
        values (%s, 'mail', 'email', '{}', '{}', null, now(), 'amir@example.com'),
          (%s, 'hook', 'webhook', '{}', '{signing_key,url}', 'hooks.example.com', now(),
            'amir@example.com')
        """,
        TENANT,
        TENANT,
    )
    execute(
        admin_url,
        """
        insert into alert_contacts (tenant_id, contact_id, name, level, severities, addresses,
          timezone, quiet_from, quiet_until, quiet_passed_by, changed_at, changed_by)
        values (%s, 'ann', 'Ann', 1, '{warning,critical,security}', %s, 'Asia/Bangkok', '22:00',
            '05:30', '{critical,security}', now(), 'amir@example.com'),
          (%s, 'bob', 'Bob', 2, '{critical}', %s, null, null, null, '{}', now(),
            'amir@example.com')
        """,
        TENANT,
        json.dumps({"mail": "ann@example.com"}),
        TENANT,
        json.dumps({"mail": "bob@example.com", "hook": ""}),
    )


def a_bad_day(url: str, admin_url: str) -> dict[str, UUID]:
    """Something in every state, and one that holds others back; ids by name."""
    add_farm(admin_url)
    add_contacts(admin_url)
    hot = raise_(url)
    page(admin_url, hot)
    silent = raise_(
        url, cause="rule:default.edge.silent|edge:edge-01", subject="edge:edge-01",
        rule_id="default.edge.silent", signal="edge.heard", is_absence=True, farm_id=None,
        barn_id=None, device_id=None, edge_cluster_id="edge-01", value=None, worst_value=None,
        last_value=None, message="no heartbeat of the edge for 10 minutes",
        opened_at=now() - 40 * MINUTE,
    )  # fmt: skip
    page(admin_url, silent, told="failed", error="550 no such mailbox")
    names = {"hot": hot, "silent": silent}
    for device in ("water-01", "co2-01"):
        names[device] = raise_(
            url, subject=f"farm-1/barn-1/{device}", device_id=device, severity="warning",
            rule_id="own", signal="telemetry.water.flow", is_absence=True, worst_value=None,
            message=f"no water flow reading of {device} in Barn 1 for 30 minutes",
            value=11.5, last_value=11.5, opened_at=now() - 30 * MINUTE,
        )  # fmt: skip
        execute(
            admin_url,
            "update alert_episodes set held_by = %s where episode_id = %s",
            f"episode:{silent}",
            names[device],
        )
    names["feed"] = raise_(
        url, subject="barn:farm-1/barn-1", device_id=None, severity="warning",
        rule_id="default.feed.low", signal="feed.days_left", value=1.8, worst_value=1.6,
        last_value=1.6, message="feed left in Barn 1 on Hill farm below 2 days: 1.8 days",
        opened_at=now() - 300 * MINUTE,
    )  # fmt: skip
    execute(
        admin_url,
        "update alert_episodes set state = 'acknowledged', acknowledged_at = now(), "
        "acknowledged_by = %s, note = 'the truck comes at noon' where episode_id = %s",
        OPERATOR,
        names["feed"],
    )
    names["over"] = raise_(
        url, opened_at=now() - 900 * MINUTE, resolved_at=now() - 860 * MINUTE, severity="warning",
    )  # fmt: skip
    names["moved"] = raise_(
        url, opened_at=now() - 1900 * MINUTE, resolved_at=now() - 1860 * MINUTE, severity="info",
    )  # fmt: skip
    execute(
        admin_url,
        "update alert_episodes set ended_reason = 'moved' where episode_id = %s",
        names["moved"],
    )
    return names


def also(admin_url: str, names: dict[str, UUID]) -> UUID:
    """Maintenance that holds a call back, a report by mail, a conflict, an order; its id."""
    window_id, order_id = ids.new(), ids.new()
    execute(
        admin_url,
        "insert into alert_windows (tenant_id, window_id, begin_at, end_at, reason, made_by, "
        "farm_id) values (%s, %s, now() - interval '1 hour', now() + interval '1 hour', "
        "'Washing the barn', %s, 'farm-1')",
        TENANT,
        window_id,
        ADMIN,
    )
    held = raise_(admin_url, subject="farm-1/barn-1/fan-01", device_id="fan-01", severity="info")
    execute(
        admin_url,
        "update alert_episodes set held_by = %s where episode_id = %s",
        f"window:{window_id}",
        held,
    )
    names["held"] = held
    execute(
        admin_url,
        "insert into alert_settings (tenant_id, escalate_after_min, changed_at, changed_by) "
        "values (%s, 25, now(), %s)",
        TENANT,
        ADMIN,
    )
    execute(
        admin_url,
        "insert into alert_messages (tenant_id, message_id, step, channel_id, address, severity, "
        "subject, body, content, state, created_at, send_after, next_attempt_at, ended_at) values "
        "(%s, %s, 'report', 'mail', %s, 'info', 'Hill farm', 'b', '{}', 'sent', now(), now(), "
        "now(), now())",
        TENANT,
        ids.new(),
        ADMIN,
    )
    execute(
        admin_url,
        "insert into event_conflicts (tenant_id, event_id, content_hash, first_content_hash, "
        "batch_id) values (%s, %s, 'a', 'b', 'batch')",
        TENANT,
        ids.new(),
    )
    outcome = {"event_id": str(ids.new()), "event_type": "feed.lot.received", "outcome": "redriven"}
    execute(
        admin_url,
        "insert into dead_letter_orders (order_id, tenant_id, action, dry_run, queue, reason, "
        "event_ids, note, max_letters, rate_per_s, ordered_by, ordered_at, state, ended_at, done, "
        "failed, outcomes) values (%s, %s, 'redrive', false, 'q', 'a reason', '{}', 'repaired', "
        "1000, 50, %s, now(), 'done', now(), 7, 1, %s)",
        order_id,
        TENANT,
        ADMIN,
        json.dumps([outcome]),
    )
    return order_id

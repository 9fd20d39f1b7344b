"""Two companies with a row each in every table of the cloud, and people who look at them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.plumbing import ids
from tests.sql import catalog

# Not a company's data: which migrations were applied, the clock of tests, whose turn it is.
NOT_OF_A_COMPANY = {
    "schema_migrations", "test_clock", "believed_clock", "calendar_clock", "leases", "processes",
    "backup_marks",
    "broker_cursors", "telemetry_dirty", "telemetry_state", "bus_queues", "deletions",
}  # fmt: skip
# Only services read these; people see nothing of them, not even their own.
NOT_FOR_PEOPLE = {
    "sign_ins", "edge_invites", "camera_logins", "camera_chunks", "telemetry_rezoned",
    "alert_readings",
}  # fmt: skip

# The tables of event families are all alike but for columns made from the payload.
_EVENT = """
    insert into {} (tenant_id, event_id, event_type, farm_id, barn_id, occurred_at, trace_id,
      payload)
    values (%(tenant)s, %(id)s, 'x.y', 'f', 'b', now(), 't', '{{}}')"""

# Only the owner invites edges.
_INVITE = """
    insert into edge_invites (code_hash, tenant_id, edge_cluster_id, made_by, made_at, expires_at)
    values ('x', %s, 'e', 'a', now(), now())"""

# Whatever cameras account for is written by functions; here the owner writes it, in this order.
CAMERAS = {
    "pilot_programs": """
        insert into pilot_programs (program_id, company_id, program_name, program_type)
        values (%(id)s, %(company)s, 'p', 'control')""",
    "sites": """
        insert into sites (site_id, company_id, program_id, site_name, timezone)
        values (%(id)s, %(company)s, %(id)s, 's', 'Asia/Bangkok')""",
    "devices": """
        insert into devices (device_id, company_id, site_id, mac, device_name, wake_schedule_cron)
        values (%(id)s, %(company)s, %(id)s, upper(left(md5(%(tenant)s), 12)), 'Device-001',
          '0 8,16 * * *')""",
    "device_assignments": "",  # by a trigger of devices
    "device_schedule_changes": """
        insert into device_schedule_changes (change_id, company_id, device_id,
          new_wake_schedule_cron, requested_at, effective_date)
        values (%(id)s, %(company)s, %(id)s, '0 9 * * *', now(), current_date)""",
    "site_device_sessions": """
        insert into site_device_sessions (session_id, company_id, program_id, site_id,
          session_date, timezone, expected_wake_count, opened_at)
        values (%(id)s, %(company)s, %(id)s, %(id)s, current_date, 'Asia/Bangkok', 1, now())""",
    "expected_wakes": """
        insert into expected_wakes (session_id, device_id, company_id, wake_window_index,
          expected_at)
        values (%(id)s, %(id)s, %(company)s, 1, now())""",
    "device_images": """
        insert into device_images (image_id, company_id, device_id, image_name, captured_at,
          original_capture_date, created_at)
        values (%(id)s, %(company)s, %(id)s, 'IMG_001.jpg', now(), current_date, now())""",
    "device_wake_payloads": """
        insert into device_wake_payloads (payload_id, company_id, program_id, site_id,
          site_device_session_id, device_id, image_id, captured_at, wake_window_index,
          overage_flag, created_at)
        values (%(id)s, %(company)s, %(id)s, %(id)s, %(id)s, %(id)s, %(id)s, now(), 1, false,
          now())""",
    "dish_series": """
        insert into dish_series (series_id, company_id, site_id, device_id, reference_image_id,
          started_at, circle_x, circle_y, circle_radius, reference, created_at)
        values (%(id)s, %(company)s, %(id)s, %(id)s, %(id)s, now(), 0.5, 0.4, 0.3, 'x', now())""",
    "petri_observations": """
        insert into petri_observations (observation_id, company_id, program_id, site_id,
          site_device_session_id, device_id, payload_id, image_id, is_device_generated,
          observed_at, created_at)
        values (%(id)s, %(company)s, %(id)s, %(id)s, %(id)s, %(id)s, %(id)s, %(id)s, true, now(),
          now())""",
    "device_alerts": """
        insert into device_alerts (alert_id, company_id, device_id, alert_type, alert_date,
          message, created_at)
        values (%(id)s, %(company)s, %(id)s, 'low_battery', current_date, 'm', now())""",
    "camera_logins": """
        insert into camera_logins (device_id, company_id, secret_bcrypt, made_by, made_at)
        values (%(id)s, %(company)s, 'x', 'a', now())""",
    "camera_states": """
        insert into camera_states (device_id, company_id, since)
        values (%(id)s, %(company)s, now())""",
    "camera_transfers": """
        insert into camera_transfers (transfer_id, company_id, device_id, image_id, image_name,
          dialect, spelling, state, total_chunks, opened_at, heard_at)
        values (%(id)s, %(company)s, %(id)s, %(id)s, 'IMG_001.jpg', 'standard', 'A', 'receiving',
          1, now(), now())""",
    "camera_chunks": """
        insert into camera_chunks (transfer_id, company_id, chunk_id, data)
        values (%(id)s, %(company)s, 0, 'x')""",
    "camera_commands": """
        insert into camera_commands (command_id, company_id, device_id, name, created_by,
          created_at)
        values (%(id)s, %(company)s, %(id)s, 'capture_image', 'a', now())""",
    "camera_quarantine": """
        insert into camera_quarantine (quarantine_id, company_id, device_id, topic, raw,
          raw_size_bytes, message_sha256, kind, reasons, first_received_at, last_received_at)
        values (%(id)s, %(company)s, %(id)s, 't', 'x', 1, %(tenant)s::bytea, 'format', '{r}',
          now(), now())""",
}

# Companies and people are made as an administrator makes them; this says how all else is filled.
SEED = {
    "companies": "",
    "users": "",
    "memberships": "",
    "user_actions": "",
    "sign_ins": "",
    "second_factors": """
        insert into second_factors (user_id, company_id, secret)
        select user_id, company_id, 'sealed' from users where company_id = %(company)s""",
    "farms": """
        insert into farms (tenant_id, farm_id, name, timezone)
        values (%(tenant)s, 'f', 'Farm', 'Asia/Bangkok')""",
    "barns": """
        insert into barns (tenant_id, farm_id, barn_id, name) values (%(tenant)s, 'f', 'b', 'Barn')
        """,
    "batches": """
        insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count,
          placed_on)
        values (%(tenant)s, 'x', 'f', 'b', 'broiler', 10, '2026-05-01')""",
    "feed_products": """
        insert into feed_products (tenant_id, feed_product_id, name)
        values (%(tenant)s, 'starter', 'Starter')""",
    "metrics": """
        insert into metrics (tenant_id, metric_type, label, unit)
        values (%(tenant)s, 'temperature', 'Temperature', 'C')""",
    "breed_standards": """
        insert into breed_standards (tenant_id, species, breed, sex, age_days, weight_kg, source)
        values (%(tenant)s, 'broiler', 'example', 'mixed', 7, 0.2, 'an example')""",
    "posted_events": """
        insert into posted_events (tenant_id, idempotency_key, content_hash, event_id, event_type,
          subject, event, posted_by, posted_at)
        values (%(tenant)s, 'k', 'x', %(id)s, 'barn.record.created', 'r', '{}', 'a', now())""",
    "master_data_actions": """
        insert into master_data_actions (action_id, at, actor, action, tenant_id, kind, key)
        values (%(id)s, now(), 'a', 'add', %(tenant)s, 'farms', 'f')""",
    "ingestion_dedupe": """
        insert into ingestion_dedupe (tenant_id, event_id, event_type, content_hash, batch_id)
        values (%(tenant)s, %(id)s, 'telemetry.ingested', 'x', 'b')""",
    "event_conflicts": """
        insert into event_conflicts
          (tenant_id, event_id, content_hash, first_content_hash, batch_id)
        values (%(tenant)s, %(id)s, 'x', 'y', 'b')""",
    "telemetry_readings": """
        insert into telemetry_readings (tenant_id, event_id, farm_id, barn_id, device_id,
          metric_type, metric_value, unit, occurred_at, trace_id)
        values (%(tenant)s, %(id)s, 'f', 'b', 'd', 'temperature', 1, 'C', now(), 't')""",
    "telemetry_latest": """
        insert into telemetry_latest (tenant_id, device_id, metric_type, farm_id, barn_id, event_id,
          metric_value, unit, occurred_at, reading_count)
        values (%(tenant)s, 'd', 'temperature', 'f', 'b', %(id)s, 1, 'C', now(), 1)""",
    "dead_letter_groups": """
        insert into dead_letter_groups (tenant_id, queue, reason, is_of_no_company, count,
          event_types, letters, is_whole, looked_at)
        values (%(tenant)s, 'q', 'r', false, 1, '{}', '[]', true, now())""",
    "dead_letter_orders": """
        insert into dead_letter_orders (order_id, tenant_id, action, dry_run, queue, event_ids,
          note, max_letters, rate_per_s, ordered_by, ordered_at)
        values (%(id)s, %(tenant)s, 'redrive', true, 'q', '{}', '', 1, 1, 'a', now())""",
    "edge_hours": """
        insert into edge_hours (tenant_id, edge_cluster_id, hour)
        values (%(tenant)s, 'e', now())""",
    "dead_letter_actions": """
        insert into dead_letter_actions
          (action_id, actor, action, queue, tenant_id, reason, outcome, body_sha256)
        values (%(id)s, 'a', 'redrive', 'q', %(tenant)s, 'r', 'redriven', 'x')""",
    "edge_invites": "",
    "edge_keys": """
        insert into edge_keys (key_id, tenant_id, edge_cluster_id, public_x, enrolled_at)
        values ('k', %(tenant)s, 'e', 'x', now())""",
    "edge_actions": """
        insert into edge_actions (action_id, at, actor, action, tenant_id, edge_cluster_id)
        values (%(id)s, now(), 'a', 'invite', %(tenant)s, 'e')""",
    "edge_heartbeats": """
        insert into edge_heartbeats (tenant_id, edge_cluster_id, received_at, sent_at,
          clock_offset_s, versions, waiting, oldest_s, dlq, disk_percent)
        values (%(tenant)s, 'e', now(), now(), 0, '{}', 0, 0, 0, 0)""",
    "telemetry_agg": """
        insert into telemetry_agg (id, tenant_id, farm_id, barn_id, device_id, "window",
          bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
          sum_value, count)
        values (%(id)s, %(tenant)s, 'f', 'b', 'd', '1m', now(), now(), 'temperature', 'C', 1, 1, 1,
          1, 1)""",
    "telemetry_archives": """
        insert into telemetry_archives (tenant_id, key, metric_type, month, first_device_id,
          last_device_id, first_at, last_at, row_count, size_bytes, sha256)
        values (%(tenant)s, 'history/' || %(id)s, 'temperature', '2025-01-01', 'd', 'd', now(),
          now(), 1, 1, 'x')""",
    "telemetry_rezoned": """
        insert into telemetry_rezoned (tenant_id, device_id, metric_type)
        values (%(tenant)s, 'd', 'temperature')""",
    "weighvision_events": _EVENT.format("weighvision_events"),
    "weight_sessions": """
        insert into weight_sessions (tenant_id, session_id, farm_id, barn_id, start_at)
        values (%(tenant)s, %(id)s, 'f', 'b', now())""",
    "media_events": _EVENT.format("media_events"),
    "media_objects": """
        insert into media_objects (tenant_id, media_id, device_id, captured_at)
        values (%(tenant)s, %(id)s, 'd', now())""",
    "inference_events": _EVENT.format("inference_events"),
    "feed_events": _EVENT.format("feed_events"),
    "barn_events": _EVENT.format("barn_events"),
    "device_events": _EVENT.format("device_events"),
    "sync_events": _EVENT.format("sync_events"),
    "kpi_events": _EVENT.format("kpi_events"),
    "kpi_daily": """
        insert into kpi_daily (tenant_id, farm_id, barn_id, batch_id, kpi_date, kpi_type, value,
          unit, source_event_count)
        values (%(tenant)s, 'f', 'b', 'x', '2026-05-02', 'intake_kg', 1, 'kg', 1)""",
    "batch_days": """
        insert into batch_days (tenant_id, batch_id, kpi_date, hours)
        values (%(tenant)s, 'x', '2026-05-02', 24)""",
    "alert_rules": """
        insert into alert_rules (tenant_id, rule_id, rule, changed_by)
        values (%(tenant)s, 'hot', '{}', 'x')""",
    "alert_episodes": """
        insert into alert_episodes (tenant_id, episode_id, cause, source, severity, subject,
          message, opened_at, last_at)
        values (%(tenant)s, '018f0000-0000-7000-8000-000000000001', 'hot|f/b/d', 'rule', 'warning',
          'f/b/d', 'x', now(), now())""",
    "alert_steps": """
        insert into alert_steps (tenant_id, episode_id, step)
        values (%(tenant)s, '018f0000-0000-7000-8000-000000000001', 'opened')""",
    "alert_states": """
        insert into alert_states (tenant_id, signal, subject)
        values (%(tenant)s, 'telemetry.temperature', 'f/b/d')""",
    "alert_values": """
        insert into alert_values (tenant_id, signal, subject, begin_at, end_at, value)
        values (%(tenant)s, 'edge.waiting', 'edge:e', now(), now(), 1)""",
    "alert_rechecks": """
        insert into alert_rechecks (tenant_id, signal, subject, event_id, occurred_at)
        values (%(tenant)s, 'telemetry.temperature', 'f/b/d', %(id)s, now())""",
    "alert_readings": """
        insert into alert_readings (tenant_id, farms, barns, devices, metrics, units, moments,
          numbers)
        values (%(tenant)s, '{f}', '{b}', '{d}', '{heat}', '{x}', '{now}', '{1}')""",
    "alert_windows": """
        insert into alert_windows (tenant_id, window_id, begin_at, end_at, reason, made_by)
        values (%(tenant)s, %(id)s, now(), now() + interval '1 hour', 'x', 'x')""",
    "alert_actions": """
        insert into alert_actions (action_id, at, tenant_id, actor, action, key)
        values (%(id)s, now(), %(tenant)s, 'x', 'rule.set', 'hot')""",
    "report_subscriptions": """
        insert into report_subscriptions (tenant_id, subscription_id, farm_id, period, address,
          language, created_at, created_by)
        values (%(tenant)s, %(id)s, 'f', 'week', 'a@example.com', 'en', now(), 'a')""",
    "reports": """
        insert into reports (tenant_id, report_id, farm_id, period, first_day, address, language,
          file_name, created_at, created_by)
        values (%(tenant)s, %(id)s, 'f', 'week', '2026-05-04', 'a@example.com', 'en', 'f.pdf',
          now(), 'a')""",
    "alert_channels": """
        insert into alert_channels (tenant_id, channel_id, kind, settings, secrets, secret_names,
          host, changed_at, changed_by)
        values (%(tenant)s, 'hook', 'webhook', '{}', 'sealed', '{url}', 'example.com', now(), 'a')
        """,
    "alert_contacts": """
        insert into alert_contacts (tenant_id, contact_id, name, level, severities, addresses,
          quiet_passed_by, changed_at, changed_by)
        values (%(tenant)s, 'ann', 'Ann', 1, '{critical}', '{"hook": ""}', '{}', now(), 'a')""",
    "alert_messages": """
        insert into alert_messages (tenant_id, message_id, step, channel_id, address, severity,
          subject, body, content, created_at, send_after, next_attempt_at)
        values (%(tenant)s, %(id)s, 'test', 'hook', '', 'info', 's', 'b', '{}', now(), now(),
          now())""",
    "alert_settings": """
        insert into alert_settings (tenant_id, escalate_after_min, changed_at, changed_by)
        values (%(tenant)s, 5, now(), 'a')""",
    "alert_mail_counts": """
        insert into alert_mail_counts (tenant_id, hour, used)
        values (%(tenant)s, now(), 1)""",
    # The batches above have marked their days.
    "analytics_dirty_days": "",
    "analytics_pending": """
        insert into analytics_pending (tenant_id, event_id, family)
        values (%(tenant)s, %(id)s, 'feed')""",
}

PASSWORD = "long enough 1"


@dataclass(frozen=True, slots=True)
class Two:
    """`tokens` by person: ann of one, bea of two, and sue, a super admin whose home is one."""

    one: UUID
    two: UUID
    tokens: dict[str, str]

    def home(self, person: str) -> UUID:
        return self.two if person == "bea" else self.one

    def tenant(self, company_id: UUID) -> str:
        return "one" if company_id == self.one else "two"


def make(admin_url: str, *, service_url: str | None = None) -> Two:
    """The owner makes companies and people; all else is written as services do where that counts.

    A superuser may write anything; an owner who is none may not, since FORCE holds for owners.
    """
    with psycopg.connect(admin_url) as connection:
        one, two = (
            add_company(connection, tenant, name=f"Company {tenant}") for tenant in ("one", "two")
        )
        people = {"ann": one, "bea": two, "sue": one}
        for name, company in people.items():
            add_user(
                connection,
                email(name),
                company_id=company,
                password=PASSWORD,
                role="technician",
                super_admin=name == "sue",
            )
        tokens = {name: token(connection, name) for name in people}
        for tenant in ("one", "two"):
            connection.execute(_INVITE, (tenant,))
        _fill(connection, CAMERAS, {"one": one, "two": two})
    made = Two(one, two, tokens)
    with psycopg.connect(service_url or admin_url) as connection:
        _fill(connection, SEED, {"one": one, "two": two})
    check_all_seeded(service_url or admin_url, made)
    return made


def email(name: str) -> str:
    return f"{name}@example.com"


def token(connection: psycopg.Connection, name: str) -> str:
    return open_sign_in(connection, email(name), lasts=timedelta(hours=1))


def check_all_seeded(url: str, made: Two) -> None:
    """A table of the catalog that has no row of each company fails here, by name."""
    tables = set(catalog.tables(url)) - NOT_OF_A_COMPANY
    missing = tables - set(SEED) - set(CAMERAS)
    assert not missing, f"say in SEED how to fill {sorted(missing)}, so that this test covers them"
    with psycopg.connect(url) as connection:
        for table in sorted(tables):
            both = {owner(connection, table, made, company) for company in (made.one, made.two)}
            assert owners(connection, table) == both, table


def owner(connection: psycopg.Connection, table: str, made: Two, company_id: UUID) -> Any:
    """How a row of this table says that it is of this company."""
    known = "company_id" in catalog.columns_seen_by(connection, catalog.qualified(table))
    return company_id if known else made.tenant(company_id)


def owners(connection: psycopg.Connection, table: str) -> set[Any]:
    """Whose rows this connection sees in a table. Fails for a table that does not say."""
    names = catalog.columns_seen_by(connection, catalog.qualified(table))
    column = next((name for name in ("company_id", "tenant_id") if name in names), None)
    assert column, f"{table} has neither company_id nor tenant_id: whose are its rows?"
    query = sql.SQL("select distinct {} from {}").format(
        sql.Identifier(column), sql.Identifier(*catalog.qualified(table).split("."))
    )
    return {row[0] for row in connection.execute(query).fetchall()}


def for_people(url: str) -> list[str]:
    return [t for t in catalog.tables(url) if t not in NOT_OF_A_COMPANY | NOT_FOR_PEOPLE]


@contextmanager
def looking(
    url: str, token: str | None = None, *, company: UUID | None = None
) -> Iterator[psycopg.Connection]:
    """A transaction as the console opens it; without a token it is `authenticated` and nobody."""
    with psycopg.connect(url) as connection:
        connection.execute("set local role authenticated")
        if token is not None:
            connection.execute("select begin_session(%s)", (token,))
        if company is not None:
            connection.execute("select set_active_company_context(company_id => %s)", (company,))
        yield connection


def _fill(
    connection: psycopg.Connection, seed: Mapping[str, str], companies: Mapping[str, UUID]
) -> None:
    for tenant, company in companies.items():
        lineage = ids.new()
        for table, statement in seed.items():
            number = lineage if table in CAMERAS else ids.new()
            if statement:
                values = {"tenant": tenant, "company": company, "id": number}
                connection.execute(statement.encode(), values)

"""Every function that people may call, how each is called, and what an answer must not hold."""

import re
from collections.abc import Iterator
from uuid import UUID

import psycopg

from tests.sql.two_companies import Two, email, looking

# A security definer function looks further than its caller may, so it has to check the company
# itself (C-76): whatever stands here is called by everybody, with their own values and the others'.
CALLS = {
    "begin_session(text)": (
        "select begin_session(%(token)s)",
        "select begin_session(%(foreign_id)s::text)",
        "select begin_session('')",
        "select begin_session(null)",
    ),
    "set_active_company_context(uuid)": (
        "select set_active_company_context(%(own_id)s)",
        "select set_active_company_context(%(foreign_id)s)",
        "select set_active_company_context(null)",
    ),
    "get_active_company_id()": (
        "select get_active_company_id()",
        "select get_active_company_id() from set_config('farmiq.company_id', %(foreign_id)s, true)",
    ),
    "get_active_tenant_id()": (
        "select get_active_tenant_id()",
        "select get_active_tenant_id() from set_config('farmiq.company_id', %(foreign_id)s, true)",
    ),
    "get_selectable_companies()": (
        "select * from get_selectable_companies()",
        "select g from get_selectable_companies() g where g.company_id = %(foreign_id)s",
    ),
    "fn_now()": ("select fn_now()",),
    "fn_calendar_now()": ("select fn_calendar_now()",),
    "fn_safe_to_sell_from(text,text)": (
        "select fn_safe_to_sell_from(get_active_tenant_id(), 'x')",
        "select b.tenant_id, fn_safe_to_sell_from(b.tenant_id, b.batch_id) from batches b",
    ),
    "fn_edge_alerts_missing(text,text)": (
        "select fn_edge_alerts_missing(tenant_id, edge_cluster_id) from edge_heartbeats",
        "select fn_edge_alerts_missing(%(foreign_id)s::text, 'e')",
    ),
    "fn_feed_stock(text,text)": (
        "select get_active_tenant_id(), s from fn_feed_stock(get_active_tenant_id(), 'barn') s",
        "select c.tenant_id, s from companies c, fn_feed_stock(c.tenant_id, 'lot') s",
    ),
    "fn_replaced_event(jsonb)": (
        'select fn_replaced_event(\'{"replaces": "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0601"}\')',
    ),
    "fn_camera_login(uuid)": (
        "select d.company_id, l from devices d, fn_camera_login(d.device_id) l",
        "select l from fn_camera_login(device_id => %(foreign_id)s) l",
    ),
    "fn_cron_problem(text)": ("select fn_cron_problem('0 8 * * *')",),
    "fn_device_trend(uuid,integer)": (
        "select d.company_id, t from devices d, fn_device_trend(d.device_id) t",
        "select t from fn_device_trend(device_id => %(foreign_id)s, days => 3) t",
    ),
    "fn_site_daily_summary(uuid,integer)": (
        "select s.company_id, t from sites s, fn_site_daily_summary(s.site_id) t",
        "select t from fn_site_daily_summary(site_id => %(foreign_id)s, days => 3) t",
    ),
    "fn_program_comparison(uuid,integer)": (
        "select t from fn_program_comparison(%(own_id)s) t",
        "select %(foreign_id)s, t from fn_program_comparison(%(foreign_id)s, days => 3) t",
    ),
    # Wake schedules are reckoned from what is asked alone: these read no table.
    "fn_cron_schedule(text)": ("select fn_cron_schedule('0 8 * * *')",),
    "fn_cron_field(integer,text)": ("select fn_cron_field(1, '*/5')",),
    "fn_cron_dates(integer[],integer[],integer[],boolean,date,date)": (
        "select fn_cron_dates('{1}', '{1}', '{1}', false, '2026-01-01', '2026-01-31')",
    ),
    "fn_cron_step(integer[],integer[],integer[],integer[],integer[],boolean,"
    "timestamp without time zone[],interval[],timestamp without time zone,date)": (
        "select fn_cron_step('{}', '{}', '{}', '{}', '{}', true, '{}', '{}', null, null)",
    ),
    "fn_wakes_of_change(integer[],integer[],integer[],integer[],integer[],boolean,boolean,"
    "timestamp without time zone[],interval[],date)": (
        "select fn_wakes_of_change('{}', '{}', '{}', '{}', '{}', true, true, '{}', '{}', null)",
    ),
    "fn_zone_name(text)": ("select fn_zone_name('CET')",),
    "fn_zone_stretches(text,timestamp without time zone,timestamp without time zone)": (
        "select fn_zone_stretches('UTC', '2026-01-01', '2026-01-02')",
    ),
    "fn_wake_instants(text,text,date)": (
        "select * from fn_wake_instants('0 8 * * *', 'UTC', '2026-01-01')",
    ),
    "fn_next_wake(text,text,timestamp with time zone)": (
        "select fn_next_wake('0 8 * * *', 'UTC', now())",
    ),
    "fn_infer_wake_window_index(timestamp with time zone,text,text)": (
        "select * from fn_infer_wake_window_index(now(), '0 8 * * *')",
    ),
    "fn_local_date(text,timestamp with time zone)": (
        "select fn_local_date('Asia/Bangkok', fn_now())",
    ),
    "fn_farm_date(text,text,timestamp with time zone)": (
        "select fn_farm_date(tenant_id, farm_id, now()) from farms",
        "select fn_farm_date(%(foreign_id)s::text, 'f', now())",
    ),
    "fn_batch_at(text,text,text,date)": (
        "select fn_batch_at(tenant_id, farm_id, barn_id, placed_on) from batches",
        "select fn_batch_at(%(foreign_id)s::text, 'f', 'b', current_date)",
    ),
    "fn_batch_of(text,text,text,text,boolean,timestamp with time zone)": (
        "select fn_batch_of(tenant_id, farm_id, barn_id, batch_id, true, now()) from batches",
        "select fn_batch_of(%(foreign_id)s::text, 'f', 'b', 'x', true, now())",
    ),
    "fn_batch_records(text,text,date,date)": (
        "select r from batches, fn_batch_records(tenant_id, batch_id, placed_on, '2027-05-01') r",
        "select r from fn_batch_records(%(foreign_id)s::text, 'x', '2026-05-01', '2027-05-01') r",
    ),
    "fn_batch_weighings(text,text,date,date)": (
        "select w from batches, fn_batch_weighings(tenant_id, batch_id, placed_on, '2027-05-01') w",
        "select w from fn_batch_weighings(%(foreign_id)s::text, 'x', '2026-05-01', '2027-05-01') w",
    ),
    "fn_midnight(text,date)": ("select fn_midnight('Asia/Bangkok', '2026-01-01')",),
    "fn_session_at(uuid,timestamp with time zone)": (
        "select fn_session_at((select site_id from sites), fn_now())",
        "select fn_session_at(%(foreign_id)s, fn_now())",
    ),
    "fn_device_next_wake(uuid,timestamp with time zone)": (
        "select fn_device_next_wake((select device_id from devices))",
        "select fn_device_next_wake(%(foreign_id)s, fn_now())",
    ),
    "fn_preview_schedule_change(uuid,text)": (
        "select fn_preview_schedule_change((select device_id from devices), '0 9 * * *')",
        "select fn_preview_schedule_change(%(foreign_id)s, '0 9 * * *')",
    ),
    "fn_request_schedule_change(uuid,text)": (
        "select fn_request_schedule_change((select device_id from devices), '0 9 * * *')",
        "select fn_request_schedule_change(%(foreign_id)s, '0 9 * * *')",
    ),
    "fn_cancel_schedule_change(uuid)": (
        "select fn_cancel_schedule_change((select change_id from device_schedule_changes))",
        "select fn_cancel_schedule_change(%(foreign_id)s)",
    ),
    "fn_request_resend(uuid)": (
        "select fn_request_resend(image_id) from device_images",
        "select fn_request_resend(%(foreign_id)s)",
        "select fn_request_resend(null)",
    ),
    "fn_start_dish(uuid)": (
        "select fn_start_dish(device_id) from devices",
        "select fn_start_dish(%(foreign_id)s)",
        "select fn_start_dish(null)",
    ),
    "fn_bus_queues()": ("select * from fn_bus_queues()",),
    "fn_add_company(text,text,text)": ("select fn_add_company('New', 'UTC', 'new')",),
    "fn_add_person(text,text,text)": (
        "select fn_add_person('new@example.com', 'viewer', '$argon2id$x')",
        "select fn_add_person((select email from users limit 1), 'admin', '$argon2id$x')",
    ),
    "fn_change_person_role(uuid,text)": (
        "select fn_change_person_role(user_id, 'viewer') from users",
        "select fn_change_person_role(%(foreign_id)s, 'viewer')",
    ),
    "fn_reset_person_password(uuid,text)": (
        "select fn_reset_person_password(user_id, '$argon2id$x') from users",
        "select fn_reset_person_password(%(foreign_id)s, '$argon2id$x')",
    ),
    "fn_reset_person_second_factor(uuid)": (
        "select fn_reset_person_second_factor(user_id) from users",
        "select fn_reset_person_second_factor(%(foreign_id)s)",
    ),
    "fn_remove_person(uuid)": (
        "select fn_remove_person(user_id) from users",
        "select fn_remove_person(%(foreign_id)s)",
    ),
    # A trigger's: called by hand it only says so.
    "fn_companies_tenant_id()": ("select fn_companies_tenant_id()",),
}

# Who calls, and what is foreign to them; None is a login that has not said who it is.
CALLERS: dict[str | None, tuple[str, ...]] = {
    "ann": ("two",),
    "bea": ("one",),
    None: ("one", "two"),
}


def answers(url: str, two: Two, statement: str, caller: str | None) -> list[str]:
    """What in the answer to this call is not the caller's to see."""
    with looking(url, two.tokens[caller] if caller else None) as connection:
        rows = _rows(connection, statement, _values(two, caller))
        connection.rollback()
    text = "\n".join(str(value) for row in rows for value in row)
    return [mark for mark in _foreign(two, caller) if re.search(rf"\b{mark}\b", text)]


def _rows(
    connection: psycopg.Connection, statement: str, values: dict[str, str]
) -> list[tuple[object, ...]]:
    """The answer; a refusal answers with its text, which must not tell either."""
    try:
        with connection.transaction():
            return connection.execute(statement.encode(), values).fetchall()
    except psycopg.Error as error:
        # A call that is written wrongly is no refusal.
        if str(error.sqlstate).startswith("42") and error.sqlstate != "42501":
            raise
        # Whoever names an id may read it back: what counts is what the answer adds to it.
        said = str(error)
        for known in values.values():
            said = said.replace(known, "") if known else said
        return [(said,)]


def _values(two: Two, caller: str | None) -> dict[str, str]:
    own = two.home(caller or "ann")
    foreign = two.two if own == two.one else two.one
    token = two.tokens[caller] if caller else "not a token"
    return {"token": token, "own_id": str(own), "foreign_id": str(foreign)}


def _foreign(two: Two, caller: str | None) -> Iterator[str]:
    """Words that stand in rows of the others and in nobody else's."""
    companies: dict[str, UUID] = {"one": two.one, "two": two.two}
    people = {"one": ("ann", "sue"), "two": ("bea",)}
    for tenant in CALLERS[caller]:
        yield tenant
        yield str(companies[tenant])
        yield from (re.escape(email(name)) for name in people[tenant])

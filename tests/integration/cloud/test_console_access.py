"""Every route of the console as each role, as a person of another company, and as nobody."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest
from fastapi.routing import APIRoute

from farmiq.cloud.identity.accounts import add_user, open_sign_in
from tests.browser.served import Served
from tests.conftest import Database
from tests.integration.cloud.console_access import ROLES, TABLE
from tests.sql import catalog, two_companies
from tests.sql.two_companies import Two

# These never end, or end the sign-in with which the others are asked.
NOT_ASKED = {"GET /live", "POST /sign-out", "POST /settings/account/sessions/end-others"}
# Which table of Company one has the id that an address names; others are text.
IDS = {
    "change_id": ("device_schedule_changes", "change_id"),
    "device_id": ("devices", "device_id"),
    "episode_id": ("alert_episodes", "episode_id"),
    "image_id": ("device_images", "image_id"),
    "order_id": ("dead_letter_orders", "order_id"),
    "program_id": ("pilot_programs", "program_id"),
    "report_id": ("report_sends", "report_id"),
    "session_id": ("weight_sessions", "session_id"),
    "site_id": ("sites", "site_id"),
    "subscription_id": ("report_subscriptions", "subscription_id"),
    "user_id": ("users", "user_id"),
}
TEXTS = {
    "batch_id": "x", "id": "c", "edge_id": "e", "kind": "camera",
    "farm_id": "f", "barn_id": "b", "feed_product_id": "p",
    "metric_type": "temperature", "rule_id": "r", "window_id": "w", "digest": "d", "name": "n",
}  # fmt: skip


@pytest.fixture
def two(cloud_db: Database) -> Two:
    made = two_companies.make(cloud_db.admin_url)
    with psycopg.connect(cloud_db.admin_url) as connection:
        # Of these the seed has rows that no service writes.
        connection.execute("delete from alert_rules")
        for table in ("posted_events", "barn_events", "feed_events"):
            connection.execute(f"delete from {table}".encode())  # noqa: S608
    return made


@pytest.fixture
def console(cloud_db: Database, two: Two) -> Iterator[Served]:
    del two
    served = Served(cloud_db.url)
    served.start()
    yield served
    served.stop()


class Caller:
    """A person with a sign-in of their own; without one, nobody."""

    def __init__(self, url: str, token: str = "", csrf: str = "") -> None:
        self._url, self._csrf = url, csrf
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(self, route: str, address: str) -> int:
        method = route.partition(" ")[0]
        form = {"csrf": self._csrf} if method == "POST" else None
        answer = httpx2.request(
            method, f"{self._url}{address}", data=form, headers=self._headers, timeout=60
        )
        return int(answer.status_code)


def callers(admin_url: str, served: Served, company_id: UUID) -> dict[str, Caller]:
    """Somebody of each role in this company."""
    found = {}
    with psycopg.connect(admin_url) as connection:
        for role in ROLES:
            email = f"{role}-of-{company_id}@example.com"
            add_user(
                connection,
                email,
                company_id=company_id,
                password="correct horse battery",
                role="viewer" if role == "super_admin" else role,
                super_admin=role == "super_admin",
            )
            token = open_sign_in(connection, email, lasts=timedelta(hours=1))
            row = connection.execute(
                "select csrf_token from sign_ins join users using (user_id) where email = %s",
                (email,),
            ).fetchone()
            assert row
            found[role] = Caller(served.url, token, row[0])
    return found


def addresses(admin_url: str, routes: list[str], company_id: UUID) -> dict[str, str]:
    """The address of each route, with ids of this company."""
    values: dict[str, Any] = dict(TEXTS)
    with psycopg.connect(admin_url) as connection:
        for name, (table, column) in IDS.items():
            exists = connection.execute("select to_regclass(%s)", (table,)).fetchone()
            values[name] = "01a1deda-1664-765e-86d6-5315118fdacd"
            if exists and exists[0]:
                owner = catalog.columns_seen_by(connection, table)
                clause = (
                    "company_id = %s"
                    if "company_id" in owner
                    else "tenant_id = (select tenant_id from companies where company_id = %s)"
                )
                query = f"select {column} from {table} where {clause} limit 1"  # noqa: S608
                row = connection.execute(query.encode(), (company_id,)).fetchone()
                values[name] = row[0] if row else values[name]
    return {
        route: route.partition(" ")[2].replace("{name:path}", "{name}").format(**values)
        for route in routes
    }


def routes_of(served: Served) -> list[str]:
    """The pages: programs' routes are in the OpenAPI document and have tests of their own."""
    assert served.app is not None
    return [
        f"{method} {route.path}"
        for route in served.app.routes
        if isinstance(route, APIRoute) and not route.include_in_schema
        for method in sorted(route.methods or ())
        if not route.path.startswith("/api/") and route.path not in {"/healthz", "/readyz"}
    ]


@pytest.mark.req("DB2-07")
def test_every_console_route_answers_each_role_as_the_table_says(
    console: Served, cloud_db: Database, two: Two
) -> None:
    routes = routes_of(console)
    new, gone = sorted(set(routes) - TABLE.keys()), sorted(TABLE.keys() - set(routes))
    assert not new, f"say in console_access.py who may use: {', '.join(new)}"
    assert not gone, f"there are no such routes any more: {', '.join(gone)}"
    of_one = addresses(cloud_db.admin_url, routes, two.one)
    ours = callers(cloud_db.admin_url, console, two.one)
    nobody = Caller(console.url)
    wrong = []
    for route in routes:
        least = TABLE[route]
        if route in NOT_ASKED or least == "anybody":
            continue
        if (status := nobody.ask(route, of_one[route])) != 401:
            wrong.append(f"{route} answers nobody with {status}")
        for role in ROLES:
            status = ours[role].ask(route, of_one[route])
            may = ROLES.index(role) >= ROLES.index(least)
            # What a person may not do is refused, or not even read or found; nothing happens.
            if may and (status in {401, 403} or status >= 500):
                wrong.append(f"{route} answers {role} with {status}")
            if not may and status not in {400, 403, 404}:
                wrong.append(f"{route} answers {role} with {status}, and is for {least}")
    assert not wrong, "; ".join(wrong)


@pytest.mark.req("DB2-09")
def test_console_routes_do_not_find_ids_of_another_company(
    console: Served, cloud_db: Database, two: Two
) -> None:
    routes = [
        route
        for route in routes_of(console)
        if TABLE.get(route, "anybody") != "anybody"
        and route not in NOT_ASKED
        and any(f"{{{name}}}" in route for name in IDS)
    ]
    of_one = addresses(cloud_db.admin_url, routes, two.one)
    of_two = addresses(cloud_db.admin_url, routes, two.two)
    theirs = callers(cloud_db.admin_url, console, two.two)["admin"]
    found = {
        route: status
        for route in routes
        if of_one[route] != of_two[route]
        and (status := theirs.ask(route, of_one[route])) not in {404, 400, 422}
    }
    assert found == {}

"""Every route of the console that changes something leaves a line in the audit log.

Each is carried out, with a form as a person fills it in; the line names who did it.
"""

import base64
import contextlib
import csv
import io
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import httpx2
import psycopg
import pytest

from farmiq.cloud import bus
from farmiq.cloud.identity import second_factor
from farmiq.cloud.identity.accounts import add_user
from farmiq.plumbing import ids, sealing
from tests.browser.served import Served
from tests.conftest import Database
from tests.integration.cloud.console_access import TABLE
from tests.integration.cloud.test_console_access import addresses, routes_of
from tests.sql import two_companies
from tests.sql.two_companies import Two

ADMIN, READER, OWNER = "admin@one.example", "reader@one.example", "owner@one.example"
PASSWORD = "correct horse battery"
HAS_FACTOR = """
    insert into second_factors (user_id, company_id, secret, confirmed_at)
    select user_id, company_id, 'x', now() from users where email = %s"""
ACCOUNT = "/settings/account"
HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')
# What changes nothing that is stored.
NO_LINE = {
    "POST /settings/account/second-factor": "begins a setup; the code that ends it is noted",
}
# How the seed's rows have to be, for every form to be valid.
READY = """
    delete from alert_rules; delete from posted_events; delete from barn_events;
    delete from feed_events;
    update batches set closed_on = '2026-06-15'"""
PUSH = json.dumps(
    {
        "endpoint": "https://push.example.com/one",
        "keys": {
            "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcx"
            "aOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
            "auth": "BTBZMqHH6r4Tts7J_aSIgg",
        },
    }
)
RULE = {
    "name": "Warm", "signal": "telemetry.temperature", "condition": "above", "threshold": "31",
    "for_min": "5", "severity": "warning",
}  # fmt: skip
CONTACT = {"name": "Ben", "enabled": "yes", "level": "1", "severity.critical": "yes"}
HOOK = {
    "kind": "webhook",
    "name": "Siren",
    "enabled": "yes",
    "url": "https://1.1.1.1/x",
    "signing_key": "whsec_" + base64.b64encode(bytes(32)).decode(),
}
PUSHES = {
    "kind": "web_push",
    "name": "Devices",
    "enabled": "yes",
    "contact": "mailto:a@one.example",
}
BATCH = {
    "batch_id": "y", "species": "broiler", "sex": "mixed", "placed_count": "10",
    "placed_on": "2026-06-20",
}  # fmt: skip
LETTERS = {
    "queue": bus.WORKS[0].dead_letters, "reason": "r", "which": "all", "max_letters": "10",
    "rate_per_s": "10",
}  # fmt: skip


@pytest.fixture
def two(cloud_db: Database) -> Two:
    made = two_companies.make(cloud_db.admin_url)
    with psycopg.connect(cloud_db.admin_url) as connection:
        connection.execute(READY)
        for email, role in ((ADMIN, "admin"), (READER, "viewer"), (OWNER, "viewer")):
            add_user(
                connection, email, company_id=made.one, password=PASSWORD, role=role,
                super_admin=email != ADMIN,
            )  # fmt: skip
    return made


@pytest.fixture
def console(cloud_db: Database, two: Two, tmp_path: Path) -> Iterator[Served]:
    del two
    key_file = tmp_path / "secrets.key"
    sealing.write_new_key(key_file)
    served = Served(cloud_db.url, FARMIQ_SECRETS_KEY_FILE=str(key_file))
    served.start()
    yield served
    served.stop()


@dataclass
class Person:
    """Somebody at a browser, who fills in forms."""

    email: str
    client: httpx2.Client
    secret: bytes = b""
    # A code is good once: the next one is of the step after it.
    used_step: int = 0

    def get(self, address: str) -> str:
        answer = self.client.get(address)
        assert answer.status_code == 200, (address, answer.status_code)
        return answer.text

    def post(self, address: str, form: dict[str, str], page: str = "") -> httpx2.Response:
        """Fill in the form of this page, with what it hides."""
        hidden = dict(HIDDEN.findall(self.get(page or ACCOUNT)))
        return self.client.post(address, data={**hidden, **form})

    def sign_in(self) -> None:
        self.post("/sign-in", {"email": self.email, "password": PASSWORD}, page="/sign-in")

    def code(self) -> str:
        self.used_step = max(int(time.time()) // 30, self.used_step + 1)
        return second_factor.code(self.secret, self.used_step)

    def read_secret(self) -> None:
        shown = re.search(r'id="secret">([^<]+)<', self.get(f"{ACCOUNT}/second-factor/setup"))
        letters = shown[1].replace(" ", "") if shown else ""
        self.secret = base64.b32decode(letters + "=" * (-len(letters) % 8))


@dataclass
class Log:
    """Routes that were carried out, and what each left in the audit log."""

    reader: Person
    of: dict[str, str]
    # Whose log is read: what a super admin does to another company is in that company's.
    companies: Callable[[], list[UUID]]
    done: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def lines(self) -> Counter[tuple[str, ...]]:
        pages = (f"/settings/audit?format=csv&company={company}" for company in self.companies())
        texts = (io.StringIO(self.reader.get(page)) for page in pages)
        return Counter(tuple(row) for text in texts for row in csv.reader(text))

    def does(self, who: Person, route: str, address: str = "", page: str = "", **form: str) -> str:
        """Carry out a route, at this address or at that of the seed's rows."""
        before = self.lines()
        answer = who.post(address or self.of[route], form, page)
        if answer.status_code not in (200, 303):
            self.wrong.append(f"{route} answers {answer.status_code}")
        # A line: at, actor, kind, action, subject, detail.
        elif route not in NO_LINE and not any(
            line[1] == who.email for line in self.lines() - before
        ):
            self.wrong.append(f"{route} leaves no line")
        self.done.add(route)
        return answer.text


def test_every_route_that_changes_something_leaves_a_line_in_the_audit_log(
    console: Served, cloud_db: Database, two: Two
) -> None:
    changing = [route for route in routes_of(console) if not route.startswith("GET ")]
    assert set(changing) <= TABLE.keys()
    with (
        contextlib.ExitStack() as opened,
        psycopg.connect(cloud_db.admin_url, autocommit=True) as connection,
    ):

        def somebody(email: str) -> Person:
            headers = {"accept": "text/html"}
            client = httpx2.Client(base_url=console.url, timeout=60, headers=headers)
            return Person(email, opened.enter_context(client))

        admin, elsewhere, reader, owner = map(somebody, (ADMIN, ADMIN, READER, OWNER))
        reader.sign_in()
        log = Log(reader, addresses(cloud_db.admin_url, changing, two.one), lambda: [two.one])
        log.does(admin, "POST /sign-in", page="/sign-in", email=ADMIN, password=PASSWORD)
        owner.sign_in()
        of_barns_and_feed(log, admin)
        of_alerts(log, admin, connection)
        of_cameras(log, admin, connection)
        of_settings(log, admin, connection)
        of_companies(log, owner, two, connection)
        # The rule of the company holds for who reads the log too.
        connection.execute(HAS_FACTOR, (READER,))
        of_the_account(log, admin, elsewhere)
    unseen = set(changing) - log.done
    assert not unseen, f"carry these out here: {', '.join(sorted(unseen))}"
    assert not log.wrong, "; ".join(log.wrong)


def of_barns_and_feed(log: Log, admin: Person) -> None:
    root = "/settings/farms"
    farm = {"farm_id": "g", "name": "Hill", "timezone": "UTC"}
    log.does(admin, "POST /settings/farms/farms/new", **farm)
    at = "POST /settings/farms/farms/{farm_id}"
    log.does(admin, at, f"{root}/farms/g", f"{root}/farms/g", **{**farm, "name": "Dale"})
    barn = {"farm_id": "g", "barn_id": "c", "name": "North"}
    log.does(admin, "POST /settings/farms/barns/new", **barn)
    at = "POST /settings/farms/barns/{farm_id}/{barn_id}"
    log.does(admin, at, f"{root}/barns/g/c", f"{root}/barns/g/c", **{**barn, "name": "South"})
    product = {"feed_product_id": "q", "name": "Grower"}
    log.does(admin, "POST /settings/farms/products/new", **product)
    at = "POST /settings/farms/products/{feed_product_id}"
    log.does(
        admin, at, f"{root}/products/q", f"{root}/products/q", **{**product, "name": "Finisher"}
    )
    log.does(admin, "POST /batches/barns/new", farm_id="g", barn_id="d", barn_name="East")
    log.does(admin, "POST /batches/new", **BATCH, place="g/c/")
    edit = "/batches/y/edit"
    changed = {**BATCH, "placed_count": "11", "place": "g/c/y"}
    log.does(admin, "POST /batches/{batch_id}/edit", edit, edit, **changed)
    entry = {"idempotency_key": str(ids.new()), "place": "g/c/y"}
    log.does(admin, "POST /records/new", **entry, kind="mortality", value="2")
    entry["idempotency_key"] = str(ids.new())
    log.does(admin, "POST /feed/lots/new", **entry, feed_lot_id="l", quantity_kg="500")
    entry["idempotency_key"] = str(ids.new())
    log.does(admin, "POST /feed/intakes/new", **entry, quantity_kg="50")


def of_alerts(log: Log, admin: Person, connection: psycopg.Connection) -> None:
    log.does(admin, "POST /alerts/{episode_id}/acknowledge", note="mine")
    log.does(admin, "POST /alerts/{episode_id}/end", note="over")
    log.does(admin, "POST /alerts/rules/new", **RULE)
    rule = "/alerts/rules/warm"
    changed = {**RULE, "threshold": "32"}
    log.does(admin, "POST /alerts/rules/{rule_id}", rule, **changed)
    log.does(admin, "POST /alerts/rules/{rule_id}/switch", f"{rule}/switch", enabled="no")
    log.does(admin, "POST /alerts/rules/{rule_id}/remove", f"{rule}/remove")
    log.does(admin, "POST /alerts/windows", reason="cleaning", hours="2")
    window = one(connection, "select window_id from alert_windows where reason = 'cleaning'")
    at = "POST /alerts/windows/{window_id}/end"
    log.does(admin, at, f"/alerts/windows/{window}/end")
    root = "/settings/notifications"
    log.does(admin, "POST /settings/notifications/escalation", minutes="7")
    log.does(admin, "POST /settings/notifications/contacts/new", **CONTACT)
    contact = {**CONTACT, "level": "2"}
    at = "POST /settings/notifications/contacts/{id}"
    log.does(admin, at, f"{root}/contacts/ben", **contact)
    log.does(admin, f"{at}/remove", f"{root}/contacts/ben/remove")
    log.does(admin, "POST /settings/notifications/channels/new", **PUSHES)
    log.does(admin, "POST /settings/notifications/device", subscription=PUSH)
    log.does(admin, "POST /settings/notifications/device/remove", subscription=PUSH)
    log.does(admin, "POST /settings/notifications/channels/new", **HOOK)
    at = "POST /settings/notifications/channels/{id}"
    log.does(admin, at, f"{root}/channels/siren", **{**HOOK, "name": "Loud siren"})
    log.does(admin, f"{at}/test", f"{root}/channels/siren/test")
    log.does(admin, f"{at}/remove", f"{root}/channels/siren/remove")


def of_cameras(log: Log, admin: Person, connection: psycopg.Connection) -> None:
    log.does(admin, "POST /sites/images/{image_id}/resend")
    log.does(admin, "POST /sites/{site_id}/dishes/{device_id}/new")
    at = "POST /sites/{site_id}/cameras/{device_id}/schedule"
    log.does(admin, at, cron="0 */3 * * *")
    query = "select change_id from device_schedule_changes order by requested_at desc limit 1"
    change = one(connection, query)
    log.does(admin, f"{at}/{{change_id}}/cancel", f"{log.of[at]}/{change}/cancel")


def of_settings(log: Log, admin: Person, connection: psycopg.Connection) -> None:
    log.does(admin, "POST /reports/subscriptions", of="farm:f", kind="week")
    subscription = one(
        connection,
        f"select subscription_id from report_subscriptions where address = '{ADMIN}'",  # noqa: S608
    )
    at = "POST /reports/subscriptions/{subscription_id}/remove"
    log.does(admin, at, f"/reports/subscriptions/{subscription}/remove")
    for action in ("redrive", "discard"):
        log.does(admin, "POST /delivery/dead-letters", **LETTERS, action=action, note="old")
    log.does(admin, "POST /settings/edges/invite", edge_id="barn-9", hours="24")
    log.does(admin, "POST /settings/edges/{edge_id}/revoke")
    log.does(admin, "POST /settings/people", email="new@one.example", role="viewer")
    user = one(connection, "select user_id from users where email = 'new@one.example'")
    at, page = "POST /settings/people/{user_id}", f"/settings/people/{user}"
    connection.execute(HAS_FACTOR, ("new@one.example",))
    log.does(admin, f"{at}/role", f"{page}/role", role="operator")
    log.does(admin, f"{at}/password", f"{page}/password")
    log.does(admin, f"{at}/second-factor", f"{page}/second-factor")
    log.does(admin, f"{at}/remove", f"{page}/remove")


def of_companies(log: Log, owner: Person, two: Two, connection: psycopg.Connection) -> None:
    home, log.companies = (
        log.companies,
        lambda: every(connection, "select company_id from companies"),
    )
    log.does(owner, "POST /company", company_id=str(two.two))
    form = {"name": "Three", "timezone": "UTC", "email": "first@three.example"}
    log.does(owner, "POST /settings/companies", **form)
    log.companies = home


def of_the_account(log: Log, admin: Person, elsewhere: Person) -> None:
    elsewhere.sign_in()
    session = re.search(r'"/settings/account/sessions/([0-9a-f-]+)/end"', admin.get(ACCOUNT))
    at = "POST /settings/account/sessions/{session_id}/end"
    log.does(admin, at, f"{ACCOUNT}/sessions/{session[1] if session else 0}/end")
    elsewhere.sign_in()
    log.does(admin, "POST /settings/account/sessions/end-others")
    log.does(admin, "POST /settings/account/language", language="de")
    log.does(admin, "POST /settings/account/second-factor-rule", role="admin")
    log.does(admin, "POST /settings/account/second-factor-rule", role="")
    log.does(admin, "POST /settings/account/second-factor", password=PASSWORD)
    admin.read_secret()
    log.does(admin, "POST /settings/account/second-factor/setup", code=admin.code())
    made = log.does(admin, "POST /settings/account/second-factor/codes", code=admin.code())
    recovery = re.findall(r"<li><code>([^<]+)</code>", made)
    admin.client.cookies.clear()
    admin.sign_in()
    log.does(admin, "POST /sign-in/code", page="/sign-in/code", code=recovery[0])
    log.does(admin, "POST /settings/account/second-factor/remove", code=recovery[1])
    new = "correct horse battery 2"
    log.does(admin, "POST /settings/account/password", current=PASSWORD, new=new, again=new)
    log.does(admin, "POST /sign-out")


def every(connection: psycopg.Connection, query: str) -> list[UUID]:
    return [UUID(str(value)) for (value,) in connection.execute(query.encode()).fetchall()]


def one(connection: psycopg.Connection, query: str) -> UUID:
    (value,) = every(connection, query)
    return value

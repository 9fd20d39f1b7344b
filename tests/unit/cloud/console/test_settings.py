"""What the pages of settings say, without a database."""

import itertools
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq import services
from farmiq.cloud import episodes, retentions
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.notifications import view as notifications
from farmiq.cloud.console.settings import view as settings
from farmiq.cloud.console.settings.audit import queries
from farmiq.cloud.console.settings.audit import view as audit
from farmiq.cloud.console.settings.edges import view as edges
from farmiq.cloud.console.settings.people import routes, view
from farmiq.cloud.console.settings.people.view import Person
from farmiq.config import CloudSettings
from farmiq.ui import i18n, words

NOW = datetime(2026, 11, 18, 6, 30, tzinfo=UTC)
ADMIN = Company(
    company_id=UUID(int=1), name="Hill", tenant_id="t", timezone="UTC", email="a@b", role="admin"
)
SETTINGS = CloudSettings.load(
    {"FARMIQ_CLOUD_DB_URL": "postgresql://unused", "FARMIQ_AMQP_URL": "amqp://unused"}
)


def test_index_hides_what_a_role_may_not_open() -> None:
    def shown(role: str) -> set[str]:
        company = replace(ADMIN, role=role)
        found = settings.View(company=company, name="", now=NOW, where=words.zone("UTC"))
        return {link.address for link in found.links}

    assert shown("admin") - shown("technician") == {"/settings/people", "/settings/audit"}


def test_retention_page_shows_what_the_jobs_use() -> None:
    kept = {row.table: row.days for row in retentions.rules(SETTINGS)}
    jobs = (
        retentions.ingestion_dedupe(SETTINGS),
        retentions.sync_events(SETTINGS),
        retentions.edge_hours(SETTINGS),
        retentions.dead_letter_orders(),
        retentions.alert_messages(SETTINGS),
        *retentions.alerts(SETTINGS),
    )
    assert {job.table: job.days for job in jobs}.items() <= kept.items()
    assert kept["telemetry_readings"] is None
    rows = [settings.stored_row(row) for row in retentions.rules(SETTINGS)]
    assert {row.how_long for row in rows if row.rule.table == "telemetry_agg"} == {"for ever"}
    # Each has a name that people understand.
    assert all("_" not in row.what for row in rows)


def test_page_of_who_is_told_has_words_for_every_message_that_its_table_holds() -> None:
    folder = Path(retentions.__file__).with_name("sql") / "schema"
    schema = (folder / "79_alert_messages.sql").read_text("utf-8")
    steps, states = (
        re.findall(r"'(\w+)'", found)
        for found in re.findall(r"check \((?:step|state) in \((.*?)\)\)", schema, re.DOTALL)
    )
    assert "report" in steps
    for step, state in itertools.product(steps, states):
        row = {
            "step": step, "state": state, "ended_at": None, "created_at": NOW, "channel_id": "mail",
            "contact_id": None, "message_id": UUID(int=5), "subject": "s", "error": None,
            "episode_id": None,
        }  # fmt: skip
        shown = notifications.message(row, {}, now=NOW, zone=ZoneInfo("UTC"))
        assert shown.step
        assert shown.word


def test_invitation_has_a_command_and_a_qr_code_of_it() -> None:
    made = edges.Invitation("hill-1", "ABCDE-FGHJK", NOW, "https://cloud.farm")
    assert made.command == "farmiq edge enroll --cloud https://cloud.farm --code ABCDE-FGHJK"
    assert str(made.qr).startswith("<svg ")
    assert "ABCDE" not in repr(made)


def test_invitation_of_a_bad_name_is_refused() -> None:
    for edge_id in ("", " ", "../x", "a b", "x" * 129, "-a"):
        assert "edge_id" in edges.read_invitation({"edge_id": edge_id})[2]
    assert "hours" in edges.read_invitation({"edge_id": "a", "hours": "9999"})[2]
    assert edges.read_invitation({"edge_id": " hill-1 "}) == ("hill-1", timedelta(hours=24), {})


def test_key_that_is_replaced_is_said_to_be_good_for_a_while() -> None:
    key = edges.Key(
        key_id="k", enrolled_at=NOW, valid_until=None, revoked_at=None, replaced_by=None, good=True
    )
    assert key.word == "good"
    assert replace(key, replaced_by="l").word == "replaced, good for a while"
    assert replace(key, good=False).word == "over"
    assert replace(key, good=False, revoked_at=NOW).word == "revoked"


def test_person_of_a_form_needs_an_address_and_a_role() -> None:
    assert view.read_person({"email": "a@b", "role": "viewer"}) == {}
    for email in ("", "a", "a b@c", "a@b@c", f"{'x' * 254}@b"):
        assert set(view.read_person({"email": email, "role": "viewer"})) == {"email"}
    assert set(view.read_person({"email": "a@b", "role": "super_admin"})) == {"role"}


def test_nobody_changes_themselves_or_a_super_admin() -> None:
    person = Person(
        user_id=UUID(int=2), email="c@d", role="admin", is_super_admin=False, created_at=NOW,
        must_change_password=False, has_second_factor=False,
    )  # fmt: skip
    page = view.View(
        company=ADMIN, people=[person], now=NOW, where=words.zone("UTC"), given={}, errors={}
    )
    assert page.may_change(person)
    assert page.is_last_admin(person)
    assert not page.may_change(replace(person, email="a@b"))
    assert not page.may_change(replace(person, is_super_admin=True))


def test_one_time_password_has_groups_that_can_be_read_aloud() -> None:
    made = {routes.new_password() for _ in range(50)}
    assert len(made) == 50
    assert all(re.fullmatch(r"([A-HJKMNP-TV-Z2-9]{5}-){3}[A-HJKMNP-TV-Z2-9]{5}", p) for p in made)


def noted(action: str, *, kind: str = "people", subject: str = "c@d", detail: str = "") -> str:
    """The line of the page."""
    entry = audit.Entry(
        entry_id=UUID(int=3), at=NOW, actor="a@b", kind=kind, action=action, subject=subject,
        detail=detail,
    )  # fmt: skip
    return " ".join(filter(None, (entry.actor, entry.action_word, entry.about, entry.shown_detail)))


def test_audit_log_says_in_words_who_did_what() -> None:
    assert noted("password") == "a@b gave a new password to c@d"
    assert noted("password", subject="a@b") == "a@b chose a new password"
    signed_in = noted("sign_in", kind="sign-ins", subject="a@b", detail="code 192.0.2.0/24")
    assert signed_in == "a@b signed in with a code of the app · 192.0.2.0/24"
    farm = noted("change", kind="master data", subject="farms f-1", detail='{"name": "F", "x": 1}')
    assert farm == "a@b changed farm f-1 name: F, x: 1"
    cut = noted("import", kind="master data", subject="metrics", detail='{"added": ["co')
    assert cut == 'a@b imported metric {"added": ["co'
    camera = noted("order", kind="cameras", subject="sites 1", detail="ping (done)")
    assert camera == "a@b ordered sites 1 ping (done)"


def test_every_action_of_the_audit_logs_has_a_word() -> None:
    tables = (services.SQL["cloud"] / "schema").glob("*_actions.sql")
    checks = [re.search(r"action in \(([^)]*)\)", file.read_text("utf-8")) for file in tables]
    actions = {action for found in checks if found for action in re.findall(r"'(\w+)'", found[1])}
    actions |= {*get_args(episodes.Action), "post", "order", "request", "cancel", "new_dish"}
    assert {"sign_in_failed", "rule.set", "redrive", "invite"} < actions
    with i18n.use("de"):
        assert [one for one in sorted(actions) if f" {one.replace('_', ' ')} " in noted(one)] == []


def test_audit_addresses_keep_the_filter() -> None:
    page = audit.View(
        company=ADMIN, entries=(), actors=("a@b",), actor="c@d", kind="edges", cursor="x", now=NOW,
        where=words.zone("UTC"),
    )  # fmt: skip
    assert page.next_href == "/settings/audit?actor=c%40d&kind=edges&cursor=x"
    assert "format=csv" in page.csv_href
    assert [actor for actor, _ in page.people] == ["", "a@b", "c@d"]
    assert set(queries._SOURCES) == set(audit.KINDS)

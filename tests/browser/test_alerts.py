"""Alerts as people meet them: found, acknowledged, ended; rules written; who may do what."""

import json
import re
import urllib.parse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from farmiq.lab.stack import debian
from farmiq.plumbing import ids, sealing
from tests.browser import barns, patience, person, troubles
from tests.browser.conftest import launched
from tests.browser.look import Keep
from tests.browser.served import Served
from tests.support.engines import state_dir


def figures(page: Page) -> dict[tuple[str, str], str]:
    """(name, key) and exact value of everything on the page that comes from data."""
    rows = page.locator("[data-value]").evaluate_all(
        "all => all.map(e => [e.dataset.name, e.dataset.key ?? '', e.dataset.value])"
    )
    return {(name, key): value for name, key, value in rows}


def test_operator_finds_and_acknowledges_a_problem(
    console: Served,
    page: Page,
    *,
    browser: Browser,
    cloud_db: Any,
    complaints: list[str],
) -> None:
    troubles.add_people(cloud_db.admin_url)
    names = troubles.a_bad_day(cloud_db.url, cloud_db.admin_url)
    person.sign_in(page, console, email=troubles.OPERATOR)
    person.visit(page, console, "/alerts")
    expect(page.locator(".sentence")).to_have_text("4 problems wait for somebody")
    # The worst first, the held ones under what holds them.
    first = page.locator("#alerts > section > .alerts > li")
    assert first.evaluate_all("all => all.map(e => e.dataset.severity)") == ["critical"] * 2
    held = page.locator(f"#held-{names['silent']}")
    expect(held.locator("> summary")).to_have_text("2 problems are held back by this one")
    # Somebody else looks at the same page.
    other = browser.new_context(viewport={"width": 360, "height": 800})
    try:
        second = other.new_page()
        person.sign_in(second, console)
        person.visit(second, console, "/alerts")
        expect(second.locator(f"#a-{names['hot']}")).to_be_visible()
        expect(second.get_by_role("button", name="I look after it")).to_have_count(0)
        row = page.locator(f"#a-{names['hot']}")
        row.get_by_text("Add a note").click()
        row.get_by_label("Note").fill("fan 2 is being changed")
        row.get_by_role("button", name="I look after it").click()
        expect(page.locator(".sentence")).to_have_text("3 problems wait for somebody")
        expect(second.locator(f"#a-{names['hot']}")).to_have_count(0)
        expect(second).to_have_title("(3) Alerts")
    finally:
        other.close()
    actions = troubles.execute(
        cloud_db.admin_url, "select actor, action, key, detail ->> 'note' from alert_actions"
    )
    assert actions == [
        (troubles.OPERATOR, "acknowledge", str(names["hot"]), "fan 2 is being changed")
    ]
    page.goto(f"{console.url}/alerts/{names['hot']}")
    expect(page.locator("#timeline")).to_contain_text("fan 2 is being changed")
    expect(page.get_by_text("Go to the barn at once")).to_be_visible()
    expect(page.get_by_role("link", name="The sensor's chart")).to_have_attribute(
        "href", "/telemetry/air-01/temperature"
    )
    page.get_by_text("End it by hand").click()
    page.locator("#end-form").get_by_label("Note").fill("the sensor is broken")
    page.get_by_role("button", name="It is over").click()
    expect(page.locator("#alert")).to_have_attribute("data-state", "resolved")
    expect(page.locator("#timeline")).to_contain_text("Ended by hand")
    page.goto(f"{console.url}/alerts?state=resolved")
    expect(page.locator(f"#a-{names['moved']}")).to_contain_text("the device was moved")
    assert not complaints


def test_admin_writes_a_rule_tries_and_saves_it(
    console: Served, page: Page, cloud_db: Any, keep: Keep, complaints: list[str]
) -> None:
    troubles.add_people(cloud_db.admin_url)
    troubles.add_farm(cloud_db.admin_url)
    # Warm for the first half of the last 30 minutes, too warm for the second.
    sensor = barns.Sensor("air-01", "temperature", "°C", 30, 8)
    barns.report(cloud_db.url, sensor, every_s=60, count=30)
    person.sign_in(page, console, email=troubles.ADMIN)
    page.goto(f"{console.url}/alerts/rules")
    expect(page.locator(".sentence")).to_have_text(re.compile(r"^\d+ of \d+ rules are on$"))
    page.get_by_role("link", name="New rule").click()
    page.get_by_label("Limit").fill("thirty")
    page.get_by_role("button", name="Try it on the last 7 days").click()
    expect(page.get_by_text("This is no number")).to_be_visible()
    page.get_by_label("Limit").fill("22.5")
    page.get_by_label("For so many minutes").fill("0")
    page.get_by_label("Barn").select_option(label="Barn 1, Hill farm")
    page.get_by_label("Name").fill("Barn 1 is warm")
    page.get_by_role("button", name="Try it on the last 7 days").click()
    expect(page.locator("#rule-sentence")).to_have_text(
        "Temperature in Barn 1 on Hill farm above 22.5 °C"
    )
    tried = figures(page)
    assert tried["rule.series", ""] == "1"
    assert tried["rule.tried", ""] == str(page.locator(".tried li").count())
    assert page.locator(".tried li").count() > 0
    keep("alert-rule-tried")
    page.get_by_role("button", name="Save the rule").click()
    row = page.locator("#r-barn-1-is-warm")
    expect(row).to_contain_text(f"set by {troubles.ADMIN}")
    rules = troubles.execute(cloud_db.admin_url, "select rule_id, rule from alert_rules")
    assert [(rules[0][0], rules[0][1]["threshold"], rules[0][1]["barn_id"])] == [
        ("barn-1-is-warm", 22.5, "barn-1")
    ]
    row.get_by_role("switch").click()
    expect(row.get_by_role("switch")).to_have_text("Off")
    # Maintenance.
    page.goto(f"{console.url}/alerts/windows")
    expect(page.get_by_text("No window yet")).to_be_visible()
    page.get_by_label("Why").fill("Washing the barn")
    page.get_by_label("What").select_option(label="Barn 1, Hill farm")
    page.get_by_role("button", name="Hold back calls").click()
    expect(page.locator(".rule")).to_contain_text("Washing the barn")
    page.get_by_role("button", name="End now").click()
    expect(page.get_by_text("No window yet")).to_be_visible()
    actions = troubles.execute(
        cloud_db.admin_url, "select action from alert_actions order by at, action_id"
    )
    assert [row[0] for row in actions] == ["rule.set", "rule.set", "window.add", "window.remove"]
    assert complaints == [_REFUSED]


# The form that was wrong was answered with 422, which a browser reports.
_REFUSED = (
    "Failed to load resource: the server responded with a status of 422 (Unprocessable Entity)"
)


def test_viewer_cannot_act(console: Served, page: Page, cloud_db: Any) -> None:
    troubles.add_people(cloud_db.admin_url)
    names = troubles.a_bad_day(cloud_db.url, cloud_db.admin_url)
    person.sign_in(page, console)
    for path, role in (
        (f"/alerts/{names['hot']}", "viewer"), ("/alerts/rules", "viewer"),
        ("/alerts/windows", "viewer"), ("/settings/notifications", "viewer"),
    ):  # fmt: skip
        page.goto(f"{console.url}{path}")
        expect(page.locator(".sentence")).to_be_visible()
        assert page.locator("main form:not([hidden])").count() == 0, (path, role)
    csrf = page.locator("input[name=csrf]").first.get_attribute("value")
    for path, needed in (
        (f"/alerts/{names['hot']}/acknowledge", "operator"),
        (f"/alerts/{names['hot']}/end", "operator"),
        ("/alerts/windows", "operator"),
        ("/alerts/rules/new", "admin"),
        ("/alerts/rules/default.heat.any", "admin"),
        ("/alerts/rules/default.heat.any/switch", "admin"),
        ("/settings/notifications/channels/new", "admin"),
        ("/settings/notifications/channels/mail/test", "admin"),
        ("/settings/notifications/contacts/ann", "admin"),
        ("/settings/notifications/contacts/ann/remove", "admin"),
        ("/settings/notifications/escalation", "admin"),
    ):
        answer = page.request.post(
            f"{console.url}{path}",
            form={"csrf": csrf or "", "signal": "telemetry.x", "kind": "email", "minutes": "5"},
            headers={"Accept": "text/html"},
        )
        assert (path, answer.status) == (path, 403)
        assert needed in answer.text()
    # Without the token of the page nobody acts at all, and an id of nobody is not found.
    person_url = f"{console.url}/alerts/{names['hot']}/acknowledge"
    assert page.request.post(person_url, form={"csrf": "x"}).status == 403
    assert page.request.get(f"{console.url}/alerts/{ids.new()}").status == 404
    assert troubles.execute(cloud_db.admin_url, "select count(*) from alert_actions") == [(0,)]
    states = troubles.execute(
        cloud_db.admin_url, "select state from alert_episodes where episode_id = %s", names["hot"]
    )
    assert states == [("active",)]


# --- who is told


@pytest.fixture
def sealed_console(cloud_db: Any, tmp_path: Path) -> Iterator[Served]:
    """A console that can store secrets."""
    key = tmp_path / "secrets.key"
    sealing.write_new_key(key)
    barns.add_company(cloud_db.admin_url)
    served = Served(cloud_db.url, FARMIQ_SECRETS_KEY_FILE=str(key))
    served.start()
    yield served
    served.stop()


def test_admin_sets_up_who_is_told_and_subscribes_a_device(
    sealed_console: Served, page: Page, context: BrowserContext, cloud_db: Any, keep: Keep
) -> None:
    console = sealed_console
    troubles.add_people(cloud_db.admin_url)
    person.sign_in(page, console, email=troubles.ADMIN)
    page.goto(f"{console.url}/settings/notifications")
    expect(page.locator(".sentence")).to_have_text("Nobody is told of alerts yet")
    # A channel with a secret, which is never shown again.
    page.get_by_label("New channel").select_option("webhook")
    page.locator("form.inline", has_text="New channel").get_by_role("button").click()
    page.get_by_label("Name").fill("Control room")
    page.get_by_label("Address").fill("https://127.0.0.1/secret-path")
    page.get_by_label("Signing key").fill("whsec_short")
    page.get_by_role("button", name="Save the channel").click()
    expect(page.locator(".wrong-text").first).to_be_visible()
    page.get_by_label("Address").fill("https://hooks.example.invalid/secret-path")
    page.get_by_label("Signing key").fill("whsec_" + "QUJD" * 8)
    page.get_by_role("button", name="Save the channel").click()
    expect(page.locator("#channels")).to_contain_text("hooks.example.invalid")
    page.get_by_role("link", name="Control room").click()
    assert "secret-path" not in page.content()
    expect(page.get_by_text("never shown again").first).to_be_visible()
    page.get_by_role("button", name="Save the channel").click()
    stored = troubles.execute(
        cloud_db.admin_url, "select channel_id, secret_names from alert_channels"
    )
    assert stored == [("control-room", ["signing_key", "url"])]
    # A person with quiet hours.
    page.locator("#contacts").get_by_role("link", name="Add").click()
    page.get_by_label("Name").fill("Ann")
    page.get_by_label("Control room").check()
    page.get_by_label("From").fill("22:00")
    page.get_by_label("Until").fill("05:30")
    page.get_by_role("button", name="Save the contact").click()
    expect(page.locator("#contacts")).to_contain_text("quiet from 22:00 to 05:30 (Asia/Bangkok)")
    expect(page.locator(".sentence")).to_have_text("1 person or device is told of alerts")
    page.get_by_label("Minutes until").fill("20")
    page.locator("#escalation").get_by_role("button", name="Save").click()
    expect(page.get_by_label("Minutes until")).to_have_value("20")
    # A test message: the page shows what becomes of it, live.
    page.get_by_role("button", name="Test").click()
    expect(page.locator("#test")).to_contain_text("waits to be sent")
    person.expect_pill(page, "Live")
    troubles.execute(
        cloud_db.admin_url,
        "update alert_messages set state = 'failed', ended_at = now(), error = '410 gone'",
    )
    expect(page.locator("#test")).to_contain_text("410 gone")
    keep("notifications")
    # Messages to devices.
    page.get_by_role("link", name="Switch on messages to devices").click()
    page.get_by_label("Contact for push services").fill("mailto:alerts@example.com")
    page.get_by_role("button", name="Save the channel").click()
    context.grant_permissions(["notifications"], origin=console.url)
    page.reload()
    page.get_by_role("button", name="Tell me on this device").click()
    # No push service can be reached from here: the page says what to do.
    expect(page.locator("#push-says")).to_contain_text("cannot be reached")
    _subscribe(page, console)
    expect(page.locator("#contacts")).to_contain_text(troubles.ADMIN)
    contacts = troubles.execute(
        cloud_db.admin_url,
        "select addresses ? 'web-push', u.email from alert_contacts c join users u using (user_id) "
        "where contact_id like 'device-%%'",
    )
    assert contacts == [(True, troubles.ADMIN)]


SUBSCRIPTION = {
    "endpoint": "https://push.example.com/one",
    "keys": {
        "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcx"
        "aOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "auth": "BTBZMqHH6r4Tts7J_aSIgg",
    },
}


def _subscribe(page: Page, console: Served) -> None:
    """As push.js does with the subscription that a browser got."""
    csrf = page.locator("input[name=csrf]").first.get_attribute("value")
    body = urllib.parse.urlencode({"csrf": csrf, "subscription": json.dumps(SUBSCRIPTION)})
    answer = page.request.post(
        f"{console.url}/settings/notifications/device",
        data=body,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert answer.ok, answer.text()
    page.reload()


@pytest.fixture
def whole_browser(browser: Browser) -> Iterator[Browser]:
    """The one with windows: the other has no notifications."""
    program = debian.chromium_path(state_dir() / "engines", package=debian.CHROMIUM)
    opened = launched(browser.browser_type, program)
    yield opened
    opened.close()


def test_push_message_is_shown_and_leads_to_its_episode(
    console: Served, whole_browser: Browser, cloud_db: Any
) -> None:
    context = whole_browser.new_context()
    page = context.new_page()
    troubles.add_farm(cloud_db.admin_url)
    hot = troubles.raise_(cloud_db.url)
    context.grant_permissions(["notifications"], origin=console.url)
    person.sign_in(page, console)
    page.goto(f"{console.url}/alerts")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    session = context.new_cdp_session(page)
    registrations: list[dict[str, Any]] = []
    session.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: registrations.extend(event["registrations"]),
    )
    session.send("ServiceWorker.enable")
    patience.until(lambda: bool(page.evaluate("1") and registrations), "the worker is known")
    message = {
        "body": "Go to the barn", "severity": "critical", "episode_id": str(hot),
        "page": f"/alerts/{hot}",
    }  # fmt: skip
    shown = """navigator.serviceWorker.ready.then(r => r.getNotifications())
      .then(all => all.map(n => [n.title, n.body, n.data.page, n.tag]))"""
    # The later word about an episode takes the place of the one before.
    for title in ("Critical: too hot", "Resolved"):
        session.send(
            "ServiceWorker.deliverPushMessage",
            {
                "origin": console.url,
                "registrationId": registrations[-1]["registrationId"],
                "data": json.dumps({**message, "title": title}),
            },
        )
        wanted = [[title, "Go to the barn", f"/alerts/{hot}", str(hot)]]
        patience.until(partial(_is_shown, page, shown, wanted), "the message is shown, once")


def _is_shown(page: Page, script: str, wanted: list[list[str]]) -> bool:
    return bool(page.evaluate(script) == wanted)

"""Delivery and settings: what an integrator, an admin and a technician see and do there."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from farmiq.cloud.identity import passwords
from tests.browser import barns, deliveries, patience, person, troubles
from tests.browser.served import Served
from tests.support import databases


@pytest.fixture
def company(console: Served, cloud_db: Any) -> Served:
    """Three edges, dead letters of this company and another, and a person of each role."""
    deliveries.everybody(cloud_db.admin_url)
    deliveries.three_edges(cloud_db.admin_url)
    deliveries.letters_on_pages(cloud_db.admin_url)
    return console


@pytest.mark.req("DB2-16")
def test_delivery_pages_show_problems_first_and_nobody_elses(
    company: Served, page: Page, complaints: list[str]
) -> None:
    person.sign_in(page, company, email=deliveries.email("admin"))
    person.visit(page, company, "/delivery")
    expect(page.locator(".sentence")).to_contain_text("Edge barn-silent is silent for 3 h.")
    expect(page.locator(".sentence")).to_contain_text("14 dead letters wait.")
    expect(page.locator("#edges .rows > li").first).to_contain_text("barn-ill")
    expect(page.locator("#queues")).to_have_count(0)
    page.goto(f"{company.url}/delivery/dead-letters")
    expect(page.get_by_text("a reason of the others")).to_have_count(0)
    assert page.request.get(f"{company.url}/delivery/edges/of-nobody").status == 404
    assert not complaints


def test_edge_with_a_loss_is_well_again_when_its_alert_is_over(
    company: Served, page: Page, cloud_db: Any
) -> None:
    deliveries.enrolled(cloud_db.admin_url, "barn-lossy", losses=2)
    person.sign_in(page, company, email=deliveries.email("admin"))
    person.visit(page, company, "/delivery")
    chip = page.locator("#edge-barn-lossy > .chip")
    expect(chip).to_have_text("arrives")
    episode_id = troubles.raise_(
        cloud_db.url, cause="rule:default.edge.losses|edge:barn-lossy", subject="edge:barn-lossy",
        rule_id="default.edge.losses", signal="edge.losses", farm_id=None, barn_id=None,
        device_id=None, edge_cluster_id="barn-lossy",
    )  # fmt: skip
    page.reload()
    expect(chip).to_have_text("needs attention")
    expect(page.locator("#edge-barn-lossy .problems")).to_contain_text("2 in all")
    troubles.execute(
        cloud_db.admin_url,
        "update alert_episodes set state = 'resolved', resolved_at = now() where episode_id = %s",
        episode_id,
    )
    page.reload()
    expect(chip).to_have_text("arrives")


def test_headline_counts_only_what_is_late(company: Served, page: Page, cloud_db: Any) -> None:
    for late, count in (("1 hour", 2), ("1 minute", 3)):
        troubles.execute(
            cloud_db.admin_url,
            "insert into alert_messages (tenant_id, message_id, step, channel_id, address, "
            "severity, subject, body, content, created_at, send_after, next_attempt_at) "
            "select 'tenant-a', gen_random_uuid(), 'report', 'mail', 'a@b', 'info', 's', 'b', "
            "'{}', now() - interval '1 day', now() - %s::interval, now() "
            "from generate_series(1, %s)",
            late,
            count,
        )
    person.sign_in(page, company, email=deliveries.email("admin"))
    person.visit(page, company, "/delivery")
    expect(page.locator(".sentence")).to_contain_text("2 messages to people wait for more than")
    expect(page.locator("#waiting")).to_contain_text("5")


def test_form_whose_server_is_away_stays_and_keeps_what_was_typed(
    company: Served, page: Page
) -> None:
    person.sign_in(page, company, email=deliveries.email("admin"))
    page.goto(f"{company.url}/settings/people")
    page.get_by_label("E-mail").fill("new@example.com")
    company.stop()
    page.get_by_role("button", name="Add and show a one-time password").click()
    expect(page.locator("#not-sent")).to_be_visible()
    expect(page.get_by_label("E-mail")).to_have_value("new@example.com")
    company.start()
    page.get_by_role("button", name="Add and show a one-time password").click()
    expect(page.get_by_role("heading", name="One-time password")).to_be_visible()
    expect(page.locator(".people")).to_contain_text("new@example.com")


def test_audit_log_has_pages_filters_and_a_file(
    company: Served, page: Page, cloud_db: Any, complaints: list[str]
) -> None:
    with databases.connected(cloud_db.admin_url) as connection:
        connection.execute(
            """
            insert into master_data_actions (action_id, at, actor, action, tenant_id, kind, key)
            select gen_random_uuid(), now() - n * interval '1 minute', %s, 'change', 'tenant-a',
              'farms', %s from generate_series(1, 60) n
            """,
            (deliveries.MARKUP, deliveries.LONG),
        )
    person.sign_in(page, company, email=deliveries.email("admin"))
    page.goto(f"{company.url}/settings/audit")
    first = page.locator(".audit > li").count()
    page.get_by_role("link", name="Show more").click()
    expect(page.locator(".audit > li").first).to_be_visible()
    assert first == 50
    csv = page.request.get(f"{company.url}/settings/audit?format=csv&kind=edges").text()
    assert csv.startswith("at,actor,kind,action,subject,detail\r\n")
    assert csv.count("\r\n") == 1 + 2 * 3
    assert page.request.get(f"{company.url}/settings/audit?kind=nonsense").status == 400
    assert not [said for said in complaints if "400" not in said]


@pytest.fixture
def with_bus(cloud_db: Any, vhost: str) -> Iterator[Served]:
    """A console beside the services of dead letters and feed, on a bus of its own."""
    barns.add_company(cloud_db.admin_url)
    deliveries.everybody(cloud_db.admin_url)
    served = Served(cloud_db.url, FARMIQ_AMQP_URL=vhost)
    served.start()
    yield served
    served.stop()


@pytest.mark.req("DB2-20")
def test_integrator_finds_a_dead_letter_redrives_it_and_sees_the_outcome(
    with_bus: Served, page: Page, cloud_db: Any, vhost: str
) -> None:
    ours, theirs = deliveries.lot(), deliveries.lot("tenant-b")
    deliveries.bury(vhost, ours, theirs, reason="the lot was not known at that time")

    def stored() -> list[str]:
        with databases.connected(cloud_db.admin_url) as connection:
            rows = connection.execute("select event_id::text from feed_events").fetchall()
        return [row[0] for row in rows]

    def is_listed() -> bool:
        with databases.connected(cloud_db.admin_url) as connection:
            return bool(connection.execute("select from dead_letter_groups").fetchall())

    patience.until(is_listed, "the service has looked at the letters")
    person.sign_in(page, with_bus, email=deliveries.email("admin"))
    page.goto(f"{with_bus.url}/delivery")
    page.locator(".sentence").get_by_text("1 dead letter waits.").wait_for()
    page.get_by_role("link", name="Dead letters", exact=True).click()
    expect(page.get_by_role("heading", name="the lot was not known at that time")).to_be_visible()
    page.get_by_text("Content", exact=True).click()
    expect(page.locator("pre")).to_contain_text(ours["event_id"])
    # Without a reason nothing is discarded.
    page.get_by_role("button", name="Discard").click()
    expect(page.get_by_text("Say why they may be discarded")).to_be_visible()
    # A dry run first, then the letter that is marked.
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_text("would be sent again")).to_be_visible()
    assert stored() == []
    page.get_by_role("button", name="Send these again now").click()
    expect(page.locator(".sentence")).to_have_text("1 letter was sent again.")
    patience.until(lambda: stored() == [ours["event_id"]], "the lot is stored, once")
    page.reload()
    expect(page.locator("#order .chip", has_text="stored")).to_be_visible()
    with databases.connected(cloud_db.admin_url) as connection:
        audit = connection.execute(
            "select actor, action, tenant_id, event_id, outcome from dead_letter_actions"
        ).fetchall()
    assert audit == [
        (deliveries.email("admin"), "redrive", "tenant-a", ours["event_id"], "redriven")
    ]
    page.goto(f"{with_bus.url}/delivery/dead-letters")
    expect(page.locator(".sentence")).to_have_text("No dead letter waits.")
    expect(page.locator("#orders .rows > li")).to_have_count(2)
    # The others see theirs, and not our order.
    address = page.locator("#orders a").first.get_attribute("href")
    page.context.clear_cookies()
    person.sign_in(page, with_bus, email="hill@example.com")
    assert page.request.get(f"{with_bus.url}{address}").status == 404
    page.goto(f"{with_bus.url}/delivery/dead-letters")
    expect(page.locator(".sentence")).to_have_text("1 dead letter waits for a decision.")
    # Queues serve all companies: who runs the cloud sees them.
    page.context.clear_cookies()
    person.sign_in(page, with_bus, email=deliveries.ROOT)
    page.goto(f"{with_bus.url}/delivery")
    expect(page.locator("#queues")).to_contain_text("farmiq.cloud-feed-service.dlq.queue")


def test_admin_invites_an_edge_and_sees_the_code_and_qr_and_adds_a_person(
    console: Served, page: Page, cloud_db: Any
) -> None:
    deliveries.everybody(cloud_db.admin_url)
    person.sign_in(page, console, email=deliveries.email("technician"))
    page.goto(f"{console.url}/settings")
    expect(page.get_by_role("link", name="People")).to_have_count(0)
    assert page.request.get(f"{console.url}/settings/people").status == 403
    page.context.clear_cookies()
    person.sign_in(page, console, email=deliveries.email("admin"))
    invite_and_revoke_an_edge(page, console, cloud_db.url)
    add_change_and_remove_a_person(page, console, cloud_db.admin_url)


def invite_and_revoke_an_edge(page: Page, console: Served, url: str) -> None:
    page.goto(f"{console.url}/settings/edges")
    page.get_by_label("Name of the edge").fill("../etc")
    page.get_by_role("button", name="Make a code").click()
    expect(page.get_by_text("Letters, digits and")).to_be_visible()
    page.get_by_label("Name of the edge").fill("hill-farm-1")
    page.get_by_role("button", name="Make a code").click()
    code = page.locator("#code").inner_text()
    assert re.fullmatch(r"([A-Z0-9]{5}-){4}[A-Z0-9]{5}", code)
    expect(page.locator("#command")).to_have_text(
        f"farmiq edge enroll --cloud {console.url} --code {code}"
    )
    expect(page.get_by_role("img", name="QR code of the command").locator("svg")).to_be_visible()
    deliveries.enrol_with(url, code)
    page.goto(f"{console.url}/settings/edges")
    assert code not in page.content()
    expect(page.locator("#edge-hill-farm-1")).to_contain_text("never heard")
    # A tap asks, the second one does it.
    page.locator("#edge-hill-farm-1").get_by_text("Keys", exact=True).click()
    page.locator("#edge-hill-farm-1").get_by_text("Revoke this edge").click()
    expect(page.locator("#edge-hill-farm-1 > .chip")).to_have_text("never heard")
    page.get_by_role("button", name="Revoke for good").click()
    expect(page.locator("#edge-hill-farm-1 > .chip")).to_have_text("revoked")


def add_change_and_remove_a_person(page: Page, console: Served, admin_url: str) -> None:
    page.goto(f"{console.url}/settings/people")
    page.get_by_label("E-mail").fill("new@example.com")
    page.get_by_role("button", name="Add and show a one-time password").click()
    password = page.locator(".secret").inner_text()
    with databases.connected(admin_url) as connection:
        rows = connection.execute(
            "select password_hash, must_change_password from users where email = 'new@example.com'"
        ).fetchall()
        audit = connection.execute(
            "select actor, action, email, detail from user_actions order by action_id desc limit 1"
        ).fetchall()
    ((hashed, must_change),) = rows
    assert passwords.matches(hashed, password)
    assert must_change
    assert audit == [(deliveries.email("admin"), "add", "new@example.com", "viewer")]
    page.get_by_label("E-mail").fill("new@example.com")
    page.get_by_role("button", name="Add and show a one-time password").click()
    expect(page.get_by_text("Somebody with this e-mail can sign in already.")).to_be_visible()
    row = page.locator(".people > li", has_text="new@example.com")
    row.get_by_text("Change", exact=True).click()
    row.get_by_label("Role").select_option("technician")
    row.get_by_role("button", name="Change the role").click()
    expect(row).to_contain_text("technician")
    row.get_by_text("Change", exact=True).click()
    row.get_by_role("button", name="Reset the password").click()
    assert page.locator(".secret").inner_text() != password
    row.get_by_text("Change", exact=True).click()
    row.get_by_role("button", name="Remove").click()
    expect(page.locator(".people > li", has_text="new@example.com")).to_have_count(0)
    # Nobody changes themselves.
    expect(
        page.locator(".people > li", has_text="admin@example.com").locator("details")
    ).to_have_count(0)

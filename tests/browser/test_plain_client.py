"""A message of a plain MQTT client appears on the page, through every service there is."""

import re
from functools import partial
from types import SimpleNamespace
from typing import Any

from playwright.sync_api import Page, expect

from farmiq.services import SITES
from tests.browser import patience, person
from tests.support import edge_day, pages, plain_client
from tests.support.farm import PASSWORD, Farm


def test_what_mosquitto_pub_sends_appears_without_a_reload(
    two_sites: Farm, page: Page, complaints: list[str]
) -> None:
    for site in SITES:
        two_sites.start(site)
    for site in SITES:
        patience.until(partial(two_sites.ready, site), site, within_s=120)
    console: Any = SimpleNamespace(url=two_sites.url("cloud"))
    person.sign_in(page, console, email="p@hillside.farm", password=PASSWORD, path="/telemetry")
    person.expect_pill(page, "Live")
    page.evaluate("window.still = 'the same page'")
    done = plain_client.run(
        "A reading",
        devices_url=two_sites.environment["FARMIQ_DEVICES_MQTT_URL"],
        folder=two_sites.folder,
    )
    assert done.returncode == 0, done.stderr
    row = page.locator(f'.sensor[data-device="{plain_client.DEVICE}"]')
    expect(row.locator(".value")).to_have_text(re.compile(r"^\s*23\.5\s°C\s*$"))
    expect(row.locator(".metric")).to_have_text(re.compile(r"^\s*Temperature\s*$"))
    _technician_adds_a_sensor(two_sites, page)
    # The first reading of the new sensor is on the page that was open all the time.
    added = page.locator('.sensor[data-device="climate-9"]')
    expect(added.locator(".value")).to_have_text(re.compile(r"^\s*21\.5\s°?C\s*$"))
    assert page.evaluate("window.still") == "the same page"
    assert not complaints


def _technician_adds_a_sensor(farm: Farm, page: Page) -> None:
    """On the edge's page; then the command that it shows sends a first reading."""
    edge_day.add_key(farm.edge_db.admin_url, role="admin", tenant=plain_client.TENANT)
    edge = page.context.new_page()
    edge.goto(f"{farm.url('edge')}/sign-in")
    edge.get_by_label("Name").fill(edge_day.NAME)
    edge.get_by_label("PIN").fill(edge_day.PIN)
    edge.get_by_role("button", name="Sign in", exact=True).click()
    person.expect_pill(edge, "Live")
    edge.goto(f"{farm.url('edge')}/devices")
    edge.get_by_role("link", name="Add a device").click()
    edge.get_by_label("Farm and barn").fill(f"{plain_client.FARM}/{plain_client.BARN}")
    edge.get_by_label("Name of the device").fill("climate-9")
    edge.get_by_role("button", name="Add and show its login").click()
    command = edge.locator("#try-it").inner_text()
    person.expect_accessible(edge)
    # The broker learns of the login a moment after it was made.
    shell = pages.Shell(farm.folder, {})
    patience.until(lambda: shell.run(command).returncode == 0, "the new login", within_s=60)
    edge.close()

"""A message of a plain MQTT client appears on the page, through every service there is."""

import re
from functools import partial
from types import SimpleNamespace
from typing import Any

from playwright.sync_api import Page, expect

from farmiq.services import SITES
from tests.browser import patience, person
from tests.support import plain_client
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
    assert page.evaluate("window.still") == "the same page"
    assert not complaints

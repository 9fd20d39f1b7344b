"""Templates and files: what they weigh, and that names are inert in them."""

import gzip
import re
from datetime import UTC, datetime

import pytest
from fastapi import Request

from farmiq.cloud.console import look, readings
from farmiq.cloud.console.readings import Choice, Company, Reading
from farmiq.cloud.console.sparkline import Point
from farmiq.plumbing import ids

NOW = datetime(2026, 3, 10, tzinfo=UTC)
EVIL = "<script>alert(1)</script>\"'"


EVIL_CHOICES = [Choice(company_id=ids.new(), name=EVIL)]


def evil_view() -> readings.View:
    reading = Reading(
        farm_id=EVIL,
        barn_id=EVIL,
        device_id=EVIL,
        metric_type=EVIL,
        value=1.0,
        unit=EVIL,
        captured_at=NOW,
        arrived_at=NOW,
        count=1,
        history=(Point(NOW, 1.0),),
    )
    company = Company(company_id=ids.new(), name=EVIL, tenant_id=EVIL, timezone="UTC", email=EVIL)
    return readings.view(company, [reading], now=NOW)


def test_names_are_inert() -> None:
    page = look.render("latest.html", view=evil_view(), csrf="token", choices=EVIL_CHOICES)
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;") >= 7


def test_pages_hold_no_inline_script_handler_or_style() -> None:
    page = look.render("latest.html", view=evil_view(), csrf="token", choices=EVIL_CHOICES)
    inert = page.replace("&lt;script", "")
    assert not re.search(r"<script(?! type=\"module\" src=)|\son\w+=|\sstyle=|<style", inert)


def test_the_fragment_is_the_part_of_the_page() -> None:
    page = look.render("latest.html", view=evil_view(), csrf="token", choices=EVIL_CHOICES)
    assert look.render("fragment.html", view=evil_view()).strip() in page


@pytest.mark.parametrize(("suffix", "most"), [(".js", 60_000), (".css", 20_000)])
def test_budget(suffix: str, most: int) -> None:
    contents = [file.content for name, file in look.files.items() if name.endswith(suffix)]
    assert contents
    assert sum(len(gzip.compress(content)) for content in contents) < most


def test_addresses_hold_a_hash_and_files_name_no_other_host() -> None:
    for name, file in look.files.items():
        assert re.fullmatch(rf"/static/[0-9a-f]{{12}}/{re.escape(name)}", file.address)
        if name.endswith((".js", ".css")):
            assert b"//" not in re.sub(rb"(?m)^\s*//.*$", b"", file.content)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [("text/html,application/xhtml+xml", True), ("*/*", False), ("application/json", False)],
)
def test_who_gets_pages(accept: str, expected: bool) -> None:  # noqa: FBT001 - a table of cases
    request = Request({"type": "http", "headers": [(b"accept", accept.encode())]})
    assert look.is_browser(request) is expected

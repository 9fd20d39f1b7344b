"""Reports on paper: two pages of a batch, whatever names and texts people gave."""

import re
from dataclasses import replace

import pytest

from farmiq.cloud.reports import model, wording
from farmiq.cloud.reports.paper import charts, document, sheet
from farmiq.cloud.reports.periods import parse
from farmiq.cloud.reports.queries import Listed
from farmiq.ui import i18n
from tests.unit.cloud.reports.facts import BATCH, MADE, WEEK, alert, facts, farm_facts


def pages(pdf: bytes) -> int:
    assert pdf.startswith(b"%PDF-")
    return len(re.findall(rb"/Type /Page\b(?!s)", pdf))


@pytest.mark.parametrize("period", ["2026-W46", "2026-11", "2026-10"])
def test_report_of_a_batch_has_two_pages(period: str) -> None:
    report = model.batch_report(facts(period=parse(period)), parse(period))
    assert pages(document.batch_pdf(report, MADE)) == 2


def test_report_of_a_farm_has_a_page_and_two_for_each_batch() -> None:
    report = model.farm_report(farm_facts(facts(), facts()), WEEK)
    assert pages(document.farm_pdf(report, MADE)) == 1 + 2 * 2


def test_equal_reports_are_equal_bytes() -> None:
    report = model.batch_report(facts(), WEEK)
    assert document.batch_pdf(report, MADE) == document.batch_pdf(report, MADE)


@pytest.mark.parametrize(
    "text",
    ["<b>x</b>&amp;", "\u202eevil", "โรงเรือน", "x" * 4096, "a\0b\nc", "你好 🐔", ""],
)
def test_any_name_fits_and_changes_no_layout(text: str) -> None:
    batch = replace(BATCH, barn=text or "b", farm=text, breed=text, batch_id=text[:128])
    many = Listed([alert("critical", message=text * 3) for _ in range(12)], 4000)
    report = model.batch_report(facts(batch, alerts=many), WEEK)

    assert pages(document.batch_pdf(report, replace(MADE, company=text))) == 2


def test_batch_of_which_nothing_is_known_is_drawn() -> None:
    nothing = replace(
        facts(), weights=[], figures=[], latest=[], days=[], standard=[],
        alerts=Listed(), notes=Listed(),
    )  # fmt: skip
    assert pages(document.batch_pdf(model.batch_report(nothing, WEEK), MADE)) == 2


def test_german_report_is_made() -> None:
    with i18n.use("de"):
        assert pages(document.batch_pdf(model.batch_report(facts(), WEEK), MADE)) == 2


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 2.1, [0, 0.5, 1, 1.5, 2, 2.5]), (0, 7, [0, 2, 4, 6, 8]), (0, 0, [0, 1])],
)
def test_ticks_are_round_and_reach_the_highest_value(
    low: float, high: float, expected: list[float]
) -> None:
    found = charts.ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    if high:
        assert found == pytest.approx(expected)


def test_text_is_cut_to_its_room() -> None:
    assert sheet.cut("short", 9, 200) == "short"
    shown = sheet.cut("a very long name of a barn", 9, 60)
    assert shown.endswith("…")
    assert sheet.width(shown, 9) <= 60
    lines = sheet.wrapped("word " * 50, 9, 100, max_lines=2)
    assert len(lines) == 2
    assert all(sheet.width(line, 9) <= 100 for line in lines)


def test_name_of_a_file_is_of_letters_that_every_disk_takes() -> None:
    assert wording.file_name(WEEK, subject="b 7/ü") == "farmiq-2026-W46-b-7--.pdf"

"""What the live view says of the figures."""

import asyncio
import io
import os
import sys
import termios
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from farmiq.lab.demo import view
from farmiq.lab.demo.history import POSTED_FILE, History
from farmiq.lab.demo.observe import CloudFigures, EdgeFigures, Figures
from farmiq.lab.demo.provision import Site
from farmiq.lab.demo.run import Farm

EDGE = EdgeFigures(
    stored=12_345, quarantined=0, outbox_waiting=7, outbox_oldest_s=1.4, outbox_dlq=0,
    weighed=4, pictures=9,
)  # fmt: skip
CLOUD = CloudFigures(stored=12_338, newest_age_s=0.6, weighed=3, pictures=8, images=5)


def figures(
    edge: EdgeFigures | None = EDGE, cloud: CloudFigures | None = CLOUD, *, sent: int = 12_350
) -> Figures:
    return Figures(
        sent=sent, confirmed=12_347, captured=6, on_cards=1, repeats_absorbed=1_002,
        queue_waiting=0, edge=edge, cloud=cloud,
    )  # fmt: skip


def screen(*looks: Figures) -> view.Screen:
    site = Site(
        {"FARMIQ_CLOUD_HTTP_PORT": "8080", "FARMIQ_EDGE_HTTP_PORT": "8081"},
        "operator@hillside.farm",
        "twelve chars",
    )
    farm = Farm(site, *cast("tuple[Any, Any, Any, Any]", (None, {}, None, None)), started_at=0.0)
    made = view.Screen(farm)
    for second, look in enumerate(looks):
        made.take(look, float(second))
    return made


def test_every_place_has_a_row_with_what_waits_there() -> None:
    found = {row[0]: row[1:] for row in view.rows(screen(figures()), figures())}

    assert found["sensors"][:3] == ("12,350", "", "3")
    assert found["broker"][:3] == ("12,347", "", "2")
    assert found["edge"][:4] == ("12,345", "", "7", "1 s")
    assert found["cloud"][:3] == ("12,338", "", "0")
    assert found["weighings"][0] == "4"
    assert found["cameras"][:3] == ("5", "", "1")
    assert "1,002 repeats" in found["edge"][-1]


def test_history_has_a_row_only_while_it_is_posted(tmp_path: Path) -> None:
    shown = screen(figures())
    history = shown.farm.history = History(tmp_path, {}, cast("Any", None))
    assert "history" not in {row[0] for row in view.rows(shown, figures())}

    history.posted, history.events = 1_500, 20_000
    row = next(row for row in view.rows(shown, figures()) if row[0] == "history")
    assert (row[1], row[3]) == ("1,500", "18,500")

    (tmp_path / POSTED_FILE).touch()
    assert "history" not in {row[0] for row in view.rows(shown, figures())}


def test_rates_are_of_the_last_seconds() -> None:
    looks = [figures(sent=12_350 + 20 * second) for second in range(31)]

    assert screen(*looks).rate("sensors") == "20.0"


def test_edge_that_does_not_answer_keeps_its_last_figures_and_says_so() -> None:
    frozen = figures(edge=None)

    row = next(r for r in view.rows(screen(figures(), frozen), frozen) if r[0] == "edge")

    assert row[1] == "12,345"
    assert row[-1].startswith("no answer")


@pytest.mark.parametrize("width", [80, 120])
def test_screen_fits_a_terminal_without_wrapping(width: int) -> None:
    made = screen(figures())
    made.happenings.append("12:00:00  the edge is ready again after 2.9 s")
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(view.render(made, figures()))

    lines = console.export_text().splitlines()

    # title, two sign-ins, blank, header, rule, six places, blank, what happened, keys
    assert len(lines) == 15


def test_without_a_terminal_a_line_has_the_same_figures() -> None:
    assert view.line(screen(figures()), figures()).startswith(
        "sensors 12,350 (waiting 3)  broker 12,347 (waiting 2)  edge 12,345 (waiting 7)"
    )


async def test_ctrl_c_is_a_key_and_the_terminal_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = os.openpty()
    pressed: asyncio.Queue[str] = asyncio.Queue()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        before = termios.tcgetattr(theirs)
        with view.pressed_keys(pressed.put_nowait):
            os.write(ours, b"k\x03")
            assert [await pressed.get(), await pressed.get()] == ["k", view.CTRL_C]
        assert termios.tcgetattr(theirs) == before
    os.close(ours)

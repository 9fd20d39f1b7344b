"""What the pages about weighings say."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from farmiq.api import problems
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.weighings import spreads
from farmiq.cloud.console.weighings import view as weighings
from farmiq.cloud.console.weighings.routes import DayFilter
from farmiq.cloud.console.weighings.view import Weighing, WeighingsQuery
from farmiq.messages import kinds
from farmiq.ui import look
from farmiq.ui.estimates import Estimate

NOW = datetime(2026, 11, 15, 5, 0, tzinfo=UTC)
COMPANY = Company(
    company_id=UUID(int=1), name="One", tenant_id="t-1", timezone="Asia/Bangkok", email="a@b.c"
)


def weighing(number: int = 1, **changes: Any) -> Weighing:
    return Weighing(
        **{
            "session_id": UUID(int=number),
            "farm_id": "f",
            "barn_id": "b",
            "device_id": "scale-1",
            "batch_id": None,
            "state": "finalized",
            "status": "finalized",
            "start_at": NOW - timedelta(hours=1),
            "end_at": NOW,
            "initial_weight_kg": 2.0,
            "final_weight_kg": 2.5,
            "image_count": 1,
            "media_ids": (UUID(int=9),),
            "missing": (),
            "cancel_reason": None,
            "received_at": NOW - timedelta(minutes=59),
            **changes,
        }
    )


def view(*found: Weighing, query: WeighingsQuery | None = None, here: Any = ()) -> weighings.View:
    return weighings.view(
        COMPANY, found, query=query or WeighingsQuery(), here=here, last_at=None, now=NOW
    )


def test_what_is_missing_is_named_in_words() -> None:
    assert weighing(missing=("created", "image")).lacking == ("no start", "no image")
    assert weighing(image_count=3).lacking == ("1 of 3 images",)
    assert weighing().lacking == ()


def test_counts_are_of_the_rows_that_are_listed() -> None:
    found = [
        weighing(1),
        weighing(2, state="INCOMPLETE", missing=("image",), device_id="scale-2"),
        weighing(3, state="cancelled", cancel_reason="left"),
    ]
    everything = view(*found)
    assert everything.sentence == "3 weighings today; 1 incomplete"
    assert everything.title == "(1) Weighings"
    assert [(tab.word, tab.count) for tab in everything.tabs] == [
        ("All", 3), ("Finalized", 1), ("Cancelled", 1), ("Incomplete", 1),
    ]  # fmt: skip
    one_station = view(*found, query=WeighingsQuery(station="scale-2"))
    assert (one_station.total, one_station.matching, len(one_station.rows)) == (1, 1, 1)
    cancelled = view(*found, query=WeighingsQuery(state="cancelled"))
    assert [row.why for row in cancelled.rows] == ["left"]
    assert cancelled.total == 3


def test_a_first_weight_is_not_called_the_weight() -> None:
    open_one = view(weighing(final_weight_kg=None, state="created"))
    assert open_one.rows[0].weight == "2.00"
    assert "first weight" in look.part("weighing_list.html", "weighings", open_one)
    assert open_one.spread is None


def test_captured_first_arrived_second_in_the_companys_time() -> None:
    row = view(weighing(received_at=NOW + timedelta(hours=9))).rows[0]
    assert (row.captured, row.arrived) == ("11:00:00", "arrived 21:00:00")
    another_day = view(weighing(received_at=NOW + timedelta(days=2))).rows[0]
    assert another_day.arrived == "arrived 17 Nov 12:00"


def test_a_picture_is_shown_when_it_is_here() -> None:
    assert (view(weighing(), here=[UUID(int=9)]).rows[0].picture or fail()).here
    assert not (view(weighing()).rows[0].picture or fail()).here
    assert view(weighing(media_ids=())).rows[0].picture is None


def fail() -> Any:
    raise AssertionError


def test_uniformity_and_cv() -> None:
    found = spreads.spread([2.0, 2.0, 2.0, 3.0])
    assert found is not None
    assert (found.count, found.mean_kg) == (4, 2.25)
    assert found.uniformity_percent == 0
    assert found.cv_percent == pytest.approx(22.22, abs=0.01)
    assert spreads.spread([]) is None
    assert (spreads.spread([2.0]) or fail()).cv_percent is None
    assert (spreads.spread([2.0]) or fail()).uniformity_percent == 100


def test_histogram_has_ticks_a_mean_and_the_band_of_the_breed_standard() -> None:
    found = spreads.spread([2.0, 2.1, 2.2, 2.6], target_kg=2.3) or fail()
    ticks = found.ticks
    assert ticks[0].x == 0
    assert 2 <= len(ticks) <= spreads.MAX_TICKS
    assert 0 < found.x(found.mean_kg) < 100
    low, high = found.target_band or fail()
    assert low == pytest.approx(found.x(2.07))
    assert high == pytest.approx(found.x(2.53))
    assert (spreads.spread([2.0], target_kg=9.0) or fail()).target_band is None


def test_target_is_shown_for_one_barn_only() -> None:
    targets = {("f", "b"): 2.3}
    one = weighings.view(
        COMPANY, [weighing()], query=WeighingsQuery(), here=(), last_at=None, now=NOW,
        targets=targets,
    )  # fmt: skip
    assert (one.spread or fail()).target_kg == 2.3
    two = weighings.view(
        COMPANY, [weighing(), weighing(2, barn_id="c")], query=WeighingsQuery(), here=(),
        last_at=None, now=NOW, targets=targets,
    )  # fmt: skip
    assert (two.spread or fail()).target_kg is None


def test_estimate_is_shown_beside_the_weight_of_the_scale_if_there_is_one() -> None:
    def page(estimate: Estimate | None) -> str:
        detail = weighings.detail(
            COMPANY, weighing(), [], here=(), image=1, before=None, after=None, now=NOW,
            estimate=estimate,
        )  # fmt: skip
        return look.part("weighing_detail.html", "parts", detail)

    assert "Estimate" not in page(None)
    shown = page(
        Estimate(
            inference_result_id=UUID(int=1),
            predicted_weight_kg=2.44, confidence=0.9, model_version="m-1", low_kg=2.3, high_kg=2.6,
            n_train=40, cv_mape=0.041, baseline_mape=0.087, sessions=30, mape=0.05, coverage=0.93,
        )
    )  # fmt: skip
    assert all(text in shown for text in ("2.44", "2.30", "2.60", "90", "m-1", "8.7", "93"))
    silent = Estimate(
        inference_result_id=UUID(int=2), predicted_weight_kg=None, confidence=0.0,
        model_version="m-1", reason="shadow",
        is_shadow=True, n_train=12, cv_mape=0.09, baseline_mape=0.087,
    )  # fmt: skip
    assert "No estimate: the model is tried out" in page(silent)
    assert "not used until" in page(silent)


@given(st.lists(st.floats(spreads.MIN_WEIGHT_KG, kinds.MAX_WEIGHT_KG), min_size=1, max_size=60))
def test_every_weight_is_in_one_bar(weights: list[float]) -> None:
    bars = (spreads.spread(weights) or fail()).bars
    assert sum(bar.count for bar in bars) == len(weights)
    assert 1 <= len(bars) <= spreads.MAX_BARS + 2
    slack = max(weights) * 1e-6
    assert bars[0].low <= min(weights) + slack
    assert max(weights) < bars[-1].high + slack


def test_a_weight_on_the_edge_of_a_bar_is_in_the_bar_that_begins_there() -> None:
    bars = (spreads.spread([2.0, 2.3, 2.6]) or fail()).bars
    assert [(round(bar.low, 3), bar.count) for bar in bars if bar.count] == [
        (2.0, 1), (2.3, 1), (2.6, 1),
    ]  # fmt: skip


def test_steps_go_through_images_and_then_to_the_next_weighing() -> None:
    two = weighing(media_ids=(UUID(int=8), UUID(int=9)))

    def at(image: int) -> tuple[str | None, str | None]:
        found = weighings.detail(
            COMPANY, two, [], here=(), image=image, before=None, after=UUID(int=5), now=NOW
        )
        return found.previous, found.following

    here = f"/weighings/{two.session_id}"
    assert at(1) == (None, f"{here}?image=2")
    assert at(2) == (here, f"/weighings/{UUID(int=5)}")
    assert at(99) == at(2)


def test_names_of_devices_are_escaped() -> None:
    evil = "<script>alert(1)</script>"
    found = weighing(state="cancelled", cancel_reason=evil, batch_id=evil, device_id=evil)
    detail = weighings.detail(
        COMPANY, found, [], here=(), image=1, before=None, after=None, now=NOW
    )
    for page in (
        look.render("weighings.html", view=view(found), csrf="c", choices=[], nav=[]),
        look.render("weighing.html", view=detail, csrf="c", choices=[], nav=[]),
    ):
        assert evil not in page
        assert "&lt;script&gt;" in page


def test_the_fragment_is_part_of_the_page() -> None:
    found = view(weighing())
    page = look.render("weighings.html", view=found, csrf="c", choices=[], nav=[])
    assert look.part("weighing_list.html", "weighings", found).strip() in page


def test_an_address_keeps_what_was_chosen() -> None:
    given = {"day": "2026-11-15", "station": "scale-1", "page": "2"}
    query = DayFilter.model_validate(given).query()
    assert query.address(state="INCOMPLETE", page=1) == (
        "/weighings?day=2026-11-15&station=scale-1&state=INCOMPLETE"
    )
    assert DayFilter.model_validate({"state": "incomplete"}).state == "INCOMPLETE"


@pytest.mark.parametrize("given", [("day", "x"), ("page", "0"), ("state", "lost"), ("who", "me")])
def test_invalid_address_names_the_wrong_parameter(given: tuple[str, str]) -> None:
    with pytest.raises(ValidationError) as wrong:
        DayFilter.model_validate(dict([given]))
    assert problems(wrong.value)[0][0] == given[0]


@pytest.mark.parametrize("odd", [1e308, 1.7e308, 5e-324, float("nan"), float("inf"), -1.0])
def test_impossible_weights_are_left_out_of_the_spread(odd: float) -> None:
    assert spreads.spread([odd]) is None
    assert spreads.spread([odd, 70.0, odd, 72.0]) == spreads.spread([70.0, 72.0])

"""Rendered dishes of known growth: the change that is measured, the curve, and the forecast."""

import random
import statistics

import pytest
from PIL import Image

from farmiq.farm.vision.dishes import change, curve
from farmiq.farm.vision.dishes.change import Reference
from farmiq.farm.vision.dishes.curve import Forecast, Measurement, NotEnoughDataError
from farmiq.lab.simulate.dishes import Dish
from tests.unit.farm.test_vision_monitor import as_file

DAYS = (3.0, 7.0, 10.0, 14.0)


def first(dish: Dish) -> Reference:
    measured = change.measure(dish.render(0.0), None)
    assert measured.reference is not None, measured.problem
    assert (measured.change, measured.quality) == (0.0, 1.0)
    return measured.reference


def test_change_of_rendered_dishes_is_measured_within_three_hundredths() -> None:
    errors = []
    for seed in ("1", "2", "3", "4", "6", "7"):
        dish = Dish(seed)
        reference = first(dish)
        for number, day in enumerate(DAYS, start=1):
            measured = change.measure(dish.render(day, number=number), reference)
            assert measured.change is not None, measured.problem
            assert measured.quality > 0.5
            errors.append(abs(measured.change - dish.covered(day)))
    assert statistics.fmean(errors) <= 0.03
    assert max(errors) < 0.08


def test_dish_is_found_where_it_is() -> None:
    dish = Dish("3")
    circle = first(dish).circle
    x, y, radius = dish.circle
    assert circle.x == pytest.approx(x, abs=0.01)
    assert circle.y == pytest.approx(y, abs=0.01)
    assert circle.radius == pytest.approx(radius, rel=0.06)


def test_change_goes_back_to_nothing_if_an_older_image_comes_late() -> None:
    dish = Dish("3")
    late = change.measure(dish.render(9.0, number=3), None).reference
    assert late is not None
    earlier = change.measure(dish.render(0.2, number=4), late)
    assert earlier.change == pytest.approx(-dish.covered(9.0), abs=0.06)


def test_image_that_says_nothing_of_the_dish_has_a_reason_and_no_change() -> None:
    dish = Dish("3")
    reference = first(dish)
    elsewhere = Dish("7").render(1.0, number=1)
    frames = [Image.new("RGB", (320, 240), (shade, 90, 90)) for shade in (0, 90)]
    for data, why in (
        (b"", "not readable"),
        (dish.render(1.0)[:700], "not readable"),
        (as_file(Image.new("RGB", (40, 30))), "too small"),
        (as_file(Image.new("RGB", (300, 300))), "another size"),
        (as_file(Image.new("RGB", (320, 240))), "around the dish"),
        (as_file(dish.image(0.0).point([level // 5 for level in range(256)] * 3)), "the light is"),
        (as_file(frames[0], "PNG", save_all=True, append_images=frames[1:]), "animated"),
        (elsewhere, "around the dish"),
    ):
        measured = change.measure(data, reference)
        assert measured.change is None
        assert why in (measured.problem or ""), (why, measured.problem)
    plain = as_file(Image.new("RGB", (320, 240), (120, 110, 90)))
    assert "no dish found" in (change.measure(plain, None).problem or "")
    assert change.measure(plain, None).reference is None


def test_curve_never_falls_and_one_wrong_image_does_not_bend_it() -> None:
    changes = [0.0, 0.02, 0.05, 0.5, 0.08, 0.11, 0.09, 0.15, 0.2]
    points = curve.curve([Measurement(day, value) for day, value in enumerate(changes)])
    levels = [point.change for point in points]
    assert levels == sorted(levels)
    assert max(levels) == 0.2
    assert levels[3] < 0.15
    poor = [*(Measurement(day, 0.1 * day) for day in range(3)), Measurement(3, 0.9, quality=0.2)]
    assert [point.day for point in curve.curve(poor)] == [0, 1, 2]


def test_worked_example_of_the_documents_gives_its_forecast() -> None:
    changes = (0.02, 0.04, 0.06, 0.09, 0.12, 0.15, 0.19)
    measured = [Measurement(day, value) for day, value in enumerate(changes, start=2)]
    found = curve.forecast(measured, 0.3)
    assert (round(found.earliest_day, 1), round(found.day, 1)) == (10.0, 11.0)
    assert round(found.latest_day or 0, 1) == 12.6
    assert curve.forecast(measured, 0.15) == Forecast(7, 7, 7, is_passed=True)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([], "nothing was measured"),
        ([0.0] * 20, "0 measurements of growth"),
        ([0.0, 0.03, 0.04, 0.05], "3 measurements of growth"),
        ([0.05, 0.051, 0.05, 0.049, 0.05, 0.051, 0.05], "do not show that it grows"),
        ([0.021 + 0.002 * day for day in range(8)], "not reached by then"),
    ],
)
def test_too_little_data_is_no_forecast_but_a_reason(changes: list[float], why: str) -> None:
    with pytest.raises(NotEnoughDataError, match=why):
        curve.forecast([Measurement(day, value) for day, value in enumerate(changes)], 0.5)


def test_band_of_the_forecast_holds_the_truth_in_70_to_90_percent_of_series() -> None:
    """Errors of a measurement as rendered dishes have them, and a wrong image in twenty."""
    inside = []
    for seed in range(140):
        chance = random.Random(seed)
        dish, threshold = Dish(f"forecast {seed}"), chance.choice((0.2, 0.3, 0.5))
        truth = dish.day_of(threshold)
        if truth is None:
            continue
        known_until = truth * chance.uniform(0.5, 0.95)
        measured = [
            Measurement(
                number / 3,
                dish.covered(number / 3)
                + chance.gauss(0, 0.01)
                + (chance.uniform(-0.1, 0.15) if chance.random() < 0.05 else 0),
                chance.uniform(0.4, 1),
            )
            for number in range(int(known_until * 3))
        ]
        try:
            found = curve.forecast(measured, threshold)
        except NotEnoughDataError:
            continue
        latest = found.latest_day or float("inf")
        inside.append(not found.is_passed and found.earliest_day <= truth <= latest)
    assert len(inside) > 60
    assert 0.7 <= statistics.fmean(inside) <= 0.9

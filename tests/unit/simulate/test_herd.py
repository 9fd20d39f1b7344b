"""The herd grows, comes by day, and does the same again; each picture has bytes of its own."""

import hashlib
import io
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageChops

from farmiq.lab.simulate import herd, pictures, weighings
from farmiq.lab.simulate.herd import Animal
from farmiq.lab.simulate.weighings import Session, Visited

HERD = herd.herd(seed=1, count=50, age_days=120)
AT = datetime(2026, 11, 15, 7, tzinfo=UTC)


@given(st.floats(0, 400), st.floats(0, 30))
def test_animals_only_grow(age_days: float, days: float) -> None:
    animal = Animal(1, age_days, 1.0)
    now, later = herd.weight_kg(animal, day=0), herd.weight_kg(animal, day=days)
    assert herd.BIRTH_KG <= now <= later <= herd.MATURE_KG


def test_weights_are_those_of_pigs() -> None:
    assert herd.weight_kg(Animal(1, 70, 1.0), day=0) == pytest.approx(26, abs=2)
    assert herd.weight_kg(Animal(1, 160, 1.0), day=0) == pytest.approx(107, abs=2)


def test_most_come_in_the_morning_and_in_the_afternoon() -> None:
    assert herd.bustle(7) > 3 * herd.bustle(2)
    assert herd.bustle(17) > 2 * herd.bustle(12)


@given(st.integers(0, 10_000))
def test_the_same_herd_does_the_same_again(number: int) -> None:
    visits = [herd.visit(HERD, number, seed=1, day=0.3, gap_s=10, stands_s=5) for _ in range(2)]
    assert visits[0] == visits[1]
    assert 0 < visits[0].gap_s < 100
    assert 4 <= visits[0].stands_s <= 6


def test_some_visits_of_a_herd_are_not_weighable() -> None:
    manners = [
        herd.visit(HERD, number, seed=1, day=0.3, gap_s=10, stands_s=5).manner
        for number in range(500)
    ]
    assert 0.75 < manners.count("stands") / 500 < 0.92
    assert {"leaves", "restless", "pair"} <= set(manners)


def test_who_has_left_is_neither_on_the_scale_nor_in_its_picture() -> None:
    visits = [
        herd.visit(HERD, number, seed=1, day=0.3, gap_s=10, stands_s=5) for number in range(200)
    ]
    for visit in visits:
        for after_s in (0.2, 2.0, 4.0):
            empty = herd.on_scale_kg(visit, after_s=after_s, chance=0.5) == 0
            assert herd.has_left(visit, after_s=after_s) == empty


def test_pictures_differ_and_grow_with_the_weight() -> None:
    taken = [
        pictures.render(station_id="s-1", number=number, at=AT, animal=7, weight_kg=60.0)
        for number in range(5)
    ]
    assert len({hashlib.sha256(each).digest() for each in taken}) == 5
    empty, light, heavy = (
        pictures.render(station_id="s-1", number=1, at=AT, animal=animal, weight_kg=weight)
        for animal, weight in ((None, 0.0), (0, 20.0), (0, 120.0))
    )
    assert _differ(heavy, empty) > 2 * _differ(light, empty) > 0


def _differ(one: bytes, other: bytes) -> int:
    """How many pixels are another tone."""
    with Image.open(io.BytesIO(one)) as left, Image.open(io.BytesIO(other)) as right:
        tones = ImageChops.difference(left.convert("L"), right.convert("L")).tobytes()
    return sum(tone > 40 for tone in tones)


def visited(number: int, *, due: bool = True) -> Visited:
    return Visited(
        visit_id=f"v{number}",
        station_id="s-1",
        animal=number,
        weight_kg=60.0 + number,
        due=due,
        sha256s=(f"a{number}", f"b{number}"),
    )


def session(number: int, *, name: str = "x", **other: object) -> Session:
    given = {
        "session_id": f"{name}{number}",
        "status": "finalized",
        "weight_kg": 60.0 + number,
        "image_count": 2,
        "sha256s": (f"a{number}", f"b{number}"),
        **other,
    }
    return Session(**given)  # type: ignore[arg-type]


def test_every_kind_of_violation_is_found() -> None:
    visits = [visited(number, due=number != 3) for number in range(8)]
    found = weighings.compare(
        visits,
        [
            session(0),
            session(1),
            session(1, name="y"),  # twice
            # 2 is lost; 3 was not due
            session(4, weight_kg=80.0),
            session(5, sha256s=("a5",)),  # a picture is missing
            session(6, sha256s=("a6", "zz"), image_count=2),  # nobody took zz
            session(7, status="cancelled"),
        ],
    )
    assert found.lost == ("v2", "v7")
    assert found.twice == ("v1",)
    assert found.changed == ("x4", "x5")
    assert found.invented == ("x6",)
    assert not found.clean
    assert weighings.compare(visits[:2], [session(0), session(1)]).clean
    assert weighings.doubled(["a", "b", "a"]) == ("a",)

"""Images without a weighing: light, activity, occupancy, and whether the view is the same."""

import io
import random
from collections.abc import Iterable

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from farmiq.farm.vision import monitor
from farmiq.farm.vision.monitor import Observation

ANIMAL_SHARE = 3.1416 * 50 * 30 / (640 * 480)


def pen(
    number: int, *, animals: int = 5, light: float = 1.0, shift_px: int = 0, blur_px: int = 0
) -> bytes:
    """A JPEG of the same pen, with animals elsewhere in every image."""
    fixed, moving = random.Random("pen"), random.Random(number)
    image = Image.new("RGB", (640, 480), (120, 110, 90))
    draw = ImageDraw.Draw(image)
    for _ in range(25):
        x, y, shade = fixed.randrange(640), fixed.randrange(480), fixed.randrange(40, 220)
        draw.rectangle((x, y, x + fixed.randrange(20, 120), y + 40), fill=(shade, shade, shade))
    for _ in range(animals):
        x, y = moving.randrange(50, 590), moving.randrange(30, 450)
        draw.ellipse((x - 50, y - 30, x + 50, y + 30), fill=(230, 190, 180))
    if shift_px:
        sideways = (1, 0, shift_px, 0, 1, 0)
        image = image.transform(image.size, Image.Transform.AFFINE, sideways)
    if blur_px:
        image = image.filter(ImageFilter.GaussianBlur(blur_px))
    grain = np.random.default_rng(number).normal(0, 6, (480, 640, 3))
    levels = np.clip(np.asarray(image) * light + grain, 0, 255)
    return as_file(Image.fromarray(levels.astype(np.uint8)))


def as_file(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def watched(images: Iterable[bytes], state: bytes | None = None) -> list[Observation]:
    seen = []
    for image in images:
        seen.append(monitor.monitor(image, state))
        state = seen[-1].state
    return seen


@pytest.fixture(scope="module")
def known() -> list[Observation]:
    """A camera that has learned its view."""
    return watched(pen(number) for number in range(24))


def test_camera_that_has_learned_its_view_tells_light_activity_and_occupancy(
    known: list[Observation],
) -> None:
    assert known[0].activity is None
    assert {each.occupancy for each in known[: monitor.LEARNED_AFTER]} == {None}
    assert [each.changed_from for each in known].count("learning") == 1
    assert known[-1].view == "ok"
    empty, same, full = watched(
        (pen(100, animals=0), pen(101, animals=0), pen(102, animals=18)), known[-1].state
    )
    assert empty.occupancy is not None
    assert full.occupancy is not None
    assert known[-1].occupancy is not None
    assert known[-1].occupancy == pytest.approx(5 * ANIMAL_SHARE, abs=0.05)
    assert empty.occupancy < 0.05 < known[-1].occupancy < full.occupancy
    assert same.activity == pytest.approx(0, abs=0.01)
    assert full.activity is not None
    assert full.activity > 0.1


def test_less_light_is_told_as_light_and_not_as_activity(known: list[Observation]) -> None:
    bright, dim = watched((pen(50, animals=2), pen(50, animals=2, light=0.5)), known[-1].state)
    assert dim.light == pytest.approx(0.5 * (bright.light or 0), rel=0.03)
    assert dim.activity == pytest.approx(0, abs=0.02)
    assert dim.occupancy == pytest.approx(bright.occupancy, abs=0.02)


@pytest.mark.parametrize(
    ("wrong", "view"), [({"shift_px": 25}, "moved"), ({"blur_px": 14}, "dirty")]
)
def test_moved_or_dirty_camera_is_told_once_and_its_end_too(
    known: list[Observation], wrong: dict[str, int], view: str
) -> None:
    seen = watched((pen(60 + n, **wrong) for n in range(5)), known[-1].state)
    assert [each.view for each in seen] == ["ok", "ok", view, view, view]
    assert [each.changed_from for each in seen] == [None, None, "ok", None, None]
    assert seen[-1].occupancy is None
    after = watched((pen(70 + n) for n in range(3)), seen[-1].state)
    assert after[-1].view == "ok"
    assert after[-1].changed_from == view


def test_one_animal_before_the_lens_changes_no_view(known: list[Observation]) -> None:
    seen = watched((pen(80, animals=400), pen(81)), known[-1].state)
    assert [each.changed_from for each in seen] == [None, None]


def test_camera_that_stays_moved_learns_its_new_view(known: list[Observation]) -> None:
    state = known[-1].state
    moved = pen(90, shift_px=40)
    seen = watched([moved] * (monitor.RELEARN_AFTER + monitor.LEARNED_AFTER + 2), state)
    assert [each.view for each in seen if each.changed_from] == ["moved", "learning", "ok"]


def test_night_is_dark_and_the_morning_is_compared_with_no_image_before_it(
    known: list[Observation],
) -> None:
    seen = watched([*(pen(n, light=0.02) for n in range(3)), pen(10)], known[-1].state)
    assert [each.view for each in seen] == ["ok", "ok", "dark", "dark"]
    assert [each.activity for each in seen] == [None] * 4
    assert seen[-1].occupancy is not None


def test_bad_images_are_observations_with_a_reason_and_leave_the_state(
    known: list[Observation],
) -> None:
    frames = [Image.new("RGB", (60, 40), (shade, 90, 90)) for shade in (0, 90)]
    bad = (
        b"", b"\xff\xd8\xff", pen(1)[:900], b"GIF89a" + bytes(90),
        as_file(frames[0], "PNG", save_all=True, append_images=frames[1:]),
        as_file(frames[0], "WEBP", save_all=True, append_images=frames[1:]),
    )  # fmt: skip
    for data in bad:
        seen = monitor.monitor(data, known[-1].state)
        assert seen.problem
        assert (seen.light, seen.view, seen.state) == (None, "ok", known[-1].state)
    assert "animated" in (monitor.monitor(bad[-1]).problem or "")
    for shade, view in ((0, "dark"), (255, "bright")):
        plain = as_file(Image.new("RGB", (640, 480), (shade, shade, shade)))
        assert monitor.monitor(plain).view == view
    assert monitor.monitor(pen(1), b"no state of ours").view == "learning"

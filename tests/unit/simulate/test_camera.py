"""The firmware of a camera: whatever is lost on the way, an image is delivered or kept."""

import inspect
import itertools
import json
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.cli import simulated_cameras
from farmiq.lab.demo import run as demo
from farmiq.lab.simulate import camera, camera_faults, camera_wire, fleet
from farmiq.lab.simulate.camera import (
    AckOk,
    Acts,
    Camera,
    Captured,
    CaptureImage,
    Chunk,
    Delete,
    Event,
    Firmware,
    Frame,
    Hello,
    Image,
    Metadata,
    Missing,
    NextWake,
    Passed,
    Reading,
    SendImage,
    Sent,
    Shoot,
    Sleep,
    Woke,
)
from farmiq.lab.simulate.camera_faults import Faults
from farmiq.lab.simulate.camera_wire import Speech

AT = datetime(2026, 11, 15, 7, tzinfo=UTC)
READING = Reading(24.0, 60.0, 1010.0, 50_000.0, 4.1, -60)
EVENTS = (
    st.just(Sent()) | st.just(Passed()) | st.just(SendImage("IMG_001.jpg")) | st.just(NextWake("x"))
    | st.builds(AckOk, st.sampled_from([None, "IMG_001.jpg", "other"]), st.none())
    | st.builds(Missing, st.none(), st.lists(st.integers(-2, 9), max_size=4).map(tuple))
)  # fmt: skip


def image(number: int, *, size: int = 5000, name: str | None = None) -> Image:
    at = AT + timedelta(seconds=number)
    return Image(number, name or f"IMG_{number:03d}.jpg", at, size, 1024, READING)


class Counterpart:
    """A perfect other side: asks for what is missing, acknowledges what is whole."""

    def __init__(self) -> None:
        self.announced: Image | None = None
        self.got: dict[int, set[int]] = {}
        self.hellos: list[int] = []

    def hear(self, frames: Acts) -> None:
        for frame in frames:
            if isinstance(frame, Hello):
                self.hellos.append(frame.pending)
            elif isinstance(frame, Metadata):
                self.announced = frame.image
                self.got.setdefault(frame.image.number, set())
            elif isinstance(frame, Chunk) and frame.image == self.announced:
                self.got[frame.image.number].add(frame.place)

    def say(self) -> Event:
        if self.announced is None:
            return Passed()
        lacking = set(range(self.announced.total_chunks)) - self.got[self.announced.number]
        if lacking:
            return Missing(self.announced.name, tuple(sorted(lacking)))
        return AckOk(self.announced.name, "2026-11-16T07:00:00Z")


def wake(
    asleep: Camera, new: Image | None, other: Counterpart, lose: Callable[[Acts], Acts]
) -> tuple[Camera, list[Image]]:
    """One wake to its end; what was acknowledged."""
    at, gone = 0.0, []
    state, acts = camera.step(asleep, Woke(new), at=at)
    while state.phase != "asleep":
        other.hear(lose(acts))
        at += 1
        event: Event = Sent() if state.phase == "sending" else Passed()
        if state.phase == "waiting":
            event = other.say()
        state, acts = camera.step(state, event, at=at)
        gone += [act.image for act in acts if isinstance(act, Delete)]
    return state, gone


def air(faults: Faults) -> Callable[[Acts], Acts]:
    passes = itertools.count()

    def lose(acts: Acts) -> Acts:
        frames = [act for act in acts if isinstance(act, (Hello, Metadata, Chunk))]
        return tuple(camera_faults.through_air(frames, faults, next(passes)))

    return lose


@given(st.lists(st.floats(0, 0.8), min_size=1, max_size=4), st.integers(1, 20_000), st.integers())
def test_any_loss_ends_with_delivery(rates: list[float], size: int, seed: int) -> None:
    """With an other side that never tires, and a battery that lasts."""
    other, state = Counterpart(), Camera(Firmware(awake_s=1e9))
    for number, loss in enumerate(rates):
        new = image(number, size=size)
        state, gone = wake(state, new, other, air(Faults(seed=seed, loss=loss, duplicates=0.2)))
        assert gone == [new]
    assert state.card == ()
    assert other.hellos == [0] * len(rates)


def test_unacknowledged_image_is_sent_at_the_next_wake() -> None:
    deaf, other = Counterpart(), Counterpart()
    state, gone = wake(Camera(), image(1), deaf, lambda _: ())
    assert (gone, state.card) == ([], (image(1),))
    state, gone = wake(state, image(2), other, lambda acts: acts)
    assert gone == [image(2), image(1)]
    assert other.hellos == [1]


def test_camera_that_does_not_volunteer_waits_for_send_image() -> None:
    strict = Camera(Firmware(volunteers=False), card=(image(1, name="a"), image(2, name="b")))
    state, acts = camera.step(strict, Woke(None), at=0)
    assert acts == (Hello(2),)
    assert camera.step(state, Passed(), at=60)[1] == (Sleep(None),)
    state, acts = camera.step(state, SendImage("b"), at=0.1)
    state, acts = camera.step(state, Passed(), at=1)
    assert acts[0] == Metadata(image(2, name="b"))


def test_of_two_images_of_one_name_the_older_is_sent_first() -> None:
    older, newer = image(1, name="IMG_001.jpg"), image(2, name="IMG_001.jpg")
    state, _ = camera.step(Camera(card=(older, newer)), Woke(None), at=0)
    state, _ = camera.step(state, SendImage("IMG_001.jpg"), at=0)
    assert camera.step(state, Passed(), at=1)[1][0] == Metadata(older)


def test_an_answer_that_comes_twice_does_not_count_for_the_next_image_of_that_name() -> None:
    older, newer = image(1, name="IMG_001.jpg"), image(2, name="IMG_001.jpg")
    state, _ = camera.step(Camera(card=(older,)), Woke(newer), at=0)
    state, _ = camera.step(state, Sent(), at=0)
    state, acts = camera.step(state, AckOk("IMG_001.jpg", None), at=1)
    assert acts == (Delete(newer),)
    state, acts = camera.step(state, AckOk("IMG_001.jpg", None), at=1.1)
    assert (acts, state.card) == ((), (older,))


@given(st.lists(EVENTS, max_size=30))
def test_only_an_acknowledgement_of_what_was_sent_deletes(events: list[Event]) -> None:
    first, second = image(1, name="IMG_001.jpg"), image(2, name="IMG_001.jpg")
    state, _ = camera.step(Camera(card=(first,)), Woke(second), at=0)
    for at, event in enumerate(events, start=1):
        before = state
        state, acts = camera.step(state, event, at=at)
        gone = [act.image for act in acts if isinstance(act, Delete)]
        assert set(before.card) - set(state.card) == set(gone)
        assert not gone or (
            isinstance(event, AckOk) and before.phase == "waiting" and gone == [before.current]
        )


def test_silence_is_answered_with_another_try_and_then_with_sleep() -> None:
    state, acts = camera.step(Camera(Firmware(answer_s=5, tries=2)), Woke(image(1)), at=0)
    state, _ = camera.step(state, Sent(), at=1)
    state, again = camera.step(state, Passed(), at=6)
    assert again == acts[1:]
    state, _ = camera.step(state, Sent(), at=7)
    state, acts = camera.step(state, Passed(), at=12)
    state, acts = camera.step(state, Passed(), at=13)
    assert (acts, state.card) == ((Sleep(None),), (image(1),))


def test_a_battery_lasts_only_so_long() -> None:
    state, _ = camera.step(Camera(Firmware(awake_s=30, answer_s=100)), Woke(image(1)), at=0)
    state, _ = camera.step(state, Sent(), at=1)
    assert camera.step(state, Passed(), at=30)[1] == (Sleep(None),)


def test_camera_obeys_each_command() -> None:
    state, _ = camera.step(Camera(), Woke(image(1)), at=0)
    state, acts = camera.step(state, CaptureImage(), at=0)
    assert acts == (Shoot(),)
    state, _ = camera.step(state, Captured(image(2)), at=0)
    state, _ = camera.step(state, NextWake("2026-11-15T08:00:00Z"), at=0)
    state, _ = camera.step(state, Sent(), at=0)
    state, _ = camera.step(state, AckOk("IMG_001.jpg", None), at=0)
    state, acts = camera.step(state, Passed(), at=9)
    assert acts[0] == Metadata(image(2))
    state, _ = camera.step(state, Sent(), at=9)
    # Without a name it answers HELLO, and says nothing of an image.
    assert camera.step(state, AckOk(None, None), at=9) == (state, ())
    told = AckOk(image(2).name, None)
    assert camera.step(state, told, at=9)[1][-1] == Sleep("2026-11-15T08:00:00Z")


def test_camera_that_loses_power_keeps_its_card() -> None:
    state, _ = camera.step(Camera(card=(image(1),)), Woke(image(2)), at=0)
    assert camera.cut(state) == replace(
        Camera(card=(image(1), image(2))), tried=frozenset({2}), until=state.until,
        sleeps_at=state.sleeps_at,
    )  # fmt: skip


# --- the wire


def test_the_standard_dialect_is_that_of_004() -> None:
    speech = Speech("0200AABBCCDD", "standard", "array")
    assert camera_wire.encode(speech, Hello(3), b"") == (
        "device/0200AABBCCDD/status", b'{"alive":1,"pending_count":3}',
    )  # fmt: skip
    topic, raw = camera_wire.encode(speech, Metadata(image(1)), b"")
    said = json.loads(raw)
    assert topic == "device/0200AABBCCDD/data"
    assert (said["image_name"], said["total_chunks"]) == ("IMG_001.jpg", 5)
    assert said["captured_at"] == "2026-11-15T07:00:01Z"
    assert camera_wire.listens(speech) == ["device/0200AABBCCDD/ack", "device/0200AABBCCDD/cmd"]


def test_esp32cam_counts_from_one_and_miscounts() -> None:
    speech = Speech("0200AABBCCDD", "esp32cam")
    _, raw = camera_wire.encode(speech, Metadata(image(1, size=2048)), b"")
    assert json.loads(raw)["total_chunks_count"] == 3
    topic, raw = camera_wire.encode(speech, Chunk(image(1, size=2048), 1), bytes(1024) + b"\1\2")
    said = json.loads(raw)
    assert (topic, said["chunk_id"], said["payload"]) == ("ESP32CAM/0200AABBCCDD/data", 2, [1, 2])
    asked = b'{"device_id":"x","image_name":"IMG_001.jpg","missing_chunks":[1,2]}'
    assert camera_wire.decode(speech, asked) == Missing("IMG_001.jpg", (0, 1))
    acked = b'{"image_name":"a","ACK_OK":{"next_wake_time":"5:30PM"}}'
    assert camera_wire.decode(speech, acked) == AckOk("a", "5:30PM")


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b'{"image_name":"a","missing_chunks":[0,4]}', Missing("a", (0, 4))),
        (
            b'{"ACK_OK":true,"next_wake":"2026-01-01T00:00:00Z"}',
            AckOk(None, "2026-01-01T00:00:00Z"),
        ),
        (b'{"send_image":"a"}', SendImage("a")),
        (b'{"send_image":null}', SendImage(None)),
        (b'{"capture_image":true}', CaptureImage()),
        (b'{"next_wake":"x"}', NextWake("x")),
        (b"ACK", None),
        (b"[1]", None),
        (b"{}", None),
    ],
)
def test_camera_decodes_each_command_of_the_gateway(raw: bytes, told: Event | None) -> None:
    assert camera_wire.decode(Speech("02"), raw) == told


# --- the fleet and its faults


def test_the_same_seed_makes_the_same_fleet() -> None:
    faults = camera_faults.ALL
    one, two = (camera_faults.fleet(200, faults=faults) for _ in range(2))
    assert one == two
    assert len({kit.mac for kit in one}) == 200
    assert {kit.timezone for kit in one} == set(camera_faults.ZONES)
    assert {kit.speech.dialect for kit in one} == set(camera_wire.DIALECTS)
    standard = {kit.speech.encoding for kit in one if kit.speech.dialect == "standard"}
    assert standard == set(camera_wire.ENCODINGS)
    assert all(any(getattr(kit, name) for kit in one) for name in ("lost_clock", "loops"))


def test_a_fleet_from_the_command_line_is_not_the_demos() -> None:
    seed = inspect.signature(simulated_cameras.cameras).parameters["seed"].default
    ours, theirs = (
        {kit.mac for kit in camera_faults.fleet(2000, faults=Faults(seed=each))}
        for each in (seed, demo.FLEET_SEED)
    )
    assert not ours & theirs


@given(st.integers(), st.floats(0, 1))
def test_frames_through_the_air_are_lost_or_doubled_but_never_invented(
    seed: int, loss: float
) -> None:
    frames: list[Frame] = [Hello(0), Metadata(image(1))]
    frames += [Chunk(image(1), place) for place in range(5)]
    faults = Faults(seed=seed, loss=loss, duplicates=0.5, reorder=0.5)
    arrived = camera_faults.through_air(frames, faults, "a wake")
    assert arrived[:2] == frames[:2]
    assert set(arrived) <= set(frames)
    assert max(map(arrived.count, arrived)) <= 2
    if loss == 0:
        assert set(arrived) == set(frames)


def test_a_lost_clock_began_in_1970_and_goes_on() -> None:
    kit = replace(camera_faults.fleet(1, faults=Faults())[0], lost_clock=True)
    said = camera_faults.clock(kit, now=AT + timedelta(minutes=5), powered_at=AT)
    assert said == datetime(1970, 1, 1, 0, 5, tzinfo=UTC)


def test_batteries_run_low() -> None:
    kit = camera_faults.fleet(1, faults=Faults(weak=1.0))[0]
    volts = deque(camera_faults.voltage(kit, wakes) for wakes in range(20))
    assert sorted(volts, reverse=True) == list(volts)
    assert (volts[0], volts[-1]) == (4.2, 3.0)


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        # It is 14:00 in Bangkok: a time of day is the camera's own, and the next one.
        ("2:05PM", "2025-01-15T07:05:00Z"),
        ("1:59PM", "2025-01-16T06:59:00Z"),
        ("12:00AM", "2025-01-15T17:00:00Z"),
        ("2026-01-01T00:00:00", None),
        ("25:00PM", None),
        ("soon", None),
        (None, None),
    ],
)
def test_next_wake_is_read_from_an_instant_or_a_time_of_day(
    said: str | None, at: str | None
) -> None:
    now = datetime(2025, 1, 15, 7, tzinfo=UTC)
    found = fleet.instant(said, now=now, zone=ZoneInfo("Asia/Bangkok"))
    assert found == (datetime.fromisoformat(at) if at else None)

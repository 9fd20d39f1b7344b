"""The weighing as a whole: serial cable in, HTTP camera in, rows of the buffer out."""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farmiq.device.buffer import store
from farmiq.device.capture import camera, indicator, scale, stable, weighing
from farmiq.device.capture.folder import DONE, Folder
from farmiq.device.capture.indicator import Reading
from farmiq.device.capture.scale import Received, Scale
from farmiq.device.capture.station import CALM_S, Station
from farmiq.messages import weighvision
from tests.integration.device import barn
from tests.integration.device.barn import Cable, Snapshots
from tests.integration.device.pictures import picture
from tests.support.until import until

LIMITS = stable.Limits(window_s=0.3, again_s=0.3, settle_within_s=5.0, gap_s=2.0)


@pytest.fixture
async def snapshots() -> AsyncIterator[Snapshots]:
    async with barn.snapshots() as there:
        yield there


@contextlib.asynccontextmanager
async def standing(tmp_path: Path, url: str, **limits: float) -> AsyncIterator[Station]:
    eye = camera.camera(url, timeout_s=60.0)
    async with barn.recorder(tmp_path / "buffer", **limits) as book:
        yield Station(book, eye, limits=LIMITS, batch_id="batch-7")
    await eye.close()


async def hear(station: Station, weights: Iterable[float], *, every_s: float = 0.05) -> None:
    """As fast as the recorder keeps up; the scale's own clock says how long it took."""
    for weight in weights:
        now = next(_clock) * every_s
        await station.handle(Received(now, b"", Reading(weight, stable=True)))
        if taking := [task for task in (station._taking, station._empty) if task is not None]:
            await asyncio.wait(taking)


_clock = itertools.count(1)


@pytest.mark.req("WV-01", "WV-05", "WV-10", "WV-11", "WV-12")
async def test_animal_over_a_real_cable_becomes_a_session(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    cable = Cable(tmp_path / "ttyUSB0")
    there = Scale(scale.port(str(cable.path)), indicator.parser("and"))
    async with standing(tmp_path, snapshots.url) as station:
        station.rules = weighing.Rules(weights=2, pictures=2)
        # A real clock: however slow the machine is, this animal is not given up.
        station.limits = replace(LIMITS, settle_within_s=60.0, gap_s=60.0)
        weighs = asyncio.create_task(station.weigh(there))
        await until(lambda: there.connections)

        async def play(weight_kg: float, done: str) -> None:
            async def said() -> bool:
                cable.weigh(weight_kg)
                return station.watched.phase == done

            await until(said)

        await play(0.0, "empty")
        await play(61.5, "steady")

        async def closed() -> list[Any]:
            cable.weigh(61.5)
            return await barn.rows(
                station.recorder, "select session_id from sessions where state = 'closed'"
            )

        ((session_id,),) = await until(closed)
        assert station.recorder.health.scale_ok
        assert station.recorder.health.camera_ok
        await play(0.0, "empty")
        weighs.cancel()
        await asyncio.gather(weighs, return_exceptions=True)
        images = await barn.rows(station.recorder, "select image_id, session_id from images")
        assert [each[1] for each in images] == [session_id, session_id]
        kept = [station.recorder.buffer.pictures.read(each[0]) for each in images]
        assert kept == snapshots.given
        sessions = await barn.rows(
            station.recorder, "select batch_id, state, images, final_weight_kg from sessions"
        )
        assert sessions == [("batch-7", "closed", 2, 61.5)]
        # The first event is there at once; the others wait for the pictures.
        events = await barn.rows(station.recorder, "select event_type from events order by seq")
        assert events[0] == ("weighvision.session.created",)


async def cancelled(station: Station) -> str:
    ((state, reason),) = await barn.rows(station.recorder, "select state, reason from sessions")
    assert state == "cancelled"
    return str(reason)


async def test_animal_that_leaves_too_early_is_a_cancelled_session(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    async with standing(tmp_path, snapshots.url) as station:
        moving = (60.0 + 5 * (number % 3) for number in range(60))
        await hear(station, itertools.chain([0.0] * 5, moving, [0.0] * 5))
        assert "before its weight was stable" in await cancelled(station)
        assert station.cancelled == 1
        assert not snapshots.given


async def test_animal_that_only_passes_makes_no_event(tmp_path: Path, snapshots: Snapshots) -> None:
    async with standing(tmp_path, snapshots.url) as station:
        moving = (60.0 + 5 * (number % 3) for number in range(20))
        await hear(station, itertools.chain([0.0] * 5, moving, [0.0] * 5))
        assert await barn.rows(station.recorder, "select 1 from events") == []
        assert station.current.passed == 1


async def test_camera_that_is_broken_cancels_and_keeps_the_weight(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    snapshots.failing = True
    async with standing(tmp_path, snapshots.url) as station:
        await hear(station, [0.0] * 5 + [70.0] * 40 + [0.0] * 5)
        assert "no picture: it answers 503" in await cancelled(station)
        assert station.recorder.health.camera_ok is False
        kinds = await barn.rows(station.recorder, "select event_type from events order by seq")
        assert kinds == [
            ("weighvision.session.created",),
            ("weighvision.weight.recorded",),
            ("weighvision.session.cancelled",),
        ]
        # The next animal finds it mended.
        snapshots.failing = False
        await hear(station, [0.0] * 5 + [71.0] * 60 + [0.0] * 5)
        assert station.finished == 1


async def test_second_animal_cancels_the_session(tmp_path: Path, snapshots: Snapshots) -> None:
    async with standing(tmp_path, snapshots.url) as station:
        station.rules = weighing.Rules(weights=9, pictures=1)
        await hear(station, [0.0] * 5 + [60.0] * 12 + [125.0] * 30 + [0.0] * 5)
        assert "a second animal" in await cancelled(station)


async def test_full_buffer_refuses_sessions_and_the_station_goes_on(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    async with standing(tmp_path, snapshots.url, disk_reserve_bytes=2**62) as station:
        await hear(station, [0.0] * 5 + [60.0] * 60 + [0.0] * 5)
        assert station.recorder.full is not None
        assert await barn.rows(station.recorder, "select 1 from sessions") == []
        limits = replace(station.recorder.writer.limits, disk_reserve_bytes=0)
        station.recorder.writer = replace(station.recorder.writer, limits=limits)
        await hear(station, [0.0] * 5 + [60.0] * 60 + [0.0] * 5)
        assert station.finished == 1


async def test_late_picture_is_not_stored_for_the_next_animal(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    async with standing(tmp_path, snapshots.url) as station:
        snapshots.answers.clear()
        for weight in [0.0] * 5 + [60.0] * 8:
            now = next(_clock) * 0.05
            await station.handle(Received(now, b"", Reading(weight, stable=True)))
        assert station.current.phase == "reference"
        for _ in range(3):
            now = next(_clock) * 0.05
            await station.handle(Received(now, b"", Reading(0.0, stable=True)))
        assert station._taking is None
        assert station._shot is None
        assert "before there was a picture" in await cancelled(station)
        snapshots.answers.set()


async def test_empty_scale_is_photographed_once_in_a_while_and_never_with_somebody_near(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    """What the picture is for is known after a power cut, too."""
    loose = "select image_id from images where session_id is null order by id"
    # In samples of 0.05 s.
    calm, minute = [0.0] * int(CALM_S / 0.05 + 5), [0.0] * 1210
    async with standing(tmp_path, snapshots.url) as station:
        station.empty_every_s = 100.0
        await hear(station, calm)
        assert len(snapshots.given) == 1
        await hear(station, [60.0] * 4 + calm)
        assert await barn.rows(station.recorder, loose) == [], "who came may be in it"
        await hear(station, minute)
        assert len(await barn.rows(station.recorder, loose)) == 1
        await hear(station, minute + minute)
        assert len(await barn.rows(station.recorder, loose)) == 2
    async with barn.recorder(tmp_path / "buffer") as book:

        def upload(tx: store.Tx) -> None:
            image = store.next_image(tx, now_s=1e9, fresh_after_s=1e9)
            assert image is not None
            book.writer.uploaded(tx, image)

        for _ in range(2):
            await book.buffer.do(upload)
        told = [json.loads(row[0]) for row in await barn.rows(book, "select raw from events")]
    purposes = [event["payload"].get("purpose") for event in told]
    assert purposes == [weighvision.EMPTY_SCALE] * 2, "one that waited is of no other use"


@pytest.mark.req("WV-06", "WV-15")
async def test_scheduled_picture_goes_on_the_topic_that_fits(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    async with standing(tmp_path, snapshots.url) as station:
        station.sessions = False
        await station.photograph(with_weight=True)  # nobody is there
        await hear(station, [0.0] * 5 + [70.0] * 20)
        await station.photograph(with_weight=False)  # weights are off
        await station.photograph(with_weight=True)
        images = await barn.rows(station.recorder, "select session_id from images order by id")
        assert images[0] == images[1] == (None,)
        assert images[2][0] is not None
        sessions = await barn.rows(
            station.recorder, "select state, final_weight_kg, images from sessions"
        )
        assert sessions == [("closed", 70.0, 1)]


async def test_scheduled_picture_joins_the_session_that_is_open(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    async with standing(tmp_path, snapshots.url) as station:
        await hear(station, [0.0] * 5 + [70.0] * 12)
        assert station.session_id is not None
        await station.photograph(with_weight=True)
        ((count,),) = await barn.rows(
            station.recorder, "select count(*) from images where session_id is not null"
        )
        assert count == 2


async def test_schedule_takes_pictures_by_itself(tmp_path: Path, snapshots: Snapshots) -> None:
    async with standing(tmp_path, snapshots.url) as station:
        running = asyncio.create_task(
            station.photograph_on_schedule(every_s=0.05, with_weight=False)
        )
        await until(lambda: len(snapshots.given) >= 3)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_every_picture_of_a_folder_is_kept_and_moved_after_the_commit(
    tmp_path: Path,
) -> None:
    drop = tmp_path / "pictures"
    drop.mkdir()
    for number in range(3):
        (drop / f"{number}.jpg").write_bytes(picture(number))
    async with barn.recorder(tmp_path / "buffer") as book:
        station = Station(book, Folder(drop, scan_s=0.005), limits=LIMITS)
        running = asyncio.create_task(station.photograph_on_schedule(every_s=1, with_weight=False))
        done = drop / DONE
        await until(lambda: done.is_dir() and len(list(done.iterdir())) == 3)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        images = await barn.rows(book, "select image_id from images order by id")
        kept = {book.buffer.pictures.read(each[0]) for each in images}
        assert kept == {picture(number) for number in range(3)}


async def test_silent_scale_is_handled_as_time_passing(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    async with standing(tmp_path, snapshots.url) as station:
        began = time.monotonic()
        for weight in [0.0] * 5 + [60.0] * 3:
            began += 0.05
            await station.handle(Received(began, b"", Reading(weight, stable=True)))
        assert station.watched.phase == "settling"
        station.watched = replace(station.watched, last_at=began - 10.0)
        await station.handle(None)
        assert "silent" in await cancelled(station)

"""Every session and every image without one has one result, whatever its images are."""

import asyncio
import io
from typing import Any

import pytest
from PIL import Image
from prometheus_client import Gauge

from farmiq.edge.ingress import service as ingress
from farmiq.edge.vision import handlers, sandboxed, store
from farmiq.messages import bus, weighvision
from farmiq.messages.inference import COMPLETED
from farmiq.plumbing import db, sandbox
from tests.integration.edge.media.conftest import later
from tests.integration.edge.vision.conftest import Barn, animal
from tests.integration.edge.weighvision.conftest import NEIGHBOUR, STRANGER, Weighing, rows
from tests.support import databases

PENDING = "select count(*) from inference_jobs where done_at is null"


@pytest.mark.req("MD-07", "RB-19")
async def test_session_has_one_result_and_one_event_whatever_comes_first(barn: Barn) -> None:
    """Also where the image is there before the first event of its session (C-26)."""
    early, late = Weighing(), Weighing()
    first = await barn.store(early, animal())
    await barn.hear(late.created(), late.weight(), late.finalized(1))
    assert not await barn.inference.infer_next(), "the one has not ended, the other has no image"
    await barn.hear(early.created(), early.captured(first), early.weight(), early.finalized(1))
    await barn.hear(late.captured(await barn.store(late, animal())))
    assert (await barn.inference.infer_pending())["count"] == 2
    for weighing in (early, late):
        assert barn.results(weighing) == [(None, 0.0, "none", "no_model", 1)]
    events = barn.events()
    assert {event["session_id"] for event in events} == {early.session_id, late.session_id}
    assert {event["inference_result_id"] for event in events} == {
        str(id_) for (id_,) in rows(barn.database, "select id from inference_results")
    }
    assert not await barn.inference.infer_next()
    await barn.store(early, animal())
    assert not await barn.inference.infer_next(), "an image that comes later changes nothing"


@pytest.mark.req("RB-17", "RB-19")
async def test_result_before_the_end_is_named_by_the_event_that_ends_the_session(
    barn: Barn,
) -> None:
    """A session that does not end is looked at some time after its last image."""
    one = Weighing()
    await barn.hear(one.created(), one.captured(await barn.store(one, animal())))
    later(barn.database, f"{barn.settings.vision_wait_s + 1} seconds")
    assert await barn.inference.infer_next()
    await barn.hear(one.weight(), one.finalized(1))
    ((result_id,),) = rows(barn.database, "select id from inference_results")
    ((payload,),) = rows(
        barn.database,
        "select payload_json from sync_outbox where event_type = %s",
        weighvision.SESSION_FINALIZED,
    )
    assert payload["inference_result_id"] == str(result_id)


@pytest.mark.req("RB-19")
async def test_event_of_a_result_is_valid_on_the_bus(barn: Barn) -> None:
    await barn.weigh(animal())
    await barn.inference.infer_pending()
    ((event_id, at, payload),) = rows(
        barn.database,
        "select id, occurred_at, payload_json from sync_outbox where event_type = %s",
        COMPLETED,
    )
    body = {
        "event_id": str(event_id), "event_type": COMPLETED, "tenant_id": "t-1", "farm_id": "f-1",
        "barn_id": "b-1", "occurred_at": at.isoformat(), "trace_id": "trace-1", "payload": payload,
    }  # fmt: skip
    assert not bus.problems(body)


@pytest.mark.req("MD-07")
async def test_image_without_a_session_has_a_result_without_a_weight(barn: Barn) -> None:
    nowhere = Weighing()
    await barn.store(nowhere, animal(), session_id=None)
    assert await barn.inference.infer_next()
    found = "select media_id is not null, session_id, predicted_weight_kg, reason "
    assert rows(barn.database, f"{found} from inference_results") == [
        (True, None, None, "no_session")
    ]
    assert [event["session_id"] for event in barn.events()] == [None]


async def test_newest_picture_of_the_empty_scale_is_the_reference_of_its_station(
    barn: Barn,
) -> None:
    empty = Image.effect_noise((320, 240), 60).convert("RGB")
    out = io.BytesIO()
    empty.save(out, "JPEG")
    media_id = await barn.store(Weighing(), out.getvalue(), session_id=None)
    with_purpose = "update media_objects set purpose = %s where id = %s returning 1"
    assert rows(barn.database, with_purpose, weighvision.EMPTY_SCALE, media_id)
    # Weighings wait: they are measured by it, so it comes first.
    await barn.weigh(animal())
    await barn.store(Weighing(), animal(), session_id=None)
    assert await barn.inference.infer_next()
    assert rows(barn.database, "select media_id from vision_references") == [(media_id,)]
    assert rows(barn.database, "select reason from inference_results") == [("empty_scale",)]


def _picture(form: str, size: tuple[int, int], mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size).save(out, form, **options)
    return out.getvalue()


HOSTILE = {
    "empty": b"",
    "text": b"<svg onload=alert(1)>",
    "cut off": animal()[:2000],
    "bomb": _picture("PNG", (9000, 9000), "1"),
    "100 MP": _picture("JPEG", (10_000, 10_000), "L"),
    "black": _picture("JPEG", (640, 480)),
    "tiny": _picture("PNG", (1, 1)),
    "exif rubbish": animal()[:2] + b"\xff\xe1\x00\x10Exif\0\0" + b"\xff" * 8 + animal()[2:4000],
    "icc rubbish": _picture("PNG", (64, 64), icc_profile=b"\xff" * 500),
    "gone": None,
}


@pytest.mark.req("MD-07")
async def test_bad_images_end_with_no_estimate_and_the_next_session_is_looked_at(
    barn: Barn,
) -> None:
    weighings = {}
    for name, data in HOSTILE.items():
        one = await barn.weigh(animal())
        ((key,),) = rows(
            barn.database, "select object_key from media_objects where session_id = %s",
            one.session_id,
        )  # fmt: skip
        await (
            barn.bucket.delete(key)
            if data is None
            else barn.bucket.put(key, data, content_type="image/jpeg")
        )
        weighings[name] = one
    good = await barn.weigh(animal())
    await barn.inference.infer_pending()
    for name, one in weighings.items():
        ((weight_kg, confidence, _, reason, _),) = barn.results(one)
        assert (weight_kg, confidence) == (None, 0.0), name
        assert reason not in {None, "no_model"}, name
    assert barn.results(good)[0][3] == "no_model"


async def test_image_that_ends_the_worker_twice_is_set_aside(
    barn: Barn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one after it is looked at, and where nothing works the job waits."""
    worker, left = sandboxed.WORKER, [2]
    worker.stop()
    start = worker.start

    def killed() -> sandbox.Worker:
        started = start()
        if left[0]:
            left[0] -= 1
            started.process.kill()
        return started

    monkeypatch.setattr(worker, "start", killed)
    one = await barn.weigh(animal(), animal())
    assert await barn.inference.infer_next()
    assert barn.results(one) == [(None, 0.0, "none", "no_model", 2)]
    frames = "select f ->> 'problem' from inference_results, jsonb_array_elements(frames) f"
    assert "twice" in rows(barn.database, frames)[0][0]
    worker.stop()
    left[0] = 4
    two = await barn.weigh(animal())
    assert not await barn.inference.infer_next()
    assert "cannot be looked at" in (await barn.problem() or "")
    assert not barn.results(two)
    later(barn.database, "10 minutes")
    # Another process of the edge does it; this one has nothing to do.
    other = handlers.Inference(barn.settings, barn.pool, barn.bucket, barn.files)
    assert await other.infer_next()
    assert not await barn.inference.infer_next()
    assert not await barn.problem()
    assert len(barn.results(two)) == 1


async def test_images_of_other_devices_and_companies_are_not_of_the_session(barn: Barn) -> None:
    """SC-02: whoever uploads under the id of a session does not change its result."""
    one = await barn.weigh(animal())
    for place in (NEIGHBOUR, STRANGER):
        await barn.store(Weighing(place=place, session_id=one.session_id), animal())
    later(barn.database, "10 minutes")
    assert (await barn.inference.infer_pending())["count"] == 2
    found = "select tenant_id, device_id, frames_total from inference_results order by 1"
    assert rows(barn.database, found) == [("t-1", "scale-1", 1), ("t-2", "scale-1", 1)]


async def test_newest_sessions_come_first_and_images_without_one_last(barn: Barn) -> None:
    await barn.store(Weighing(), animal(), session_id=None)
    old, new = await barn.weigh(animal()), await barn.weigh(animal())
    newest = "select session_id from inference_results order by occurred_at desc limit 1"
    done = []
    while await barn.inference.infer_next():
        done.append(rows(barn.database, newest)[0][0])
    assert done == [new.session_id, old.session_id, None]
    assert rows(barn.database, PENDING) == [(0,)]


@pytest.mark.parametrize("state", ["active", "shadow"])
@pytest.mark.parametrize("is_damaged", [False, True])
async def test_model_whose_files_are_lost_or_damaged_is_said_to_be_unusable(
    barn: Barn, state: str, *, is_damaged: bool
) -> None:
    rows(
        barn.database,
        "insert into vision_models values ('t-1', 'f-1', 'b-1', 'scale-1', '', %s, %s, 'better', "
        "'{}', 40, 0.03, 0.09, now()) returning 1",
        "3f2a" * 4, state,
    )  # fmt: skip
    if is_damaged:
        await barn.files.store("t-1", "3f2a" * 4, {"head.onnx": b"?", "manifest.json": b"{}"})
    one = await barn.weigh(animal())
    await barn.inference.infer_pending()
    assert barn.results(one) == [(None, 0.0, "3f2a" * 4, "model_unusable", 1)]


WAITING = """
with made as (
  insert into weight_sessions (id, tenant_id, farm_id, barn_id, device_id, station_id, status,
    start_at, end_at, image_count)
  select gen_random_uuid(), 't-1', 'f-1', 'b-1', 'scale-1', 'st-1', 'finalized', now(), now(), 1
  from generate_series(1, %(count)s) returning id)
insert into media_objects (id, tenant_id, farm_id, barn_id, device_id, session_id, bucket,
  object_key, mime_type, size_bytes, captured_at, upload_status, stored_at)
select gen_random_uuid(), 't-1', 'f-1', 'b-1', 'scale-1', s.id, 'b', gen_random_uuid()::text,
  'image/jpeg', 1, now(), 'stored', now()
from (select id from made union all select null from generate_series(1, %(count)s)) s
"""


async def test_next_job_is_found_without_looking_at_all_that_wait(barn: Barn) -> None:
    """Else a backlog of days costs the database more than the images themselves."""
    with databases.connected(barn.database.admin_url) as owner:
        owner.execute(WAITING, {"count": 2000})
        owner.execute("update media_objects set purpose = 'empty_scale' "
                      "where id = (select media_id from inference_jobs "
                      "where media_id is not null limit 1)")  # fmt: skip
        owner.execute("analyze inference_jobs, media_objects, weight_sessions")
    assert rows(barn.database, PENDING) == [(4000,)]
    read = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = %s"
    kinds: list[bool] = []
    for _ in range(3):
        async with db.transaction(barn.pool) as tx:
            job = await store.claim(tx, wait_s=300, lease_s=180)
            for table in ("inference_jobs", "media_objects", "weight_sessions"):
                assert await db.fetch_value(tx, read, table) < 100, (table, kinds)
        assert job is not None
        kinds.append(job.session_id is None)
        if not kinds[-1]:
            rows(
                barn.database,
                "update inference_jobs set done_at = now() where session_id is not null "
                "returning 1",
            )
    assert kinds == [True, False, True]


@pytest.mark.parametrize(
    ("gauge", "too_much"), [(ingress.LAG_S, 2.1), (ingress.WAITING, 2001)], ids=["lag", "waiting"]
)
@pytest.mark.parametrize("ends", [True, False])
async def test_inference_gives_way_while_ingress_lags_but_not_for_ever(
    barn: Barn, monkeypatch: pytest.MonkeyPatch, gauge: Gauge, too_much: float, *, ends: bool
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def count(seconds: float, *rest: Any) -> None:
        if seconds != 0.5:
            await sleep(seconds, *rest)
            return
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", count)
    # An ingress that ran in this process before has left its functions in both gauges.
    for one_gauge in (ingress.LAG_S, ingress.WAITING):
        one_gauge.set_function(lambda: 0.0)
    assert not handlers.ingress_lags()
    gauge.set_function(lambda: 0.0 if ends and len(waits) == 3 else too_much)
    try:
        one = await barn.weigh(animal())
        assert await barn.inference.infer_next()
    finally:
        gauge.set_function(lambda: 0.0)
    assert sum(waits) == (1.5 if ends else handlers.MAX_LAG_WAIT_S)
    assert len(barn.results(one)) == 1


async def test_rate_of_images_is_limited_also_for_references_and_images_without_a_session(
    barn: Barn, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    sleep = asyncio.sleep

    async def count(seconds: float, *rest: Any) -> None:
        if seconds > 100:
            paused.append(seconds)
        await sleep(0 if seconds > 100 else seconds, *rest)

    monkeypatch.setattr(barn.inference, "_frame_s", 1000.0)
    monkeypatch.setattr(asyncio, "sleep", count)
    await barn.weigh(animal(), animal())
    await barn.store(Weighing(), animal(), session_id=None)
    reference = await barn.store(Weighing(), animal(), session_id=None)
    with_purpose = "update media_objects set purpose = %s where id = %s returning 1"
    assert rows(barn.database, with_purpose, weighvision.EMPTY_SCALE, reference)
    assert (await barn.inference.infer_pending())["count"] == 3
    assert len(paused) == 4

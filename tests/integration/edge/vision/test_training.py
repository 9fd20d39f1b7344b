"""The scale teaches the camera: what is learned, what is used, and what is only compared."""

import math
import os
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from farmiq.edge import alert_events
from farmiq.edge.console.weighings import queries
from farmiq.edge.vision import models, training
from farmiq.edge.vision.models import ACTIVE, SHADOW, CameraScope
from farmiq.edge.vision.training import Training
from farmiq.farm.vision.features import FEATURES, SCHEMA
from farmiq.lab.simulate import pictures
from farmiq.messages import weighvision
from farmiq.plumbing import db, ids
from tests.integration.edge.vision.conftest import Barn, animal
from tests.integration.edge.weighvision.conftest import PLACE, START, Weighing, rows
from tests.support import databases

SCOPE = CameraScope("t-1", "f-1", "b-1", "scale-1", "")
BEGAN = datetime(2026, 6, 1, 8, tzinfo=UTC)


def features(chance: random.Random, weight_kg: float, noise: float) -> list[float]:
    """Of a shape that goes with the weight, each feature with a noise of its own."""
    return [math.log(weight_kg) * 0.6 + chance.gauss(0, noise) for _ in FEATURES]


def closed_sessions(
    barn: Barn,
    count: int,
    *,
    seed: int = 1,
    shuffled: bool = False,
    lightest_kg: float = 60,
    noise: float = 0.02,
    **result: Any,
) -> list[UUID]:
    """Sessions with a result and the scale's weight, ten on each day."""
    chance = random.Random(seed)
    weights = [chance.uniform(lightest_kg, lightest_kg * 7 / 3) for _ in range(count)]
    seen = [features(chance, weight_kg, noise) for weight_kg in weights]
    if shuffled:
        chance.shuffle(seen)
    made = []
    with databases.connected(barn.database.admin_url) as owner:
        for number, (weight_kg, shape) in enumerate(zip(weights, seen, strict=True)):
            session_id, at = ids.new(), BEGAN + timedelta(days=number // 10, minutes=number % 10)
            owner.execute(
                """
                insert into weight_sessions (id, tenant_id, farm_id, barn_id, device_id, station_id,
                  status, start_at, end_at, final_weight_kg)
                values (%s, 't-1', 'f-1', 'b-1', 'scale-1', 'st-1', 'finalized', %s, %s, %s)
                """,
                (session_id, at, at, weight_kg),
            )
            values = {
                "id": ids.new(), "session_id": session_id, "at": at, "features": shape,
                "schema": SCHEMA, "predicted": None, "low": None, "high": None, "version": "none",
                "shadow_version": None, "shadow": None,
                **{name: value(weight_kg) for name, value in result.items()},
            }  # fmt: skip
            owner.execute(
                """
                insert into inference_results (id, tenant_id, farm_id, barn_id, device_id,
                  session_id, confidence, model_version, occurred_at, reason, features,
                  feature_schema, quality, predicted_weight_kg, low_kg, high_kg, is_shadow,
                  shadow_version, shadow_weight_kg)
                values (%(id)s, 't-1', 'f-1', 'b-1', 'scale-1', %(session_id)s, 0, %(version)s,
                  %(at)s, 'no_model', %(features)s, %(schema)s, 1, %(predicted)s, %(low)s, %(high)s,
                  %(shadow_version)s::text is not null, %(shadow_version)s, %(shadow)s)
                """,
                values,
            )
            made.append(session_id)
    return made


async def used(barn: Barn) -> dict[str, models.ModelRow]:
    async with barn.pool.connection() as connection:
        return await models.in_use(connection, SCOPE)


@pytest.mark.req("MD-07")
async def test_closed_sessions_teach_a_model_that_is_used_and_kept_in_folder_and_bucket(
    barn: Barn,
) -> None:
    closed_sessions(barn, 40)
    await training.score(barn.pool)
    teacher = Training(barn.settings, barn.pool, barn.files)
    assert await teacher.train_due() == {"trained": 1}
    model = (await used(barn))[ACTIVE]
    assert model.n_train == 40
    assert model.cv_mape < model.baseline_mape
    folder = barn.settings.vision_models() / model.version
    assert {path.name for path in folder.iterdir()} == {"head.onnx", "manifest.json"}
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    again = await barn.files.folder(SCOPE.tenant_id, model.version)
    assert (again / "head.onnx").is_file(), "the bucket has a copy"
    assert await teacher.train_due() == {"trained": 0}, "nothing new was weighed"


@pytest.mark.req("MD-07", "RB-19")
async def test_pictures_of_animals_are_estimated_after_enough_weighings(barn: Barn) -> None:
    """From the pixels to an event with an interval that holds the weight."""
    chance = random.Random(7)

    async def weigh(number: int) -> tuple[Weighing, float]:
        weight_kg, at = chance.uniform(60, 130), START + timedelta(minutes=number - 60)
        picture = pictures.render(
            station_id="st-1", number=number, at=at, animal=number, weight_kg=weight_kg
        )
        return await barn.weigh(picture, weighing=Weighing(at=at), weight_kg=weight_kg), weight_kg

    for number in range(30):
        await weigh(number)
    await barn.inference.infer_pending()
    assert await Training(barn.settings, barn.pool, barn.files).train_due() == {"trained": 1}
    one, weight_kg = await weigh(40)
    await barn.inference.infer_pending()
    ((predicted_kg, confidence, version, reason, _),) = barn.results(one)
    assert reason is None
    assert predicted_kg == pytest.approx(weight_kg, rel=0.15)
    assert 0 < confidence < 1
    assert version == (await used(barn))[ACTIVE].version
    event = next(event for event in barn.events() if event["session_id"] == one.session_id)
    assert event["low_kg"] < event["predicted_weight_kg"] < event["high_kg"]
    assert (event["n_train"], event["is_shadow"]) == (30, False)
    await training.score(barn.pool)
    async with barn.pool.connection() as connection:
        shown = await queries.estimate(connection, "t-1", one.session_id)
        assert await queries.estimate(connection, "t-2", one.session_id) is None
    assert shown is not None
    assert (shown.predicted_weight_kg, shown.sessions) == (predicted_kg, 1)


async def test_model_of_shuffled_labels_is_never_used(barn: Barn) -> None:
    """It may beat the baseline by chance in one split, not by more than chance in all of them."""
    closed_sessions(barn, 60, shuffled=True)
    await Training(barn.settings, barn.pool, barn.files).train_due()
    in_use = await used(barn)
    assert ACTIVE not in in_use
    assert "without a camera" in in_use[SHADOW].reason


async def test_too_few_sessions_teach_nothing(barn: Barn) -> None:
    closed_sessions(barn, 9)
    assert await Training(barn.settings, barn.pool, barn.files).train_all() == {"trained": 0}
    made = await training.train(barn.pool, barn.files, SCOPE)
    assert made["state"] is None
    assert "10 are needed" in made["reason"]


async def test_sessions_of_the_first_days_are_grouped_by_runs_and_later_by_days(
    barn: Barn,
) -> None:
    closed_sessions(barn, 20)
    async with barn.pool.connection() as connection:
        groups = {
            example["group"]
            for example in training.examples(await models.labelled(connection, SCOPE, SCHEMA))
        }
    assert groups == {"run 0", "run 1", "run 2", "run 3"}
    closed_sessions(barn, 30, seed=2)
    async with barn.pool.connection() as connection:
        labelled = await models.labelled(connection, SCOPE, SCHEMA)
    assert {example["group"] for example in training.examples(labelled)} == {
        "2026-06-01", "2026-06-02", "2026-06-03",
    }  # fmt: skip
    assert PLACE.device_id == SCOPE.device_id


async def test_sessions_of_an_animal_are_one_group_where_its_station_tells_which_it_is(
    barn: Barn,
) -> None:
    """Else a model would be praised for animals that it knows."""
    tags = ["982 000123", None, "982 000123"]
    for number, tag in enumerate(tags):
        one = Weighing(at=START + timedelta(days=number))
        media_id = await barn.store(one, animal())
        named = {"animal_id": tag} if tag else {}
        await barn.hear(
            one.created(**named), one.captured(media_id), one.weight(), one.finalized(1)
        )
    assert (await barn.inference.infer_pending())["count"] == 3
    async with barn.pool.connection() as connection:
        labelled = await models.labelled(connection, SCOPE, SCHEMA)
    groups = [example["group"] for example in training.examples(labelled)]
    assert groups == ["animal 982 000123", labelled[1].day, "animal 982 000123"]
    sent = rows(
        barn.database,
        "select payload_json ->> 'animal_id' from sync_outbox where event_type = %s "
        "order by occurred_at",
        weighvision.SESSION_CREATED,
    )
    assert [tag for (tag,) in sent] == tags


async def test_camera_with_more_sessions_than_a_model_learns_is_trained_by_new_ones_alone(
    barn: Barn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a restart nor the deletion of old sessions changes what is new."""
    monkeypatch.setattr(models, "MAX_EXAMPLES", 20)

    async def restart_and_train() -> dict[str, object]:
        await training.score(barn.pool)
        return await Training(barn.settings, barn.pool, barn.files).train_due()

    closed_sessions(barn, 30)
    assert await restart_and_train() == {"trained": 1}
    assert await restart_and_train() == {"trained": 0}
    with databases.connected(barn.database.admin_url) as owner:
        owner.execute(
            "delete from inference_results "
            "where id in (select id from inference_results order by occurred_at limit 10)"
        )
    closed_sessions(barn, 5, seed=2)
    assert await restart_and_train() == {"trained": 1}


async def _train(barn: Barn) -> str:
    closed_sessions(barn, 40)
    made = await training.train(barn.pool, barn.files, SCOPE)
    assert made["state"] == ACTIVE
    await training.score(barn.pool)
    return str(made["version"])


async def test_results_are_compared_with_the_scale_once_and_by_day(barn: Barn) -> None:
    version = await _train(barn)
    closed_sessions(
        barn, 20, seed=3, version=lambda _: version, predicted=lambda kg: kg * 1.1,
        low=lambda kg: kg * 0.9, high=lambda kg: kg * 1.2,
    )  # fmt: skip
    assert await training.score(barn.pool) == {"scored": 20}
    assert await training.score(barn.pool) == {"scored": 0}
    found = rows(
        barn.database,
        "select version, sum(sessions), count(*), sum(error_sum), sum(intervals), sum(covered) "
        "from vision_days group by 1",
    )
    assert found == [(version, 20, 2, pytest.approx(2.0), 20, 20)]


async def test_scale_that_disagrees_for_long_raises_an_alert_that_reaches_the_cloud(
    barn: Barn,
) -> None:
    async with db.transaction(barn.pool) as tx:
        await alert_events.accept(tx, "t-1", edge_cluster_id="edge-1")
    version = await _train(barn)
    closed_sessions(
        barn, 30, seed=4, version=lambda _: version, predicted=lambda kg: kg * 0.8,
        low=lambda kg: kg * 0.7, high=lambda kg: kg * 0.9,
    )  # fmt: skip
    await training.score(barn.pool)
    opened = "select kind, subject from alerts where closed_at is null"
    assert rows(barn.database, opened) == [("vision.drift", "t-1/scale-1")]
    sent = "select payload_json ->> 'code' from sync_outbox where event_type = %s"
    assert ("vision.drift",) in rows(barn.database, sent, "edge.alert.opened")


OPEN_ALERTS = "select kind from alerts where closed_at is null"


async def test_scale_that_drifts_teaches_no_model_until_it_agrees_with_its_camera(
    barn: Barn,
) -> None:
    """Else the next model learns the fault and closes the alert."""
    version = await _train(barn)
    teacher = Training(barn.settings, barn.pool, barn.files)
    for seed in range(10, 16):
        closed_sessions(
            barn, 10, seed=seed, version=lambda _: version, predicted=lambda kg: kg / 1.1
        )
        await training.score(barn.pool)
        assert await teacher.train_due() == {"trained": 0}
        assert await teacher.train_all() == {"trained": 0}
        assert rows(barn.database, OPEN_ALERTS) == [("vision.drift",)]
    closed_sessions(barn, 25, seed=20, version=lambda _: version, predicted=lambda kg: kg)
    await training.score(barn.pool)
    assert not rows(barn.database, OPEN_ALERTS), "they agree again"
    assert await teacher.train_due() == {"trained": 1}


async def test_model_that_went_into_shadow_while_it_drifted_is_watched_until_it_agrees(
    barn: Barn,
) -> None:
    version = await _train(barn)
    closed_sessions(barn, 30, seed=5, version=lambda _: version, predicted=lambda kg: kg * 2)
    await training.score(barn.pool)
    teacher = Training(barn.settings, barn.pool, barn.files)
    assert await teacher.train_due() == {"trained": 0}
    assert set(await used(barn)) == {SHADOW}, "it does worse than no camera"
    assert await teacher.train_due() == {"trained": 0}
    closed_sessions(
        barn, 25, seed=6, version=lambda _: version, shadow_version=lambda _: version,
        shadow=lambda kg: kg,
    )  # fmt: skip
    await training.score(barn.pool)
    assert not rows(barn.database, OPEN_ALERTS)
    assert await teacher.train_due() == {"trained": 1}


async def test_person_who_trains_or_promotes_accepts_the_scale(barn: Barn) -> None:
    version = await _train(barn)
    closed_sessions(barn, 30, seed=7, version=lambda _: version, predicted=lambda kg: kg / 1.3)
    await training.score(barn.pool)
    assert rows(barn.database, OPEN_ALERTS) == [("vision.drift",)]
    made = await training.train(barn.pool, barn.files, SCOPE)
    assert made["state"] == ACTIVE, made
    assert not rows(barn.database, OPEN_ALERTS)


@pytest.mark.parametrize("is_drifting", [False, True])
async def test_model_that_is_silent_about_a_new_batch_gives_way_to_one_that_knows_it(
    barn: Barn, *, is_drifting: bool
) -> None:
    """Its error says nothing of animals to which it has no answer."""
    version = await _train(barn)
    if is_drifting:
        closed_sessions(barn, 30, seed=8, version=lambda _: version, predicted=lambda kg: kg / 1.1)
        await training.score(barn.pool)
        assert rows(barn.database, OPEN_ALERTS) == [("vision.drift",)]
    closed_sessions(barn, 40, seed=9, lightest_kg=20, noise=0.1, version=lambda _: version)
    await training.score(barn.pool)
    old = (await used(barn))[ACTIVE]
    assert await Training(barn.settings, barn.pool, barn.files).train_due() == {"trained": 1}
    new = (await used(barn))[ACTIVE]
    assert new.version != old.version
    assert new.cv_mape > old.cv_mape


async def test_model_that_does_worse_than_no_camera_is_used_no_more(barn: Barn) -> None:
    version = await _train(barn)
    closed_sessions(
        barn, 30, seed=5, version=lambda _: version, predicted=lambda kg: kg * 2,
        low=lambda kg: kg, high=lambda kg: kg * 3,
    )  # fmt: skip
    await training.score(barn.pool)
    teacher = Training(barn.settings, barn.pool, barn.files)
    teacher._tried[SCOPE] = 1000
    await teacher.train_due()
    in_use = await used(barn)
    assert ACTIVE not in in_use
    assert in_use[SHADOW].version == version


async def test_models_of_another_company_are_not_used(barn: Barn) -> None:
    await _train(barn)
    async with barn.pool.connection() as connection:
        assert not await models.in_use(connection, SCOPE._replace(tenant_id="t-2"))
        assert not await models.page(connection, "t-2")
        assert len(await models.page(connection, "t-1")) == 1
        assert await db.fetch_value(connection, "select count(*) from vision_models") == 1


async def retired_models(barn: Barn, count: int) -> list[str]:
    """Versions with their files, oldest first."""
    versions = [f"{number:016x}" for number in range(count)]
    for number, version in enumerate(versions):
        await barn.files.store("t-1", version, {"head.onnx": b"head", "manifest.json": b"{}"})
        rows(
            barn.database,
            "insert into vision_models values (%s, %s, %s, %s, %s, %s, 'retired', 'older', '{}', "
            "10, 0.1, 0.1, %s) returning 1",
            *SCOPE, version, BEGAN + timedelta(days=number),
        )  # fmt: skip
    return versions


def objects_of(version: str) -> list[str]:
    return [f"models/t-1/{version}/{name}" for name in models.FILES]


async def test_retired_models_but_the_newest_are_deleted_with_their_files(barn: Barn) -> None:
    """Also what a process has left that died while it wrote or trained one."""
    in_use = await _train(barn)
    old, *rest = await retired_models(barn, models.MAX_RETIRED + 1)
    folder = barn.settings.vision_models()
    for name in ("f" * 16, f".{ids.new()}"):
        (folder / name).mkdir()
    (folder / "photographs").mkdir()
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    young = f".{ids.new()}"
    (folder / young).mkdir()
    assert await models.purge(barn.pool, barn.files) == 1
    left = {in_use, *rest}
    assert {version for (version,) in rows(barn.database, "select version from vision_models")} == (
        left
    )
    assert {path.name for path in folder.iterdir()} == {*left, young, "photographs"}
    assert [await barn.bucket.find(key) for key in objects_of(old)] == [None, None]
    for version in left:
        assert all([await barn.bucket.find(key) for key in objects_of(version)])
    assert await models.purge(barn.pool, barn.files) == 0


async def test_model_that_is_used_again_meanwhile_is_not_deleted(
    barn: Barn, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, *_ = await retired_models(barn, models.MAX_RETIRED + 1)
    transaction = db.transaction

    def promoted_before(pool: db.Pool) -> Any:
        rows(
            barn.database,
            "update vision_models set state = 'active' where version = %s returning 1",
            old,
        )
        return transaction(pool)

    monkeypatch.setattr(db, "transaction", promoted_before)
    assert await models.purge(barn.pool, barn.files) == 0
    assert all([await barn.bucket.find(key) for key in objects_of(old)])

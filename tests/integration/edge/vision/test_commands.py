"""`farmiq vision train | models | promote | explain`, as a person types them at an edge."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from PIL import Image

from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.vision import training
from farmiq.edge.vision.models import ACTIVE, SHADOW
from farmiq.plumbing import db, ids
from tests.integration.edge.vision.conftest import Barn, animal
from tests.integration.edge.vision.test_training import SCOPE, closed_sessions, used
from tests.integration.edge.weighvision.conftest import START, Weighing, rows
from tests.support import preloaded


def vision(barn: Barn, *words: str, **others: str) -> Any:
    assert barn.settings.s3_url is not None
    environment = {
        "FARMIQ_EDGE_DB_URL": barn.database.url,
        "FARMIQ_EDGE_S3_URL": barn.settings.s3_url.get_secret_value(),
        "VISION_MODELS_DIR": str(barn.settings.vision_models()),
        **others,
    }
    return preloaded.command("vision", *words, environment=environment)


async def test_train_list_and_promote(barn: Barn) -> None:
    nothing = vision(barn, "train")
    assert (nothing.returncode, "no camera has a closed weighing" in nothing.stdout) == (3, True)
    closed_sessions(barn, 40)
    others = vision(barn, "train", "--tenant", "t-2", "--json")
    assert (others.returncode, json.loads(others.stdout)) == (3, [])
    (made,) = json.loads(vision(barn, "train", "--json").stdout)
    version = made["version"]
    assert (made["state"], made["device_id"]) == (ACTIVE, "scale-1")
    assert (barn.settings.vision_models() / version / "head.onnx").is_file()
    listed = vision(barn, "models")
    assert listed.returncode == 0
    assert all(word in listed.stdout for word in (version, ACTIVE, "40 weighings"))
    done = vision(barn, "promote", version, "--state", "shadow")
    assert (done.returncode, done.stdout) == (0, f"{version} is shadow\n")
    (model,) = (await used(barn)).values()
    assert (model.state, model.reason.startswith("set by cli")) == (SHADOW, True)
    audited = rows(barn.database, "select action, subject from audit_log order by at desc")
    assert audited[0] == ("vision.promote", version)


async def test_promote_of_a_model_behind_a_thousand_newer_ones_uses_it_and_closes_the_alert(
    barn: Barn,
) -> None:
    closed_sessions(barn, 40)
    await training.train(barn.pool, barn.files, SCOPE)
    version = (await used(barn))[ACTIVE].version
    rows(
        barn.database,
        "insert into vision_models select 't-2', 'f', 'b', 'd', '', n::text, 'retired', '', '{}', "
        "10, 0.1, 0.1, '2100-01-01' from generate_series(1, 1000) n returning 1",
    )
    async with db.transaction(barn.pool) as tx:
        await alerts.raise_(tx, Alert("vision.drift", SCOPE.subject, "warning", "they disagree"))
    done = vision(barn, "promote", version)
    assert (done.returncode, done.stdout) == (0, f"{version} is active\n")
    assert not rows(barn.database, "select kind from alerts where closed_at is null")


async def test_explain_of_a_weighing_draws_what_was_stored_of_it(
    barn: Barn, tmp_path: Path
) -> None:
    for number in range(24):
        at = START + timedelta(minutes=number - 60)
        await barn.weigh(
            animal(70 + 2 * number), weighing=Weighing(at=at), weight_kg=40 + 2 * number
        )
    await barn.inference.infer_pending()
    (made,) = json.loads(vision(barn, "train", "--json").stdout)
    assert made["state"] == ACTIVE, made
    one = await barn.weigh(animal(95), weighing=Weighing(at=START), weight_kg=65)
    await barn.inference.infer_pending()
    ((kg, confidence, *_),) = barn.results(one)
    out = tmp_path / "why.png"
    words = ("explain", "--session", str(one.session_id), "--out", str(out))
    done = vision(barn, *words, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "out": str(out), "predicted_weight_kg": kg, "confidence": confidence, "reason": None,
    }  # fmt: skip
    with Image.open(out) as picture:
        assert (picture.format, picture.size) == ("PNG", (1000, 720))
        for column in range(4):
            left = 20 + column * 162
            neighbour = picture.convert("L").crop((left, 420, left + 150, 530))
            assert neighbour.getextrema() != (255, 255), "the image of a neighbour"
    # What was stored counts, also where image and model are gone.
    ((key,),) = rows(
        barn.database, "select object_key from media_objects where session_id = %s", one.session_id
    )
    await barn.bucket.delete(key)
    rows(barn.database, "delete from vision_models returning 1")
    again = vision(barn, *words[:-1], str(tmp_path / "again.png"))
    assert (again.returncode, again.stdout) == (0, f"{tmp_path / 'again.png'}: {kg:.3f} kg\n")

    never = vision(barn, "explain", "--session", str(ids.new()))
    assert (never.returncode, "was looked at yet" in never.stderr) == (3, True)
    for wrong in (("--session", "7"), (), ("folder",), ("folder", "7", "--session", "7")):
        assert vision(barn, "explain", *wrong).returncode == 2, wrong


async def test_asked_wrongly(barn: Barn) -> None:
    unknown = vision(barn, "promote", "3f2a")
    assert (unknown.returncode, unknown.stdout) == (3, "there is no model 3f2a\n")
    odd = vision(barn, "promote", "3f2a", "--state", "used")
    assert odd.returncode == 2
    assert "'used' is no state; choose active, shadow, retired" in odd.stderr
    assert vision(barn, "promote").returncode == 2
    away = vision(barn, "models", FARMIQ_EDGE_DB_URL="postgresql://127.0.0.1:1/edge")
    assert (away.returncode, "Traceback" in away.stderr) == (1, False)
    closed_sessions(barn, 40)
    no_store = vision(barn, "train", FARMIQ_EDGE_S3_URL="http://a:b@127.0.0.1:1/farmiq")
    assert (no_store.returncode, no_store.stderr.count("\n")) == (1, 1)
    assert "the object store does not answer" in no_store.stderr
    assert not await used(barn)

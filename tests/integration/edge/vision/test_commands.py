"""`farmiq vision train | models | promote`, as a person types them at an edge."""

import json
from typing import Any

from farmiq.edge.vision.models import ACTIVE, SHADOW
from tests.integration.edge.vision.conftest import Barn
from tests.integration.edge.vision.test_training import closed_sessions, used
from tests.integration.edge.weighvision.conftest import rows
from tests.support import preloaded


def vision(barn: Barn, *words: str) -> Any:
    assert barn.settings.s3_url is not None
    environment = {
        "FARMIQ_EDGE_DB_URL": barn.database.url,
        "FARMIQ_EDGE_S3_URL": barn.settings.s3_url.get_secret_value(),
        "VISION_MODELS_DIR": str(barn.settings.vision_models()),
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


async def test_asked_wrongly(barn: Barn) -> None:
    unknown = vision(barn, "promote", "3f2a")
    assert (unknown.returncode, unknown.stdout) == (3, "there is no model 3f2a\n")
    odd = vision(barn, "promote", "3f2a", "--state", "used")
    assert odd.returncode == 2
    assert "'used' is no state; choose active, shadow, retired" in odd.stderr
    assert vision(barn, "promote").returncode == 2
    away = preloaded.command(
        "vision", "models", environment={"FARMIQ_EDGE_DB_URL": "postgresql://127.0.0.1:1/edge"}
    )
    assert (away.returncode, "Traceback" in away.stderr) == (1, False)

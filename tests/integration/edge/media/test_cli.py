"""`farmiq media`, as people type it."""

import json
from pathlib import Path
from typing import Any

import pytest

from farmiq.plumbing import ids
from tests.integration.edge.media.conftest import Edge, jpeg
from tests.support import typed


@pytest.fixture
def farmiq(edge: Edge, engines: dict[str, str], tmp_path: Path) -> Any:
    environment = {
        "FARMIQ_EDGE_DB_URL": edge.database.url,
        "FARMIQ_EDGE_S3_URL": engines["FARMIQ_EDGE_S3_URL"],
        "FARMIQ_STATE_DIR": str(tmp_path / "no stack"),
    }

    def run(*words: str, code: int = 0, **over: str) -> str:
        done = typed.farmiq("media", *words, **{**environment, **over})
        assert done.returncode == code, f"{words}: {done.stdout} {done.stderr}"
        return done.stdout + done.stderr

    return run


async def test_images_are_listed_shown_counted_and_exported(
    edge: Edge, farmiq: Any, tmp_path: Path
) -> None:
    assert farmiq("ls") == "nothing\n"
    assert farmiq("status") == "nothing\n"
    media_id = await edge.store(jpeg(comment=b"a secret place"))
    (listed,) = json.loads(farmiq("ls", "--json"))
    assert listed["media_id"] == str(media_id)
    assert str(media_id) in farmiq("ls", "--tenant", "t-cam", "--status", "stored")
    assert "nothing" in farmiq("ls", "--session", str(ids.new()))
    assert "object_key" in farmiq("show", str(media_id))
    assert json.loads(farmiq("show", str(media_id), "--json"))["upload_status"] == "stored"
    (status,) = json.loads(farmiq("status", "--json"))
    assert (status["stored"], status["unsynced"], status["waiting_for_event"]) == (1, 1, 1)
    assert "1 not in the cloud yet" in farmiq("status")
    out, bare = tmp_path / "a.jpg", tmp_path / "b.jpg"
    farmiq("export", str(media_id), str(out))
    farmiq("export", str(media_id), str(bare), "--bare", "--json")
    assert out.read_bytes() == jpeg(comment=b"a secret place")
    assert b"a secret place" not in bare.read_bytes()
    assert "exists" in farmiq("export", str(media_id), str(out), code=2)
    assert "nothing in the store" in farmiq("export", str(media_id), "x.jpg", "--aside", code=1)


async def test_what_is_wrong_is_told_with_its_own_exit_code(
    edge: Edge, farmiq: Any, tmp_path: Path
) -> None:
    gone = await edge.store(jpeg())
    await edge.bucket.delete(edge.column("object_key", gone))
    found = json.loads(farmiq("verify", "--json", code=3).partition("\n\n")[0])
    assert found["gone"] == [str(gone)]
    assert f"gone     {gone}" in farmiq("verify", "--deep", code=3)
    said = (await edge.ask(edge.body())).json()
    await edge.put(said, b"no image")
    await edge.announce(said["media_id"])
    await edge.keeper.look_once()
    farmiq("ls", code=3)
    farmiq("status", code=3)
    assert "refused_reason" in farmiq("show", said["media_id"], code=3)
    farmiq("export", said["media_id"], str(tmp_path / "aside"), "--aside")
    assert (tmp_path / "aside").read_bytes() == b"no image"
    assert "is not a UUID" in farmiq("show", "x", code=2)
    assert "is known" in farmiq("show", str(ids.new()), code=1)
    assert "choose presigned" in farmiq("ls", "--status", "lost", code=2)
    assert "FARMIQ_EDGE_S3_URL" in farmiq("verify", code=1, FARMIQ_EDGE_S3_URL="")
    away = "http://a:b@127.0.0.1:9/bucket"
    assert "does not answer" in farmiq("verify", code=1, FARMIQ_EDGE_S3_URL=away)

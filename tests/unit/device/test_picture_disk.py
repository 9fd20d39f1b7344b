"""The disk of the pictures is full while that of the events is not."""

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from farmiq.device.buffer import jobs, store
from farmiq.device.buffer.recorder import BufferFullError
from tests.support import station


# By bytes the agent sees it coming; by names the disk itself says ENOSPC while bytes are free.
@pytest.fixture(params=["size=512k", "size=8m,nr_inodes=12"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A buffer whose pictures have a small disk."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(pictures)], check=False
    ).returncode:
        pytest.skip("only root may mount a small disk")
    yield tmp_path
    subprocess.run(["umount", "-l", str(pictures)], check=True)


@pytest.mark.req("WV-02", "WV-18")
async def test_picture_without_room_is_rejected_and_weights_go_on(folder: Path) -> None:
    book = await station.recorder(folder)
    started = await station.weighing(book, pictures=1)
    kept = 1
    with pytest.raises(BufferFullError):  # noqa: PT012 - which one is refused is the disk's affair
        for _ in range(100):
            await book.photograph(station.picture(None, size=40_000))
            kept += 1
    assert 5 < kept < 20
    assert len([*book.buffer.pictures.ids()]) == kept
    assert not [*(folder / "pictures").glob("*.partial")]
    await station.weighing(book, pictures=0)
    for name in [*book.buffer.pictures.ids()][:2]:
        path = book.buffer.pictures.path(name)
        if path.stat().st_size > 10_000:
            await book.buffer.do(partial(store.remove_image, image_id=name))
            book.buffer.pictures.delete(name)
            kept -= 1
    await station.weighing(book, pictures=1)
    found = await book.buffer.do(lambda tx: jobs.verify(tx, folder))
    assert found["problems"] == []
    assert len([*book.buffer.pictures.ids()]) == kept + 1
    assert await book.buffer.do(lambda tx: store.session(tx, str(started))) is not None
    await book.buffer.close()

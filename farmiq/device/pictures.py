"""The bytes of pictures: a file each, whole and on the disk before the buffer knows of it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from farmiq import crash

_SUFFIX = ".picture"


class Pictures:
    """A folder of files named by image_id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, image_id: str, data: bytes) -> None:
        """Raises OSError if the disk does not take it; then nothing is left of it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self.path(image_id)
        partial = path.with_suffix(".partial")
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            crash.here("agent.picture_written")
            partial.rename(path)
            self._sync_folder()
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        crash.here("agent.picture_renamed")

    def read(self, image_id: str) -> bytes | None:
        """None if the file is gone."""
        try:
            return self.path(image_id).read_bytes()
        except FileNotFoundError:
            return None

    def forget(self, image_id: str) -> None:
        self.path(image_id).unlink(missing_ok=True)

    def names(self) -> Iterator[str]:
        """image_ids of all files, one after the other, however many there are."""
        if not self._folder.exists():
            return
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIX):
                    yield entry.name.removesuffix(_SUFFIX)

    def begun(self) -> bool:
        """Whether a picture was ever kept here."""
        return self._folder.exists()

    def sweep_partial(self) -> None:
        """What a power cut left half written was never acknowledged."""
        for path in self._folder.glob("*.partial"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def free_bytes(self) -> int:
        disk = os.statvfs(self._folder if self._folder.exists() else self._folder.parent)
        return disk.f_bavail * disk.f_frsize

    def path(self, image_id: str) -> Path:
        return self._folder / f"{image_id}{_SUFFIX}"

    def _sync_folder(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

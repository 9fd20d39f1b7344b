"""A folder into which a camera puts its pictures: each is taken once, when it is whole.

camera --FTP, rsync, cp--> folder --> [folder] --stored--> folder/done, others to folder/refused

A file is whole when two scans in a row find the same size and time, and it decodes to its end. It
is moved only after it was stored, so a power cut leaves it where it is and it is taken again. The
clock plays no part: new is what was not there.
"""

import asyncio
import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from farmiq.device.capture import camera
from farmiq.device.capture.camera import CameraError, CameraImage, PassingError, PoisonError
from farmiq.messages import kinds
from farmiq.plumbing import log

SCAN_S = 0.2
# A file that does not change and is no picture after so many scans is rejected,
MAX_SCANS = 25
# as is one that broke the decoder so often, each time a while later.
MAX_DECODER_FAILURES = 5
RETRY_SCANS = 50
DONE, REJECTED = "done", "refused"
_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp"})

_NAME = "iot-weighvision-agent"

# When it was written and how large it is.
Mark = tuple[int, int]
_NOTHING: Mapping[str, Mark] = {}


@dataclass
class Folder:
    """`take` waits for a picture that was not there before the call; `next` takes the oldest."""

    path: Path
    timeout_s: float = 5.0
    scan_s: float = SCAN_S
    _seen: dict[str, tuple[Mark, int]] = field(default_factory=dict)
    _given: dict[str, Mark] = field(default_factory=dict)
    # How often a file broke the decoder, and after how many scans it is tried again.
    _broke_decoder: dict[str, tuple[int, int]] = field(default_factory=dict)

    async def take(self) -> CameraImage:
        before = await asyncio.to_thread(self._list)
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self.next(ignoring=before)
        except TimeoutError:
            raise CameraError(
                f"no new picture in {self.path} within {self.timeout_s:g} s"
            ) from None

    async def next(self, *, ignoring: Mapping[str, Mark] = _NOTHING) -> CameraImage:
        """The oldest whole picture that was not taken yet; waits for one. Raises CameraError."""
        while True:
            shot = await asyncio.to_thread(self.scan, ignoring)
            if shot is not None:
                return shot
            await asyncio.sleep(self.scan_s)

    async def confirm(self, shot: CameraImage) -> None:
        """The picture is stored: its file goes to done/."""
        if shot.path is not None and await asyncio.to_thread(self._is_same, shot.path):
            await asyncio.to_thread(self._move, shot.path, DONE)

    def give_back(self, shot: CameraImage) -> None:
        """It was not stored: the next call takes it again."""
        if shot.path is not None:
            self._given.pop(shot.path.name, None)

    async def close(self) -> None:
        """Nothing is open."""

    def _list(self) -> dict[str, Mark]:
        """Name → (mtime, size), oldest first. Raises CameraError if the folder is not there."""
        try:
            with os.scandir(self.path) as entries:
                files = [
                    (entry.stat().st_mtime_ns, entry.name, entry.stat().st_size)
                    for entry in entries
                    if entry.is_file(follow_symlinks=False) and _is_picture(entry.name)
                ]
        except FileNotFoundError:
            if self.path.is_dir():
                return {}  # a file went away during the scan
            raise CameraError(f"there is no folder {self.path}") from None
        except OSError as error:
            raise CameraError(f"{self.path} cannot be read: {error.strerror}") from None
        return {name: (mtime, size) for mtime, name, size in sorted(files)}

    def scan(self, ignoring: Mapping[str, Mark]) -> CameraImage | None:
        listed = self._list()
        self._seen = {
            name: (mark, self._seen[name][1] + 1 if self._rests(name, mark) else 0)
            for name, mark in listed.items()
        }
        # A camera may write the same name again: another time or size is another picture.
        self._given = {name: mark for name, mark in self._given.items() if name in listed}
        self._broke_decoder = {
            name: count for name, count in self._broke_decoder.items() if name in listed
        }
        for name, (mark, scans) in self._seen.items():
            if not scans:
                self._broke_decoder.pop(name, None)
            elif scans >= self._broke_decoder.get(name, (0, 0))[1] and mark not in (
                ignoring.get(name),
                self._given.get(name),
            ):
                shot = self._read(name, mark, scans)
                if shot is not None:
                    return shot
        return None

    def _is_same(self, path: Path) -> bool:
        """The file is the one that was read, and not a newer picture of the same name."""
        with contextlib.suppress(FileNotFoundError):
            stat = path.stat()
            return (stat.st_mtime_ns, stat.st_size) == self._given.get(path.name)
        return False

    def _rests(self, name: str, mark: Mark) -> bool:
        return name in self._seen and self._seen[name][0] == mark

    def _read(self, name: str, mark: Mark, scans: int) -> CameraImage | None:
        path = self.path / name
        written_at = moment(mark[0])
        try:
            with path.open("rb") as file:
                data = file.read(camera.MAX_BYTES + 1)
            shot = camera.decode(data, captured_at=written_at, path=path)
        except FileNotFoundError:
            return None
        except (CameraError, OSError) as error:
            is_final = scans >= MAX_SCANS or isinstance(error, PoisonError)
            if isinstance(error, PassingError):
                times = self._broke_decoder.get(name, (0, 0))[0] + 1
                self._broke_decoder[name] = (times, scans + RETRY_SCANS)
                is_final = times >= MAX_DECODER_FAILURES
            if is_final:
                log.get(_NAME).warning("camera.refused", name=name, reason=str(error))
                self._move(path, REJECTED)
            return None
        self._given[name] = mark
        return shot

    def _move(self, path: Path, where: str) -> None:
        """Renamed within the folder's own disk; a name that is taken there gets a number."""
        target = self.path / where / path.name
        target.parent.mkdir(exist_ok=True)
        number = 1
        while target.exists():
            target = target.with_name(f"{path.stem}.{number}{path.suffix}")
            number += 1
        with contextlib.suppress(FileNotFoundError):
            path.rename(target)


def moment(written_ns: int) -> datetime:
    """The file's own time; now if no calendar has that day."""
    try:
        return kinds.in_utc(datetime.fromtimestamp(written_ns / 1e9, UTC))
    except (ValueError, OverflowError, OSError):
        return datetime.now(UTC)


def _is_picture(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in _SUFFIXES

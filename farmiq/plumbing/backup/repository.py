"""Where backups lie: a folder or a bucket on another machine; every file is sealed.

file:///mnt/backup/barn-1                 a folder, such as a mounted network disk
https://key:secret@host/bucket/barn-1     S3

A file appears whole or not at all, and is on disk when `write` returns. A folder without its marker
takes nothing: it is a mount point without its disk.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import msgspec
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError

from farmiq.plumbing.backup import sealed, streams
from farmiq.plumbing.storage import objects
from farmiq.plumbing.tls import Tls

MARKER = "farmiq-repository"
_PART = ".part"


class RepositoryError(Exception):
    """The repository cannot be reached, or lacks a file; the text says which."""


@dataclass(frozen=True, slots=True)
class Written:
    """Size and hash of what was given, before it was sealed."""

    size_bytes: int
    sha256: str


class Place(Protocol):
    """Stores files by name, as they are."""

    def put(self, name: str, pieces: Iterable[bytes]) -> None: ...

    def get(self, name: str) -> Iterator[bytes]:
        """Raises FileNotFoundError."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Also parts that were never finished."""
        ...

    def has(self, name: str) -> bool: ...

    def prepare(self, *, is_first: bool) -> None:
        """Raises RepositoryError if a repository that was written to before is not there."""
        ...

    def delete(self, name: str) -> None: ...


class Repository:
    """Sealed files by name. The first key seals, all of them open."""

    def __init__(self, place: Place, keys: Sequence[bytes]) -> None:
        self._place = place
        self._keys = keys

    def write(self, name: str, pieces: Iterable[bytes]) -> Written:
        digest = hashlib.sha256()
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                yield piece

        with _explained(name):
            self._place.put(name, sealed.seal(counted(), key=self._keys[0], name=name))
        return Written(size, digest.hexdigest())

    def read(self, name: str) -> Iterator[bytes]:
        """Raises RepositoryError, or UnsealError of `sealed` at any point up to the end."""
        with _explained(name):
            yield from sealed.unseal(self._place.get(name), keys=self._keys, name=name)

    def write_document(self, name: str, document: Any) -> None:
        self.write(name, [msgspec.json.encode(document)])

    def read_document(self, name: str, kind: Any) -> Any:
        return msgspec.json.decode(b"".join(self.read(name)), type=kind)

    def names(self, prefix: str, *, with_parts: bool = False) -> list[str]:
        """In order."""
        with _explained(prefix):
            names = self._place.names(prefix)
        return sorted(name for name in names if with_parts or not name.endswith(_PART))

    def has(self, name: str) -> bool:
        with _explained(name):
            return self._place.has(name)

    def prepare(self, *, is_first: bool) -> None:
        """Before the first write. `is_first`: nothing of this site was written there before."""
        with _explained(MARKER):
            self._place.prepare(is_first=is_first)

    def delete(self, name: str) -> None:
        with _explained(name):
            self._place.delete(name)


class Folder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        self.prepare(is_first=False)
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = target.with_name(target.name + _PART)
        try:
            with part.open("wb") as opened:
                for piece in pieces:
                    opened.write(piece)
                opened.flush()
                os.fsync(opened.fileno())
            part.replace(target)
        except BaseException:
            # On a full disk it would take the room that the next attempt needs.
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)

    def get(self, name: str) -> Iterator[bytes]:
        return streams.pieces_in(self._root / name)

    def names(self, prefix: str) -> list[str]:
        below = self._root / prefix.rpartition("/")[0]
        paths = (
            path.relative_to(self._root).as_posix() for path in below.rglob("*") if path.is_file()
        )
        return [name for name in paths if name.startswith(prefix) and name != MARKER]

    def has(self, name: str) -> bool:
        return (self._root / name).is_file()

    def prepare(self, *, is_first: bool) -> None:
        marker = self._root / MARKER
        if marker.exists():
            return
        if not is_first:
            raise RepositoryError(
                f"{self._root} has no file {MARKER}, which the first backup makes there: is its "
                f"disk mounted? If it is another folder on purpose: touch {marker}"
            )
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        marker.touch()
        _sync_folder(self._root)

    def delete(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)


class BucketPlace:
    """Objects below a prefix of an S3 bucket."""

    def __init__(self, url: str, *, tls: Tls | None = None) -> None:
        parts = urlsplit(url)
        self._bucket, _, prefix = unquote(parts.path).strip("/").partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._s3 = objects.client(url, at=url, tls=tls)

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        self._s3.upload_fileobj(
            streams.Stream(pieces),
            self._bucket,
            self._prefix + name,
            Config=TransferConfig(use_threads=False),
        )

    def get(self, name: str) -> Iterator[bytes]:
        try:
            answer = self._s3.get_object(Bucket=self._bucket, Key=self._prefix + name)
        except self._s3.exceptions.NoSuchKey as error:
            raise FileNotFoundError(name) from error
        yield from answer["Body"].iter_chunks(streams.PIECE_BYTES)

    def names(self, prefix: str) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix
        )
        return [
            item["Key"].removeprefix(self._prefix)
            for page in pages
            for item in page.get("Contents", [])
        ]

    def has(self, name: str) -> bool:
        return name in self.names(name)

    def prepare(self, *, is_first: bool) -> None:
        """A bucket is there or raises an error."""

    def delete(self, name: str) -> None:
        self._s3.delete_object(Bucket=self._bucket, Key=self._prefix + name)


def open_at(url: str, *, keys: Sequence[bytes], tls: Tls | None = None) -> Repository:
    """Raises ValueError for an address of another kind."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        return Repository(Folder(Path(unquote(parts.path))), keys)
    if parts.scheme in {"http", "https"} and parts.path.strip("/"):
        return Repository(BucketPlace(url, tls=tls), keys)
    raise ValueError(
        f"a backup goes to file:///folder or to https://key:secret@host/bucket/folder, "
        f"not to {parts.scheme or url}:"
    )


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Say of every error of a place which file it was about."""
    try:
        yield
    except FileNotFoundError as error:
        raise RepositoryError(f"the backup repository has no {name}") from error
    except (OSError, BotoCoreError, ClientError) as error:
        raise RepositoryError(f"backup repository, {name}: {error}") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

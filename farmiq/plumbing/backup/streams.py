"""Streams of bytes in pieces: packed, unpacked, hashed, read as a file."""

import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

PIECE_BYTES = 2**20
# gzip with the fastest level: a small machine has better things to do.
_LEVEL, _GZIP = 1, 31
_ZEROS = bytes(2**16)


class CutOffError(Exception):
    """A packed stream ends before its end."""


class Stream(io.RawIOBase):
    """Pieces as a file to read from."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = piece
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


class Counted:
    """Pieces, and how many bytes they had; known when all were taken."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.size_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.size_bytes += len(piece)
            yield piece


def pieces_of(opened: IO[bytes]) -> Iterator[bytes]:
    while piece := opened.read(PIECE_BYTES):
        yield piece


def pieces_in(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        yield from pieces_of(opened)


def write(file: Path, pieces: Iterable[bytes]) -> None:
    """Zeros take no room on the disk: a quiet barn's segment of 16 MiB has little else."""
    with file.open("wb") as opened:
        for piece in pieces:
            for begin in range(0, len(piece), len(_ZEROS)):
                block = piece[begin : begin + len(_ZEROS)]
                if block == _ZEROS[: len(block)]:
                    opened.seek(len(block), io.SEEK_CUR)
                else:
                    opened.write(block)
        opened.truncate()


def packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for piece in pieces:
        if smaller := packer.compress(piece):
            yield smaller
    yield packer.flush()


def unpacked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Raises CutOffError."""
    unpacker = zlib.decompressobj(_GZIP)
    for piece in pieces:
        yield unpacker.decompress(piece)
    yield unpacker.flush()
    if not unpacker.eof:
        raise CutOffError("a packed file ends before its end")


def sha256(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()

"""Seal a stream in chunks with AES-256-GCM: no byte, no order and no end can be changed unseen.

header: magic, salt │ chunk 0 │ chunk 1 │ … │ last chunk (marked as the last one)

The key of a file is derived from the repository's key and a salt of its own. Each chunk is bound
to its number, to being the last one or not, and to the name of the file.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CHUNK_BYTES = 2**20
MAGIC = b"FIQB1"
_SALT_BYTES = 16
_TAG_BYTES = 16
_NUMBER_BYTES = 11


class UnsealError(Exception):
    """The file was changed, cut off, stored under another name, or sealed with another key."""


def seal(pieces: Iterable[bytes], *, key: bytes, name: str) -> Iterator[bytes]:
    salt = secrets.token_bytes(_SALT_BYTES)
    yield MAGIC + salt
    cipher = _cipher(key, salt)
    number, waiting = 0, None
    for chunk in _in_chunks(pieces, CHUNK_BYTES):
        if waiting is not None:
            yield cipher.encrypt(_nonce(number, is_last=False), waiting, name.encode())
            number += 1
        waiting = chunk
    yield cipher.encrypt(_nonce(number, is_last=True), waiting or b"", name.encode())


def unseal(pieces: Iterable[bytes], *, keys: Sequence[bytes], name: str) -> Iterator[bytes]:
    """Give back what was sealed. Raises UnsealError, at the latest at the end."""
    source = _in_chunks(pieces, CHUNK_BYTES + _TAG_BYTES, header=len(MAGIC) + _SALT_BYTES)
    header = next(source, b"")
    if header[: len(MAGIC)] != MAGIC:
        raise UnsealError(f"{name} is not a file of a backup repository")
    ciphers = [_cipher(key, header[len(MAGIC) :]) for key in keys]
    number, waiting = 0, next(source, b"")
    for chunk in source:
        yield _opened(ciphers, waiting, _nonce(number, is_last=False), name)
        number, waiting = number + 1, chunk
    yield _opened(ciphers, waiting, _nonce(number, is_last=True), name)


def _opened(ciphers: Sequence[AESGCM], chunk: bytes, nonce: bytes, name: str) -> bytes:
    for cipher in ciphers:
        try:
            return cipher.decrypt(nonce, chunk, name.encode())
        except (InvalidTag, ValueError):
            continue
    raise UnsealError(f"{name} was changed or cut off, or its key is not in the key file")


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, b"farmiq backup " + salt, hashlib.sha256))


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big") + bytes([is_last])


def _in_chunks(pieces: Iterable[bytes], size: int, *, header: int = 0) -> Iterator[bytes]:
    """Pieces of any size as chunks of `size`, the first of `header` bytes if that is given."""
    buffer = bytearray()
    wanted = header or size
    for piece in pieces:
        buffer += piece
        while len(buffer) >= wanted:
            yield bytes(buffer[:wanted])
            del buffer[:wanted]
            wanted = size
    if buffer:
        yield bytes(buffer)

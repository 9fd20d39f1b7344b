"""Secrets at rest, and tokens that only we can make: AES-256-GCM and HMAC with a key in a file.

The file has one key in each line, 32 bytes in base64. The first one seals and signs; all of them
open and verify. So a new key goes on top, and an old one can go when nothing is sealed with it.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
MAX_TOKEN = 2048
_VERSION = b"\x01"
_NONCE_BYTES = 12
_TAG_BYTES = 32


class SealError(Exception):
    """A key is missing or wrong, or what was to be opened was not sealed by us."""


class Sealer:
    """`bound_to` says what a secret belongs to: sealed for one thing it opens for no other."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._seals = [AESGCM(_derived(key, "seal")) for key in keys]
        self._signs = [_derived(key, "sign") for key in keys]

    def seal(self, secret: bytes, *, bound_to: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + nonce + self._seals[0].encrypt(nonce, secret, bound_to.encode())

    def open(self, sealed: bytes, *, bound_to: str) -> bytes:
        """Raises SealError."""
        nonce, rest = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        for seal in self._seals if sealed[:1] == _VERSION else ():
            try:
                return seal.decrypt(nonce, rest, bound_to.encode())
            except (InvalidTag, ValueError):
                continue
        raise SealError("it was sealed with a key that is not in the key file, or was changed")

    def token(self, content: bytes) -> str:
        """The content with our signature, as text that fits into an address."""
        return _encoded(content + self._tag(self._signs[0], content))

    def content(self, token: str) -> bytes:
        """The content of a token of ours. Raises SealError."""
        try:
            signed = base64.b64decode(
                token + "=" * (-len(token) % 4), altchars=b"-_", validate=True
            )
        except (binascii.Error, ValueError):
            signed = b""
        content, tag = signed[:-_TAG_BYTES], signed[-_TAG_BYTES:]
        # Written in another way it would be another text of the same token.
        if len(token) <= MAX_TOKEN and _encoded(signed) == token:
            for key in self._signs:
                if hmac.compare_digest(tag, self._tag(key, content)):
                    return content
        raise SealError("the token is not one of ours")

    @staticmethod
    def _tag(key: bytes, content: bytes) -> bytes:
        return hmac.digest(key, content, hashlib.sha256)


def read(file: Path) -> Sealer:
    return Sealer(read_keys(file))


def read_keys(file: Path) -> list[bytes]:
    """Raises SealError, which names the file and quotes nothing of it."""
    try:
        lines = file.read_text(encoding="ascii").split()
        keys = [base64.b64decode(line, validate=True) for line in lines]
    except (OSError, ValueError) as error:
        raise SealError(f"cannot read the key in {file}: {type(error).__name__}") from None
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise SealError(f"{file} has to hold a key of {KEY_BYTES} bytes in base64 in each line")
    return keys


def write_new_key(file: Path) -> None:
    """In a file that only its owner reads. Raises FileExistsError: a key is never overwritten."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        opened.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode() + "\n")
        opened.flush()
        os.fsync(opened.fileno())


def _derived(key: bytes, purpose: str) -> bytes:
    return hmac.digest(key, f"farmiq {purpose}".encode(), hashlib.sha256)


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

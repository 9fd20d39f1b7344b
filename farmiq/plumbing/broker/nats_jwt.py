"""Keys and tokens as NATS reads them: ed25519, base32 with a checksum, JWT of alg ed25519-nkey.

Whoever answers a broker's question "may this client in?" signs the answer with an account key, of
which the broker knows the public half.
"""

import base64
import binascii
import hashlib
import secrets
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_ACCOUNT = 0
_SEED = 18 << 3
_SEED_BYTES = 32
_HEADER = b'{"typ":"JWT","alg":"ed25519-nkey"}'


class Key:
    """An account key. `seed` is its secret, `public` goes into the broker's configuration."""

    def __init__(self, seed: str) -> None:
        """Raises ValueError if this is no seed of an account key."""
        try:
            raw = base64.b32decode(seed.strip() + "=" * (-len(seed.strip()) % 8))
        except binascii.Error:
            raw = b""
        head, body, crc = raw[:2], raw[2:-2], raw[-2:]
        if head != bytes([_SEED, 0]) or len(body) != _SEED_BYTES or crc != _checksum(head + body):
            raise ValueError("this is no key for logins at a broker (it begins with SA)")
        self._key = Ed25519PrivateKey.from_private_bytes(body)
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.seed, self.public = seed.strip(), _encoded(bytes([_ACCOUNT]) + public)

    @classmethod
    def new(cls) -> "Key":
        return cls(_encoded(bytes([_SEED, 0]) + secrets.token_bytes(_SEED_BYTES)))

    def sign(self, claims: dict[str, Any]) -> str:
        """A token of these claims; `iss` and `jti` are ours to say."""
        claims = {**claims, "iss": self.public}
        digest = hashlib.sha256(msgspec.json.encode(claims)).digest()
        claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
        text = f"{_plain(_HEADER)}.{_plain(msgspec.json.encode(claims))}"
        return f"{text}.{_plain(self._key.sign(text.encode()))}"


def claims(token: bytes) -> bytes:
    """What a token says, as JSON. Its signature is not looked at: trust who brought it.

    Raises ValueError.
    """
    parts = token.split(b".")
    if len(parts) != 3:  # noqa: PLR2004 - header, claims, signature
        raise ValueError("this is no token")
    return base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4))


def _plain(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _encoded(raw: bytes) -> str:
    return base64.b32encode(raw + _checksum(raw)).decode().rstrip("=")


def _checksum(raw: bytes) -> bytes:
    return binascii.crc_hqx(raw, 0).to_bytes(2, "little")

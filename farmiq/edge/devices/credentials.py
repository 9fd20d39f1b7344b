"""The secret of a device for the broker and its token for HTTP: shown once, stored as hashes.

The secret has 192 random bits, so nobody guesses it and the hashes may be cheap: a broker that
restarts must accept a whole farm again within seconds.
"""

import base64
import hashlib
import secrets
from dataclasses import dataclass

import bcrypt

from farmiq.edge import api_keys

_BCRYPT_COST = 4
_PBKDF2_ROUNDS = 101
_SALT_BYTES = 12


@dataclass(frozen=True, slots=True)
class Secret:
    """`plain` and `token` are for the device and for nobody else."""

    plain: str
    bcrypt: str
    pbkdf2: str
    token: str
    token_sha256: bytes


def new() -> Secret:
    plain = secrets.token_urlsafe(24)
    token = api_keys.new_device_token()
    return Secret(
        plain,
        _for_nats(plain),
        _for_mosquitto(plain, secrets.token_bytes(_SALT_BYTES)),
        token,
        api_keys.digest(token),
    )


def fits(plain: str, secret_bcrypt: str) -> bool:
    return bcrypt.checkpw(plain.encode(), secret_bcrypt.encode())


def _for_nats(plain: str) -> str:
    return bcrypt.hashpw(plain.encode(), bcrypt.gensalt(_BCRYPT_COST, b"2a")).decode()


def _for_mosquitto(plain: str, salt: bytes) -> str:
    digest = hashlib.pbkdf2_hmac("sha512", plain.encode(), salt, _PBKDF2_ROUNDS)
    salted, hashed = (base64.b64encode(part).decode() for part in (salt, digest))
    return f"$7${_PBKDF2_ROUNDS}${salted}${hashed}"

"""Service tokens: short-lived JWTs, EdDSA or RS256 only, verified against public keys."""

import base64
import json
import os
import re
import warnings
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import KeySet, OKPKey
from joserfc.util import to_str

from farmiq.plumbing import ids

# Ed25519 is the name RFC 9864 gives to what was called EdDSA; both names stay good.
ALGORITHM = "Ed25519"
ALGORITHMS = [ALGORITHM, "EdDSA", "RS256"]
warnings.filterwarnings("ignore", "EdDSA is deprecated", SecurityWarning)
LONGEST = timedelta(hours=1)
LEEWAY_S = 30
MOST_BYTES = 8 * 1024
# 32 bytes as base64url: an Ed25519 public key, and a SHA-256 thumbprint.
_32_BYTES = re.compile(r"[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")


class TokenError(Exception):
    """The token is not good; the text says why without quoting it."""


@dataclass(frozen=True, slots=True)
class Claims:
    subject: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An Ed25519 key by its point; its id is its thumbprint (RFC 7638), nobody's to choose."""

    x: str

    @classmethod
    def read(cls, jwk: Any) -> "PublicKey":
        """Raises TokenError for anything but the public part of an Ed25519 key."""
        if not isinstance(jwk, dict) or (jwk.get("kty"), jwk.get("crv")) != ("OKP", "Ed25519"):
            raise TokenError("not an Ed25519 key as a JWK (kty OKP, crv Ed25519, x)")
        if "d" in jwk:
            raise TokenError("this is a private key: it must never leave its machine; make another")
        if not isinstance(jwk.get("x"), str) or not _32_BYTES.fullmatch(jwk["x"]):
            raise TokenError("x has to be 32 bytes as base64url")
        return cls(jwk["x"])

    @property
    def key_id(self) -> str:
        return str(OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": self.x}).thumbprint())

    def as_jwk(self) -> dict[str, str]:
        return {
            "kty": "OKP", "crv": "Ed25519", "x": self.x, "kid": self.key_id, "use": "sig",
            "alg": ALGORITHM,
        }  # fmt: skip

    def as_set(self) -> KeySet:
        return KeySet([OKPKey.import_key({**self.as_jwk()})])


def new_key() -> dict[str, Any]:
    """A fresh private key as a JWK; the public part is `public_part` of it."""
    key = OKPKey.generate_key("Ed25519", parameters={"use": "sig"})
    return {**key.as_dict(private=True), "kid": key.thumbprint()}


def public_part(private: dict[str, Any]) -> dict[str, Any]:
    return dict(OKPKey.import_key(private).as_dict(private=False))


def sign(
    private: dict[str, Any],
    *,
    subject: str,
    issuer: str,
    audience: str,
    now: datetime,
    lifetime: timedelta = timedelta(minutes=10),
    **claims: Any,
) -> str:
    key = OKPKey.import_key(private)
    issued_at = int(now.timestamp())
    return jwt.encode(
        {"alg": ALGORITHM, "kid": key.kid},
        {
            "iss": issuer,
            "aud": audience,
            "sub": subject,
            "iat": issued_at,
            "nbf": issued_at,
            "exp": issued_at + int(lifetime.total_seconds()),
            "jti": str(ids.new()),
            **claims,
        },
        key,
        algorithms=ALGORITHMS,
    )


def read_keys(file: Path) -> KeySet:
    """The public keys we trust. Raises TokenError naming the file if it is missing or odd."""
    try:
        return KeySet.import_key_set(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, JoseError) as error:
        raise TokenError(f"cannot read the public keys in {file}: {error}") from error


def key_id(token: str) -> str | None:
    """Which key a token says it is signed with, unproven; None if it says nothing usable."""
    if len(token) > MOST_BYTES:
        return None
    try:
        head = token.partition(".")[0].encode("ascii")
        said = json.loads(base64.urlsafe_b64decode(head + b"=" * (-len(head) % 4)))
    except (ValueError, RecursionError):
        return None
    found = said.get("kid") if isinstance(said, dict) else None
    return found if isinstance(found, str) else None


def is_thumbprint(text: str) -> bool:
    return _32_BYTES.fullmatch(text) is not None


def verify(token: str, keys: KeySet, *, issuer: str, audience: str, now: datetime) -> Claims:
    """The claims of a good token. The algorithm is ours to fix, never the token's to choose."""
    if len(token) > MOST_BYTES:
        raise TokenError("token is too long")
    try:
        decoded = jwt.decode(to_str(token), keys, algorithms=ALGORITHMS)
        registry = jwt.JWTClaimsRegistry(
            now=int(now.timestamp()),
            leeway=LEEWAY_S,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "value": audience},
            sub={"essential": True},
            exp={"essential": True},
            nbf={"essential": True},
            iat={"essential": True},
            jti={"essential": True},
        )
        registry.validate(decoded.claims)
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise TokenError(f"token refused: {error}") from None
    if decoded.claims["exp"] - decoded.claims["iat"] > LONGEST.total_seconds():
        raise TokenError("token refused: it lives longer than an hour")
    return Claims(decoded.claims["sub"], dict(decoded.claims))


def write_new_key(private_file: Path, public_file: Path) -> str:
    """A new private key in its own file (0600), its public part added to a set; returns its id."""
    private = new_key()
    known: dict[str, list[dict[str, Any]]] = {"keys": []}
    if public_file.exists():
        known = json.loads(public_file.read_text(encoding="utf-8"))
    known["keys"].append(public_part(private))
    write_private(private_file, private)
    public_file.write_text(json.dumps(known, indent=2), encoding="utf-8")
    return str(private["kid"])


def write_private(file: Path, private: dict[str, Any]) -> None:
    """In a file of its own that only its owner reads. Raises FileExistsError: never overwritten."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        json.dump(private, opened)
        opened.flush()
        os.fsync(opened.fileno())

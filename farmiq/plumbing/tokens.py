"""Service tokens: short-lived JWTs, EdDSA or RS256 only, verified against public keys."""

import base64
import hashlib
import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import KeySet, OKPKey, RSAKey
from joserfc.util import to_str

from farmiq.plumbing import ids

# Ed25519 is the name RFC 9864 gives to what was called EdDSA; both names stay good.
ALGORITHM = "Ed25519"
ALGORITHMS = [ALGORITHM, "EdDSA", "RS256"]
warnings.filterwarnings("ignore", "EdDSA is deprecated", SecurityWarning)
MAX_LIFETIME = timedelta(hours=1)
LEEWAY_S = 30
MAX_BYTES = 8 * 1024
# 32 bytes as base64url: an Ed25519 public key, and a SHA-256 thumbprint.
LEAST_RSA_BITS, NEW_RSA_BITS, MAX_RSA_BITS = 2048, 3072, 4096
_EXPONENT = "AQAB"
_RSA = "RSA."
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_NEITHER = "neither an Ed25519 key (kty OKP, crv Ed25519, x) nor an RSA key (kty RSA, n, e) as JWK"
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_32_BYTES = re.compile(r"[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")


class TokenError(Exception):
    """The token is not good; the text says why without quoting it."""


@dataclass(frozen=True, slots=True)
class Claims:
    subject: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An Ed25519 or RSA key; its id is its thumbprint (RFC 7638), so nobody chooses it.

    `text` is the point of the one, and `RSA.` with the modulus of the other.
    """

    text: str

    @classmethod
    def read(cls, jwk: Any) -> "PublicKey":
        """Raises TokenError for anything but the public part of such a key."""
        if not isinstance(jwk, dict):
            raise TokenError(_NEITHER)
        if _PRIVATE & jwk.keys():
            raise TokenError("this is a private key: it must never leave its machine; make another")
        match jwk.get("kty"), jwk.get("crv"):
            case "OKP", "Ed25519":
                return cls(_point(jwk.get("x")))
            case "RSA", None:
                return cls(_RSA + _modulus(jwk.get("n"), jwk.get("e")))
        raise TokenError(_NEITHER)

    @property
    def key_id(self) -> str:
        return str(_imported(self._bare()).thumbprint())

    def as_jwk(self) -> dict[str, str]:
        bare = self._bare()
        return {**bare, "kid": self.key_id, "use": "sig", "alg": algorithm_of(bare)}

    def as_set(self) -> KeySet:
        return KeySet([_imported(_nameless(self.as_jwk()))])

    def _bare(self) -> dict[str, str]:
        if self.text.startswith(_RSA):
            return {"kty": "RSA", "n": self.text.removeprefix(_RSA), "e": _EXPONENT}
        return {"kty": "OKP", "crv": "Ed25519", "x": self.text}


def _point(x: Any) -> str:
    if not isinstance(x, str) or not _32_BYTES.fullmatch(x):
        raise TokenError("x has to be 32 bytes as base64url")
    return x


def _modulus(n: Any, e: Any) -> str:
    if e != _EXPONENT:
        raise TokenError(f"e has to be 65537 ({_EXPONENT})")
    if not isinstance(n, str) or len(n) > MAX_BYTES or not _BASE64URL.fullmatch(n):
        raise TokenError("n has to be base64url")
    try:
        number = base64.urlsafe_b64decode(n + "=" * (-len(n) % 4))
    except ValueError:
        raise TokenError("n has to be base64url") from None
    # Written in another way it would be another text, and so another key, of the same number.
    if base64.urlsafe_b64encode(number).rstrip(b"=").decode() != n or number.startswith(b"\0"):
        raise TokenError("n has to be base64url in its shortest form")
    value = int.from_bytes(number)
    if not (LEAST_RSA_BITS <= value.bit_length() <= MAX_RSA_BITS and value % 2):
        raise TokenError(f"an RSA key has {LEAST_RSA_BITS} to {MAX_RSA_BITS} bits")
    return n


def _imported(jwk: Mapping[str, Any]) -> OKPKey | RSAKey:
    kind = RSAKey if jwk.get("kty") == "RSA" else OKPKey
    return kind.import_key({**jwk})


def _nameless(jwk: Mapping[str, Any]) -> dict[str, Any]:
    """Without one of the two names of what Ed25519 keys do: the kind of the key settles it."""
    return {
        name: value
        for name, value in jwk.items()
        if not (name == "alg" and value in (ALGORITHM, "EdDSA") and jwk.get("kty") == "OKP")
    }


def new_key(algorithm: str = ALGORITHM) -> dict[str, Any]:
    """A fresh private key as a JWK; the public part is `public_part` of it."""
    key = (
        RSAKey.generate_key(NEW_RSA_BITS, parameters={"use": "sig"})
        if algorithm == "RS256"
        else OKPKey.generate_key("Ed25519", parameters={"use": "sig"})
    )
    return {**key.as_dict(private=True), "kid": key.thumbprint()}


def algorithm_of(jwk: Mapping[str, Any]) -> str:
    return "RS256" if jwk.get("kty") == "RSA" else ALGORITHM


def public_part(private: dict[str, Any]) -> dict[str, Any]:
    return dict(_imported(private).as_dict(private=False))


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
    key = _imported(_nameless(private))
    issued_at = int(now.timestamp())
    return jwt.encode(
        {"alg": algorithm_of(private), "kid": key.kid},
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


def request_digest(route: str, body: bytes) -> str:
    """What a token says of the one request that it was made for (claim `request_sha256`)."""
    return hashlib.sha256(route.encode() + b"\n" + body).hexdigest()


def read_keys(file: Path) -> KeySet:
    """The public keys we trust. Raises TokenError naming the file if it is missing or odd."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        for jwk in document["keys"]:
            if jwk.get("kty") == "RSA":
                _modulus(jwk.get("n"), jwk.get("e"))
        return KeySet.import_key_set({"keys": [_nameless(jwk) for jwk in document["keys"]]})
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        JoseError,
        TokenError,
    ) as error:
        raise TokenError(f"cannot read the public keys in {file}: {error}") from error


def key_id(token: str) -> str | None:
    """Which key a token says it is signed with, unproven; None if it says nothing usable."""
    if len(token) > MAX_BYTES:
        return None
    try:
        head = token.partition(".")[0].encode("ascii")
        header = json.loads(base64.urlsafe_b64decode(head + b"=" * (-len(head) % 4)))
    except (ValueError, RecursionError):
        return None
    name = header.get("kid") if isinstance(header, dict) else None
    return name if isinstance(name, str) else None


def is_thumbprint(text: str) -> bool:
    return _32_BYTES.fullmatch(text) is not None


def verify(token: str, keys: KeySet, *, issuer: str, audience: str, now: datetime) -> Claims:
    """The claims of a good token. The algorithm is ours to fix, never the token's to choose."""
    if len(token) > MAX_BYTES:
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
    if decoded.claims["exp"] - decoded.claims["iat"] > MAX_LIFETIME.total_seconds():
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

"""Service tokens: short-lived JWTs, EdDSA or RS256 only, verified against a file of public keys."""

import json
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


class TokenError(Exception):
    """The token is not good; the text says why without quoting it."""


@dataclass(frozen=True, slots=True)
class Claims:
    subject: str
    values: dict[str, Any]


def new_key() -> dict[str, Any]:
    """A fresh private key as a JWK; the public part is `public_part` of it."""
    key = OKPKey.generate_key("Ed25519", parameters={"kid": str(ids.new()), "use": "sig"})
    return dict(key.as_dict(private=True))


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
    private_file.touch(mode=0o600, exist_ok=False)
    private_file.write_text(json.dumps(private), encoding="utf-8")
    public_file.write_text(json.dumps(known, indent=2), encoding="utf-8")
    return str(private["kid"])

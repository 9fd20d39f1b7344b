"""Service tokens: a good one is read, any other is refused with TokenError and nothing else."""

import base64
import hashlib
import hmac
import json
import random
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws, jwt
from joserfc.jwk import KeySet, OKPKey, RSAKey

from farmiq.plumbing import tokens
from farmiq.plumbing.tokens import Claims, TokenError

NOW = datetime(2025, 1, 2, 10, 0, tzinfo=UTC)
KEY = tokens.new_key()
PUBLIC = tokens.public_part(KEY)
KEYS = KeySet.import_key_set({"keys": [PUBLIC]})


def signed(**changes: Any) -> str:
    given: dict[str, Any] = {"subject": "edge-1", "issuer": "iss", "audience": "aud", "now": NOW}
    return tokens.sign(KEY, **{**given, **changes})


def verify(token: str, *, now: datetime = NOW, keys: KeySet = KEYS) -> Claims:
    return tokens.verify(token, keys, issuer="iss", audience="aud", now=now)


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def with_claims(**claims: Any) -> str:
    """Signed by the right key, with claims that `sign` would not write."""
    at = int(NOW.timestamp())
    usual = {
        "iss": "iss", "aud": "aud", "sub": "s", "iat": at, "nbf": at, "exp": at + 60, "jti": "j",
    }  # fmt: skip
    whole = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    header = {"alg": "Ed25519", "kid": KEY["kid"]}
    return jwt.encode(header, whole, OKPKey.import_key(KEY), algorithms=tokens.ALGORITHMS)


def test_a_good_token_is_read() -> None:
    claims = verify(signed(tenants=["t-001"]))

    assert claims.subject == "edge-1"
    assert claims.values["tenants"] == ["t-001"]


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("algorithm", ["EdDSA", "RS256"])
def test_the_other_algorithms_that_we_trust(algorithm: str) -> None:
    key = OKPKey.import_key(KEY) if algorithm == "EdDSA" else RSAKey.generate_key(2048)
    claims = jws.extract_compact(with_claims().encode()).payload
    token = jws.serialize_compact({"alg": algorithm}, claims, key, algorithms=[algorithm])

    assert verify(token, keys=KeySet([key])).subject == "s"


RSA = RSAKey.generate_key(2048)
RSA_PUBLIC = tokens.PublicKey.read(RSA.as_dict(private=False))


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("algorithm", ["EdDSA", "Ed25519"])
def test_an_enrolled_key_may_go_by_both_names_of_what_it_does(
    algorithm: str, tmp_path: Path
) -> None:
    public = tokens.PublicKey.read(PUBLIC)
    token = jws.serialize_compact(
        {"alg": algorithm, "kid": public.key_id},
        jws.extract_compact(with_claims().encode()).payload,
        OKPKey.import_key(KEY),
        algorithms=[algorithm],
    )
    assert verify(token, keys=public.as_set()).subject == "s"
    for named in ("EdDSA", "Ed25519"):
        (tmp_path / named).write_text(json.dumps({"keys": [public.as_jwk() | {"alg": named}]}))
        assert verify(token, keys=tokens.read_keys(tmp_path / named)).subject == "s"


def test_an_rsa_key_signs_and_is_known_again_by_what_is_kept_of_it() -> None:
    private = {**RSA.as_dict(private=True), "kid": RSA_PUBLIC.key_id}
    token = tokens.sign(private, subject="s", issuer="iss", audience="aud", now=NOW)
    kept = tokens.PublicKey(RSA_PUBLIC.text)
    assert verify(token, keys=kept.as_set()).subject == "s"
    assert kept.as_jwk()["alg"] == "RS256"
    assert tokens.is_thumbprint(kept.key_id)
    assert tokens.PublicKey.read(tokens.public_part(private)) == kept


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("said", ["RS256", "EdDSA", "Ed25519", "PS256", "RS384", "HS256", "none"])
@pytest.mark.parametrize("other", ["RS256", "Ed25519"])
def test_the_kind_of_a_key_is_not_the_tokens_to_choose(said: str, other: str) -> None:
    """A signature made the one way under the name of the other, and the key of either."""
    keys: list[tokens.PublicKey] = [RSA_PUBLIC, tokens.PublicKey.read(PUBLIC)]
    claims = signed().split(".")[1]
    for public in keys:
        if other == said and (public is RSA_PUBLIC) == (said == "RS256"):
            continue
        head = f"{part({'alg': said, 'kid': public.key_id})}.{claims}"
        key: Any = RSA if other == "RS256" else OKPKey.import_key(KEY)
        payload = base64.urlsafe_b64decode(claims + "==")
        whole = jws.serialize_compact({"alg": other}, payload, key, algorithms=[other])
        with pytest.raises(TokenError):
            verify(f"{head}.{whole.rpartition('.')[2]}", keys=public.as_set())


def rsa(**changes: Any) -> dict[str, Any]:
    return {**RSA.as_dict(private=False), **changes}


@pytest.mark.parametrize(
    "jwk",
    [
        RSA.as_dict(private=True),
        rsa(n=part(b"\xff" * 255)),
        rsa(e="AQ"), rsa(e="Aw"), rsa(e=65537), rsa(e=None), rsa(n=None), rsa(n=1), rsa(n=""),
        rsa(n="A"), rsa(n="é"), rsa(n="AA" + str(RSA.as_dict(private=False)["n"])),
        rsa(n=str(RSA.as_dict(private=False)["n"]) + "=="), rsa(n="_" * 100_000),
        rsa(n=part(b"\xff" * 256 + b"\xfe")), rsa(n=part(b"\xff" * 513)), rsa(crv="Ed25519"),
        rsa(kty="oct"), {"kty": "oct", "k": "AAAA"}, {}, [], None, "RSA",
    ],
)  # fmt: skip
def test_an_rsa_key_that_is_weak_odd_or_private_is_not_read(jwk: Any) -> None:
    with pytest.raises(TokenError):
        tokens.PublicKey.read(jwk)


def test_a_token_is_good_until_it_expires_and_half_a_minute_longer() -> None:
    token = signed(lifetime=timedelta(minutes=10))

    for late_s in (0, 600, 629):
        verify(token, now=NOW + timedelta(seconds=late_s))
    with pytest.raises(TokenError):
        verify(token, now=NOW + timedelta(seconds=631))


def test_a_token_of_the_future_is_refused() -> None:
    verify(signed(), now=NOW - timedelta(seconds=29))
    with pytest.raises(TokenError):
        verify(signed(), now=NOW - timedelta(seconds=31))


@pytest.mark.parametrize("changes", [{"issuer": "other"}, {"audience": "other"}])
def test_a_token_of_or_for_somebody_else_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(TokenError):
        verify(signed(**changes))


def test_an_hour_is_the_longest_life() -> None:
    verify(signed(lifetime=timedelta(hours=1)))
    with pytest.raises(TokenError, match="longer than an hour"):
        verify(signed(lifetime=timedelta(hours=1, seconds=1)))


@pytest.mark.parametrize("name", ["iss", "aud", "sub", "iat", "nbf", "exp", "jti"])
def test_every_claim_is_required(name: str) -> None:
    verify(with_claims())
    with pytest.raises(TokenError):
        verify(with_claims(**{name: None}))


@pytest.mark.parametrize("name", ["iss", "aud", "sub", "iat", "nbf", "exp", "jti"])
@pytest.mark.parametrize("value", ["", True, [], {}, 1e300, float("nan"), float("inf")])
def test_odd_claims_are_refused_even_if_signed(name: str, value: Any) -> None:
    with pytest.raises(TokenError):
        verify(with_claims(**{name: value}))


def test_algorithm_none_is_refused() -> None:
    claims = signed().split(".")[1]

    for spelling in ("none", "None", "NONE", ""):
        for signature in ("", "x"):
            with pytest.raises(TokenError):
                verify(f"{part({'alg': spelling, 'kid': KEY['kid']})}.{claims}.{signature}")


def test_the_public_key_is_not_a_shared_secret() -> None:
    secrets = [
        PUBLIC["x"].encode(),
        base64.urlsafe_b64decode(PUBLIC["x"] + "=="),
        json.dumps(PUBLIC).encode(),
        OKPKey.import_key(PUBLIC).as_pem(private=False),
    ]
    head = f"{part({'alg': 'HS256', 'kid': KEY['kid']})}.{signed().split('.')[1]}"

    for secret in secrets:
        signature = hmac.new(secret, head.encode(), hashlib.sha256).digest()
        with pytest.raises(TokenError):
            verify(f"{head}.{part(signature)}")


def test_a_key_that_the_token_brings_along_is_not_trusted() -> None:
    stranger = tokens.new_key()
    key = OKPKey.import_key(stranger)
    claims = jws.extract_compact(with_claims().encode()).payload
    for header in (
        {"alg": "Ed25519", "kid": KEY["kid"]},
        {"alg": "Ed25519", "jwk": tokens.public_part(stranger)},
        {"alg": "Ed25519", "kid": KEY["kid"], "jwk": tokens.public_part(stranger)},
    ):
        token = jws.serialize_compact(header, claims, key, algorithms=["Ed25519"])
        with pytest.raises(TokenError):
            verify(token)


def test_an_unknown_key_is_refused() -> None:
    stranger = tokens.new_key()
    token = tokens.sign(stranger, subject="s", issuer="iss", audience="aud", now=NOW)

    with pytest.raises(TokenError):
        verify(token)


def test_a_huge_token_is_refused_unread() -> None:
    with pytest.raises(TokenError, match="too long"):
        verify("x" * (tokens.MAX_BYTES + 1))
    with pytest.raises(TokenError, match="too long"):
        verify(signed(filler="x" * tokens.MAX_BYTES))


def test_every_truncation_is_refused() -> None:
    token = signed()

    for end in range(len(token)):
        with pytest.raises(TokenError):
            verify(token[:end])


@pytest.mark.parametrize(
    "payload", [b"[]", b"1", b"null", b"text", b"\xff", b"", b"[" * 3000 + b"]" * 3000]
)
def test_signed_content_that_is_not_claims_is_refused(payload: bytes) -> None:
    header = {"alg": "Ed25519", "kid": KEY["kid"]}
    key = OKPKey.import_key(KEY)

    with pytest.raises(TokenError):
        verify(jws.serialize_compact(header, payload, key, algorithms=["Ed25519"]))


@pytest.mark.parametrize(
    "header",
    [
        [], 1, "x", None, {}, {"alg": None}, {"alg": []}, {"alg": "Ed25519", "kid": []},
        {"alg": "Ed25519", "kid": {}}, {"alg": "Ed25519", "kid": 5}, {"alg": "A128KW", "enc": "x"},
        {"alg": "Ed25519", "kid": KEY["kid"], "crit": 1}, {"alg": "RS256", "kid": KEY["kid"]},
        {"alg": "Ed25519", "kid": KEY["kid"], "crit": ["b64"], "b64": False},
        {"alg": "Ed25519", "kid": KEY["kid"], "zip": "DEF"}, {"alg": "Ed25519", "jku": "http://x"},
    ],
)  # fmt: skip
def test_odd_headers_are_refused(header: Any) -> None:
    _, claims, signature = signed().split(".")

    with pytest.raises(TokenError):
        verify(f"{part(header)}.{claims}.{signature}")


def test_hundreds_of_mutations_are_all_refused() -> None:
    token, chance = signed(), random.Random(7)
    last = len(token) - 1  # its lowest bits are padding: other spellings of the same bytes
    for _ in range(600):
        at = chance.randrange(last)
        change = chance.choice(["", ".", "=", " ", "é", "\ud800", "\x00", "A", "_", "AAAA"])
        mutated = token[:at] + change + token[at + chance.randint(0, 2) :]
        if mutated != token:
            with pytest.raises(TokenError):
                verify(mutated)


@given(st.text(max_size=300))
def test_random_text_is_no_token(text: str) -> None:
    with pytest.raises(TokenError):
        verify(text)


def test_a_refusal_does_not_quote_the_token() -> None:
    token = signed()

    for odd in (token[:-10], token + "A", f"{token}.{token}"):
        with pytest.raises(TokenError) as refused:
            verify(odd)
        assert token[:20] not in str(refused.value)


# --- the files


def test_new_keys_are_added_and_all_are_trusted(tmp_path: Path) -> None:
    public = tmp_path / "public.json"
    names = ["one.json", "two.json"]
    kids = [tokens.write_new_key(tmp_path / name, public) for name in names]
    keys = tokens.read_keys(public)

    assert [key.kid for key in keys.keys] == kids
    for name in names:
        private = json.loads((tmp_path / name).read_text(encoding="utf-8"))
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        token = tokens.sign(private, subject="s", issuer="iss", audience="aud", now=NOW)
        assert verify(token, keys=keys).subject == "s"
    assert '"d"' not in public.read_text(encoding="utf-8")


def test_a_private_key_is_never_overwritten(tmp_path: Path) -> None:
    tokens.write_new_key(tmp_path / "one.json", tmp_path / "public.json")
    before = [(tmp_path / name).read_bytes() for name in ("one.json", "public.json")]

    with pytest.raises(FileExistsError):
        tokens.write_new_key(tmp_path / "one.json", tmp_path / "public.json")
    assert before == [(tmp_path / name).read_bytes() for name in ("one.json", "public.json")]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", "1", '{"keys":1}', '{"keys":[{}]}', "\x00"]
)
def test_an_odd_file_of_keys_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "public.json"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(TokenError, match=r"public\.json"):
        tokens.read_keys(file)


def test_a_missing_file_of_keys_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenError, match=r"absent\.json"):
        tokens.read_keys(tmp_path / "absent.json")

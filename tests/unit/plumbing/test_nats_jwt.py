"""Keys as NATS writes them."""

import pytest

from farmiq.plumbing.broker.nats_jwt import Key, claims

PUBLIC_KEY = "ACNM7RSNBEOSNWGBKMD6TMIHFWSCKWNQPB3AVGU45KVWZ34YUTCMNN5Z"


def test_key_is_read_back_from_its_seed_and_says_who_signed() -> None:
    key = Key.new()
    assert (key.seed[:2], key.public[0], len(key.public)) == ("SA", "A", 56)
    assert Key(f"{key.seed}\n").public == key.public
    said = claims(key.sign({"sub": "U1", "nats": {}}).encode())
    assert b'"sub":"U1"' in said
    assert key.public.encode() in said


@pytest.mark.parametrize("seed", ["", "SA", "not base32!", PUBLIC_KEY, "SA" + "A" * 56])
def test_text_that_is_no_seed_is_rejected(seed: str) -> None:
    with pytest.raises(ValueError, match="no key"):
        Key(seed)


@pytest.mark.parametrize("token", [b"", b"a.b", b"a.b.c.d"])
def test_text_that_is_no_token_is_rejected(token: bytes) -> None:
    with pytest.raises(ValueError, match="no token"):
        claims(token)

import pytest

from farmiq.cloud.identity import passwords
from tests import conftest


@pytest.fixture(autouse=True)
def as_in_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "hasher", conftest.DEAR)


def test_a_hash_proves_its_password_only() -> None:
    kept = passwords.hashed("correct horse")
    assert kept.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert passwords.matches(kept, "correct horse")
    assert not passwords.matches(kept, "correct horsf")


def test_nobody_matches_even_with_nobodys_password() -> None:
    assert not passwords.matches(None, "nobody has this password")


def test_what_is_no_hash_matches_nothing() -> None:
    assert not passwords.matches("plain text", "plain text")


def test_a_longer_password_is_not_cut_to_one_that_matches() -> None:
    longest = "x" * passwords.MAX_LENGTH
    kept = passwords.hashed(longest)
    assert passwords.matches(kept, longest)
    assert not passwords.matches(kept, f"{longest}y")


@pytest.mark.parametrize("password", ["", "short", "x" * 1025])
def test_some_passwords_are_none(password: str) -> None:
    with pytest.raises(ValueError, match="8 to 1024 characters"):
        passwords.hashed(password)

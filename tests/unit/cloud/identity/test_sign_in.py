from dataclasses import replace

import pytest

from farmiq.cloud.identity import sign_in, store
from farmiq.plumbing import ids


def test_tokens_are_long_and_different() -> None:
    tokens = {store.new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {store.TOKEN_LENGTH}
    assert {len(store.hash_token(token)) for token in tokens} == {32}


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("  Anna@Example.COM ", "anna@example.com"),
        ("a\0b@example.com", ""),
        (f"{'x' * 250}@example.com", ""),
    ],
)
def test_an_email_is_compared_as_it_is_kept(typed: str, kept: str) -> None:
    assert store.normal_email(typed) == kept


ANNA = store.User(
    user_id=ids.new(),
    company_id=ids.new(),
    password_hash="$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA",
    email="anna@example.com",
    has_second_factor=False,
)


def test_browser_is_known_by_its_cookie_for_one_person_and_one_password() -> None:
    cookie = sign_in.browser_cookie(ANNA)

    assert sign_in.browser_id(ANNA, cookie) == cookie.partition(".")[0]
    assert sign_in.browser_id(replace(ANNA, user_id=ids.new()), cookie) is None
    assert sign_in.browser_id(replace(ANNA, password_hash="another"), cookie) is None
    assert sign_in.browser_id(None, cookie) is None


@pytest.mark.parametrize("cookie", [None, "", ".", "a.b", "ä.ö", f"{'x' * 200}.y"])
def test_cookie_that_was_made_up_is_no_browser(cookie: str | None) -> None:
    assert sign_in.browser_id(ANNA, cookie) is None


def test_each_role_may_what_those_before_it_may() -> None:
    assert store.RANKS == ("viewer", "operator", "technician", "admin", "super_admin")
    for place, role in enumerate(store.RANKS):
        assert [store.is_at_least(role, least) for least in store.RANKS] == [
            other <= place for other in range(len(store.RANKS))
        ]

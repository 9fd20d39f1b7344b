import pytest

from farmiq.cloud.identity import desk


def test_tokens_are_long_and_different() -> None:
    tokens = {desk.new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {desk._TOKEN_LENGTH}
    assert {len(desk.token_hash(token)) for token in tokens} == {32}


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("  Anna@Example.COM ", "anna@example.com"),
        ("a\0b@example.com", ""),
        (f"{'x' * 250}@example.com", ""),
    ],
)
def test_an_email_is_compared_as_it_is_kept(typed: str, kept: str) -> None:
    assert desk.normal_email(typed) == kept

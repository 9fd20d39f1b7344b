"""Passwords: stored as argon2id hashes, compared in the same time with or without a hash."""

import functools

import argon2
from argon2.exceptions import InvalidHashError, VerificationError

# A longer one would only cost time.
MAX_LENGTH = 1024
MIN_LENGTH = 8

hasher = argon2.PasswordHasher()


def hashed(password: str) -> str:
    """Raises ValueError if the password is too short or too long to be one."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise ValueError(
            f"a password has {MIN_LENGTH} to {MAX_LENGTH} characters: choose another one"
        )
    return hasher.hash(password)


def matches(password_hash: str | None, password: str) -> bool:
    """Takes the same time when there is no such person, so that time does not show who exists."""
    try:
        hasher.verify(password_hash or dummy_hash(), password[:MAX_LENGTH])
    except (VerificationError, InvalidHashError):
        return False
    return password_hash is not None and len(password) <= MAX_LENGTH


@functools.cache
def dummy_hash() -> str:
    return hasher.hash("nobody has this password")

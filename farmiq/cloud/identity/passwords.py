"""Passwords: kept as argon2id hashes, compared in the same time whether or not there is a hash."""

import functools

import argon2
from argon2.exceptions import InvalidHashError, VerificationError

# Longer ones would only make us hash for somebody else's amusement.
LONGEST = 1024
SHORTEST = 8

_hasher = argon2.PasswordHasher()


def hashed(password: str) -> str:
    """Raises ValueError if the password is too short or too long to be one."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise ValueError(f"a password has {SHORTEST} to {LONGEST} characters: choose another one")
    return _hasher.hash(password)


def matches(password_hash: str | None, password: str) -> bool:
    """Costs the same work when there is no such person: time must not tell who is known here."""
    try:
        _hasher.verify(password_hash or _nobodys_hash(), password[:LONGEST])
    except (VerificationError, InvalidHashError):
        return False
    return password_hash is not None and len(password) <= LONGEST


@functools.cache
def _nobodys_hash() -> str:
    return _hasher.hash("nobody has this password")

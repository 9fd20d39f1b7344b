"""Pure: the one-time code of an invitation, as people read and type it."""

import hashlib

# No letters that look like others (0 O, 1 I L), none that is hard to say apart.
LETTERS = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
LENGTH = 25
_GROUP = 5


def written(letters: str) -> str:
    """In groups, as it is printed."""
    return "-".join(letters[at : at + _GROUP] for at in range(0, len(letters), _GROUP))


def normal(typed: str) -> str:
    """As it was made, however it was typed."""
    return "".join(typed.split()).replace("-", "").upper()


def digest(typed: str) -> bytes:
    return hashlib.sha256(normal(typed).encode(errors="replace")).digest()

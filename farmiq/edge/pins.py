"""A PIN with which the owner of a key signs in at the edge's console; bcrypt keeps it.

Without a web framework: the command that sets one starts quickly.
"""

import functools
import re
from itertools import pairwise

import bcrypt

MIN_DIGITS, MAX_DIGITS = 6, 12
_COST = 11
_PIN = re.compile(rf"[0-9]{{{MIN_DIGITS},{MAX_DIGITS}}}", re.ASCII)


def problem(pin: str) -> str | None:
    """Why this cannot be somebody's PIN, or None."""
    if not _PIN.fullmatch(pin):
        return f"a PIN has {MIN_DIGITS} to {MAX_DIGITS} digits and nothing else"
    steps = {int(after) - int(before) for before, after in pairwise(pin)}
    if steps in ({0}, {1}, {-1}):
        return "a PIN must not be one digit repeated or digits in a row: others try these first"
    return None


def hashed(pin: str) -> str:
    """Raises ValueError if it cannot be a PIN."""
    if reason := problem(pin):
        raise ValueError(reason)
    return bcrypt.hashpw(pin.encode(), bcrypt.gensalt(_COST)).decode()


def matches(pin_bcrypt: str | None, pin: str) -> bool:
    """Takes the same time when there is no such PIN, so that time does not show who has one."""
    # bcrypt rejects more than 72 bytes; no PIN has so many.
    right = bcrypt.checkpw(pin.encode()[:72], (pin_bcrypt or _nobodys()).encode())
    return right and pin_bcrypt is not None and _PIN.fullmatch(pin) is not None


@functools.cache
def _nobodys() -> str:
    return bcrypt.hashpw(b"nobody has this PIN", bcrypt.gensalt(_COST)).decode()

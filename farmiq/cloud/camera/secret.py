"""A camera's secret: told once, kept as a hash.

It has 192 random bits, so nobody guesses it and the hash may be cheap: a broker that comes back
must let a whole fleet in again within seconds.
"""

import secrets

import bcrypt

_BCRYPT_COST = 4


def make() -> tuple[str, str]:
    """(what the camera is told, what is kept); it begins as no formula of a spreadsheet does."""
    plain = secrets.token_urlsafe(24)
    while not plain[0].isalnum():
        plain = secrets.token_urlsafe(24)
    return plain, bcrypt.hashpw(plain.encode(), bcrypt.gensalt(_BCRYPT_COST, b"2a")).decode()

"""Pure: what an answer of the media store means for a picture (C-25, C-33).

Only an answer that refuses this picture counts against it; a store that is away, busy or does not
know us says nothing of the picture, and it waits.
"""

from typing import Literal

Verdict = Literal["done", "away", "stranger", "refused", "new_address", "exists"]

_AWAY = {408, 425, 429, 502, 503, 504}
_STRANGER = {401, 403, 404}
MAX_WAIT_S = 3600.0


def of_presign(status: int) -> Verdict:
    """Stranger: the token or the address is wrong, which is for a person to mend."""
    if 200 <= status < 300:  # noqa: PLR2004
        return "done"
    if status in _STRANGER:
        return "stranger"
    return "away" if status in _AWAY else "refused"


def of_put(status: int) -> Verdict:
    """403: the address has expired. 412: something is stored under this name already."""
    if 200 <= status < 300:  # noqa: PLR2004
        return "done"
    if status == 403:  # noqa: PLR2004
        return "new_address"
    if status == 412:  # noqa: PLR2004
        return "exists"
    return "away" if status in _AWAY else "refused"


def failed(attempts: int, *, limit: int) -> bool:
    return attempts >= limit

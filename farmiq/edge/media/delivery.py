"""Pure: what an answer of the cloud, or of its store, means for an image on its way there.

A cloud that is away is no image's fault: all images of that tenant wait. A cloud that answers and
refuses one image blames that one, and the others go on.
"""

from dataclasses import dataclass
from typing import Any

from farmiq.messages.media import MOST_BYTES
from farmiq.messages.text import storable
from farmiq.plumbing.retry import RetryPolicy

# No answer of our cloud about this image: an outage, or something on the way.
AWAY_STATUSES = frozenset({401, 403, 404, 405, 408, 429, 500, 502, 503, 504})
OK = 200
THERE_ALREADY = 412
# An address that has ended, or clocks that differ: the next one may be good.
NOT_ANY_MORE = 403
# How long an image waits that the cloud rejected so often.
IMAGE_RETRY = RetryPolicy(base_s=2.0, cap_s=3600.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status and a body, or None and why nothing came."""

    status: int | None
    body: Any = None
    problem: str = ""
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class There:
    """The cloud has read it back: it is there, whole."""


@dataclass(frozen=True, slots=True)
class Put:
    """The bytes go to this address, with these headers."""

    url: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Away:
    """Nobody can take images now; try again later, or when the cloud says."""

    why: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The image was not taken; others may be."""

    why: str


Verdict = There | Put | Away | Refused


def judge(answer: Answer, *, size_bytes: int, sha256: str) -> Verdict:
    """The cloud's answer to the question where an image may be put."""
    if answer.status is None:
        return Away(answer.problem)
    if answer.status == OK:
        return _address(answer.body, size_bytes=size_bytes, sha256=sha256)
    why = f"HTTP {answer.status}: {_message(answer.body)}"
    if answer.status in AWAY_STATUSES or not _message(answer.body):
        return Away(why, answer.retry_after_s)
    return Refused(why)


def put(answer: Answer) -> Away | Refused | None:
    """The store's answer to the bytes; None: they are there, or some are, and the cloud looks."""
    if answer.status is None:
        return Away(answer.problem)
    if OK <= answer.status < 300 or answer.status == THERE_ALREADY:  # noqa: PLR2004
        return None
    why = f"the cloud's store says HTTP {answer.status}: {answer.problem}"
    if answer.status == NOT_ANY_MORE or answer.status not in AWAY_STATUSES:
        return Refused(why)
    return Away(why, answer.retry_after_s)


def outage_retry(*, cap_s: float) -> RetryPolicy:
    """How long a tenant's images wait after so many outages in a row."""
    return RetryPolicy(base_s=0.5, cap_s=cap_s, max_retry_after_s=IMAGE_RETRY.cap_s)


def _address(body: Any, *, size_bytes: int, sha256: str) -> Verdict:
    if not isinstance(body, dict):
        return Away("an answer that is not our cloud's")
    if body.get("stored") is True:
        if (body.get("size_bytes"), body.get("sha256")) == (size_bytes, sha256):
            return There()
        return Refused("the cloud has other bytes under this id")
    url, headers = body.get("upload_url"), body.get("required_headers")
    if not isinstance(url, str) or not isinstance(headers, dict) or size_bytes > MOST_BYTES:
        return Away("an answer that is not our cloud's")
    return Put(url, {str(name): str(value) for name, value in headers.items()})


def _message(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    return storable(error.get("message", "")) if isinstance(error, dict) else ""

"""Pure: what an answer of the cloud means for the events sent, and when to try again.

A cloud that is away is nobody's fault: such failures never move an event to the dlq, however long
the outage (C-12). A cloud that answers and refuses blames events, and those count (C-11).
"""

from dataclasses import dataclass, field
from typing import Any

from farmiq.messages.text import storable
from farmiq.plumbing.retry import RetryPolicy

# No answer at all, or one that speaks of the way and not of the events. A bad key or clock (401,
# 403) and a wrong address (404) belong here: they must not empty the outbox into the dlq.
OUTAGE_STATUSES = frozenset({401, 403, 404, 408, 429, 502, 503, 504})
NETWORK_ERROR = "NETWORK_ERROR"
# Somebody answers, but not our cloud: a captive portal, a proxy's own error page.
NOT_OUR_CLOUD = "NOT_OUR_CLOUD"
# It answers, and fails on event after event: it is broken, not they.
CLOUD_BROKEN = "CLOUD_BROKEN"
OUTAGE_CODES = (
    NETWORK_ERROR,
    NOT_OUR_CLOUD,
    CLOUD_BROKEN,
    *(f"HTTP_{status}" for status in sorted(OUTAGE_STATUSES)),
)

# The cloud asks for a pause itself; nothing else can be the reason.
BUSY_CODES = ("HTTP_429", "HTTP_503")
# Before the code of an event that alone meets an outage while others get through.
ALONE = "ALONE_"

# Why a row is in the dlq (dlq_reason).
MAX_ATTEMPTS = "max_attempts_exceeded"
REJECTED = "rejected:VALIDATION_ERROR"

PERSON_CODES = ("HTTP_401", "HTTP_403", "HTTP_404")

ACCEPTED = 202
BAD_REQUEST = 400
TOO_LARGE = 413


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status and a body, or None and why nothing came."""

    status: int | None
    body: Any = None
    problem: str = ""
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The cloud has all of them."""


@dataclass(frozen=True, slots=True)
class Away:
    """Outage: all of them again, later; the tenant pauses."""

    code: str
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The listed positions can never be delivered; the rest goes again at once."""

    reasons: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """Something in there breaks the cloud: halve until it is found, then count it against it."""

    code: str
    message: str

    def of_all(self) -> Away:
        """The same seen as an outage: it may be the cloud that is broken, and not the event."""
        return Away(CLOUD_BROKEN, f"{self.code}: {self.message}")


Verdict = Delivered | Away | Refused | Failed


def judge(answer: Answer, *, count: int) -> Verdict:
    """The verdict on a batch of `count` events."""
    if answer.status is None:
        return Away(NETWORK_ERROR, answer.problem)
    if answer.status == ACCEPTED and _accepted(answer.body):
        return Delivered()
    code, message = f"HTTP_{answer.status}", _message(answer.body)
    if answer.status in OUTAGE_STATUSES:
        return Away(code, message, answer.retry_after_s)
    # Too large is said by any proxy on the way too, and means the same: send less at once.
    if answer.status != TOO_LARGE and not _error(answer.body):
        return Away(NOT_OUR_CLOUD, f"an answer that is not our cloud's: {code}")
    if answer.status == BAD_REQUEST:
        reasons = _blamed(answer.body, count)
        if reasons:
            return Refused(reasons)
    return Failed(code, message)


def attempts_after(attempts: int, *, most: int, outage: bool, last_code: str | None) -> int:
    """Failures so far, with this one.

    An outage counts as documented, but never to the end, and not at all for an event that has
    failed alone; a failure of the event's own starts from nothing if what was counted before it
    were outages (C-12).
    """
    if outage:
        return attempts if is_alone(last_code) else min(attempts + 1, most - 1)
    return 1 if last_code in OUTAGE_CODES else attempts + 1


def is_alone(code: str | None) -> bool:
    return code is not None and code.startswith(ALONE)


def may_be_an_event(away: Away) -> bool:
    """Whether what looks like an outage may be about one event: a proxy or a filter minds it."""
    return away.code not in BUSY_CODES


def pause_s(
    failures: int,
    *,
    cap_s: float,
    retry_after_s: float | None,
    max_retry_after_s: float | None = None,
) -> float:
    """How long a tenant pauses after this many outages in a row.

    Retry-After is obeyed up to a limit: an odd date from a proxy must not stop a farm for a day.
    """
    policy = RetryPolicy(0.5, cap_s, spread=0.0, max_retry_after_s=max_retry_after_s)
    return policy.delay_s(failures, chance=0.0, retry_after_s=retry_after_s)


_MEANING = {
    "HTTP_401": "the cloud does not know this edge's key, or the clocks differ",
    "HTTP_403": "the cloud refuses this tenant (in the cloud `farmiq edge add-tenant` lets an edge "
    "speak for it)",
    "HTTP_404": "nobody takes events at FARMIQ_CLOUD_URL",
    "HTTP_429": "the cloud is busy",
    "HTTP_503": "the cloud's database or bus is away",
    CLOUD_BROKEN: "the cloud fails on everything that it is sent",
    NOT_OUR_CLOUD: "somebody else answers at FARMIQ_CLOUD_URL",
}


def told(code: str | None, message: str | None) -> str:
    """What the last failure of a tenant that pauses means, for people."""
    meaning = _MEANING.get(code or "", "the cloud was not reached: check the link")
    return f"{meaning}; {code}: {message or 'no reason given'}" if code else meaning


def needs_a_person(code: str) -> bool:
    """An outage that waiting does not end: a key, a tenant or an address is wrong."""
    return code in PERSON_CODES


def _blamed(body: Any, count: int) -> dict[int, str]:
    details = _error(body).get("details")
    if not isinstance(details, list):
        return {}
    found = {}
    for item in details:
        index = item.get("index") if isinstance(item, dict) else None
        # `true` is an int in Python; it names no position.
        if type(index) is int and 0 <= index < count:
            found[index] = storable(item.get("reason", "refused"))
    return found


def _accepted(body: Any) -> bool:
    return isinstance(body, dict) and body.get("accepted") is True


def _message(body: Any) -> str:
    return storable(_error(body).get("message", ""))


def _error(body: Any) -> dict[str, Any]:
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}

"""Pure: the life of an outbox row, what a response of the cloud means, batch sizes, progress.

pending ──claim──► claimed ──send──► sending ──202──► acked
   ▲                  │                 │
   └── retry, reaper ─┴─────────────────┤
   ▲                                    └── rejected, or failed too often ──► dlq ──► failed
   └───────────────────────────── redrive, by hand ───────────────────────────┘  discard, by hand

The database enforces the same states (fn_sync_outbox_guard). A cloud that is away is no event's
fault: such failures never move an event to the dlq, however long the outage (C-12). A cloud that
answers and rejects blames events, and those failures count (C-11).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar, get_args
from uuid import UUID

import msgspec

from farmiq.messages.bus import BusEvent
from farmiq.messages.contract import CONTRACT
from farmiq.messages.text import storable
from farmiq.messages.wording import worded
from farmiq.plumbing.retry import RetryPolicy, documented

State = Literal["pending", "claimed", "sending", "acked", "dlq", "failed"]
STATES: tuple[State, ...] = get_args(State)

# Not delivered yet; held by a forwarder under a lease; moved by nothing but a person.
UNSENT: tuple[State, ...] = ("pending", "claimed", "sending")
HELD: tuple[State, ...] = ("claimed", "sending")
TERMINAL: tuple[State, ...] = ("acked", "dlq", "failed")

MOVES: dict[tuple[State, State], str] = {
    ("pending", "claimed"): "a forwarder leases it",
    ("pending", "pending"): "it is put off",
    ("pending", "dlq"): "it has failed too often already (the limit was lowered)",
    ("claimed", "claimed"): "leased anew after the lease ended, or the lease renewed",
    ("claimed", "sending"): "it is on its way",
    ("claimed", "acked"): "the cloud has it",
    ("claimed", "pending"): "it failed, or its lease ended",
    ("claimed", "dlq"): "it failed too often",
    ("sending", "sending"): "the lease is renewed by its holder",
    ("sending", "acked"): "the cloud has it",
    ("sending", "pending"): "it failed, or its lease ended",
    ("sending", "dlq"): "it was refused, or failed too often",
}
# These need an operator: a transaction that says which, and an entry in the audit log.
BY_HAND: dict[tuple[State, State], str] = {
    ("dlq", "pending"): "redrive",
    ("dlq", "failed"): "discard",
}


def may_move(before: State, after: State, *, by_hand: str | None = None) -> bool:
    """Whether a row may go from one state to the other."""
    return (before, after) in MOVES or (
        by_hand is not None and BY_HAND.get((before, after)) == by_hand
    )


# --- rows


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row that is ours until its lease ends; `claimed_at` is the fencing token."""

    id: UUID
    tenant_id: str
    size_bytes: int
    attempt_count: int
    last_error_code: str | None
    claimed_at: datetime
    reclaimed: bool


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event of the outbox with its content."""

    id: UUID
    tenant_id: str
    farm_id: str | None
    barn_id: str | None
    device_id: str | None
    session_id: UUID | None
    event_type: str
    occurred_at: datetime
    trace_id: str
    payload: str
    clock_suspect: bool

    @property
    def size_bytes(self) -> int:
        return len(self.payload.encode())

    def event(self) -> BusEvent:
        """Feed and barn leave absent fields out (002); all others send null (001)."""
        absent = msgspec.UNSET if self.event_type.startswith(("feed.", "barn.")) else None
        return BusEvent(
            event_id=self.id,
            event_type=self.event_type,
            tenant_id=self.tenant_id,
            farm_id=self.farm_id,
            barn_id=self.barn_id,
            device_id=self.device_id or absent,
            session_id=self.session_id or absent,
            occurred_at=self.occurred_at,
            trace_id=self.trace_id,
            payload=msgspec.Raw(self.payload.encode()),
            clock_suspect=self.clock_suspect,
        )


@dataclass(frozen=True, slots=True)
class Sending(PendingEvent):
    """A claimed row with its content, ready to go."""

    attempt_count: int
    last_error_code: str | None
    claimed_at: datetime
    last_attempt_at: datetime | None


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant with pending events that is not paused."""

    tenant_id: str
    failures: int
    level: int


Tried = Claimed | Sending


# --- responses

# No response, or one about the connection and not about the events. A bad key or clock (401, 403)
# and a wrong address (404) belong here: they must not move the outbox into the dlq.
OUTAGE_STATUSES = frozenset({401, 403, 404, 408, 429, 502, 503, 504})
NETWORK_ERROR = "NETWORK_ERROR"
# Somebody answers, but not our cloud: a captive portal, a proxy's own error page.
NOT_OUR_CLOUD = "NOT_OUR_CLOUD"
# It answers, and fails on event after event: the cloud is broken, not the events.
CLOUD_BROKEN = "CLOUD_BROKEN"
# It does not know the event yet, because it is of an earlier version than this edge (D-581).
CLOUD_OLDER = "CLOUD_OLDER"
OUTAGE_CODES = (
    NETWORK_ERROR,
    NOT_OUR_CLOUD,
    CLOUD_BROKEN,
    CLOUD_OLDER,
    *(f"HTTP_{status}" for status in sorted(OUTAGE_STATUSES)),
)

# The cloud itself asks for a pause; no event can be the reason.
BUSY_CODES = ("HTTP_429", "HTTP_503")
# Prefix of the code of an event that meets an outage while others are delivered.
ALONE = "ALONE_"

# Why a row is in the dlq (dlq_reason).
MAX_ATTEMPTS = "max_attempts_exceeded"
REJECTED = "rejected:VALIDATION_ERROR"

OPERATOR_CODES = ("HTTP_401", "HTTP_403", "HTTP_404")

ACCEPTED = 202
BAD_REQUEST = 400
TOO_LARGE = 413


@dataclass(frozen=True, slots=True)
class CloudResponse:
    """What came back: a status and a body, or None and why nothing came."""

    status: int | None
    body: Any = None
    problem: str = ""
    retry_after_s: float | None = None
    etag: str | None = None
    contract: int = CONTRACT


@dataclass(frozen=True, slots=True)
class Delivered:
    """The cloud has all of them."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Outage: all of them again, later; the tenant pauses."""

    code: str
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Permanent:
    """The listed positions can never be delivered; the rest goes again at once.

    Unless the cloud is older than this edge: when it is upgraded, it may know them.
    """

    reasons: dict[int, str] = field(default_factory=dict)
    cloud_is_older: bool = False


@dataclass(frozen=True, slots=True)
class Transient:
    """Some event breaks the cloud: bisect until it is found, then count the failure for it."""

    code: str
    message: str

    def as_outage(self) -> Unavailable:
        """The same as an outage: the cloud may be broken, and not the event."""
        return Unavailable(CLOUD_BROKEN, f"{self.code}: {self.message}")


Classification = Delivered | Unavailable | Permanent | Transient


def classify_response(response: CloudResponse, *, count: int) -> Classification:
    """What the response to a batch of `count` events means."""
    if response.status is None:
        return Unavailable(NETWORK_ERROR, response.problem)
    if response.status == ACCEPTED and _accepted(response.body):
        return Delivered()
    code, message = f"HTTP_{response.status}", _message(response.body)
    if response.status in OUTAGE_STATUSES:
        return Unavailable(code, message, response.retry_after_s)
    # A proxy may answer 413 too, and means the same: send less at once.
    if response.status != TOO_LARGE and not _error(response.body):
        return Unavailable(NOT_OUR_CLOUD, f"an answer that is not our cloud's: {code}")
    if response.status == BAD_REQUEST:
        reasons = _blamed(response.body, count)
        if reasons:
            return Permanent(reasons, cloud_is_older=response.contract < CONTRACT)
    return Transient(code, message)


def is_alone(code: str | None) -> bool:
    return code is not None and code.startswith(ALONE)


def may_blame_event(outage: Unavailable) -> bool:
    """Whether this outage may be about one event, which a proxy or a filter rejects."""
    return outage.code not in BUSY_CODES


# --- backoff: when a row that failed is tried again, and when it is given up


@dataclass(frozen=True, slots=True)
class Failure:
    """How a row that failed goes on: pending after `delay_s`, or in the dlq for `dlq_reason`."""

    attempts: int
    code: str
    message: str
    delay_s: float = 0.0
    dlq_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Backoff:
    """The forwarder's backoff, with the limits of SYNC_*; plumbing/retry.py has the formula.

    `chance` is a random number from 0 to 1.
    """

    base_s: float
    cap_s: float
    breaker_s: float
    max_attempts: int

    def after_failure(self, row: Tried, code: str, message: str, *, chance: float) -> Failure:
        """The failure of an event itself: it is tried again, after the last attempt given up.

        Outages that were counted before do not count here (C-12).
        """
        attempts = 1 if row.last_error_code in OUTAGE_CODES else row.attempt_count + 1
        reason = MAX_ATTEMPTS if attempts >= self.max_attempts else None
        return Failure(attempts, code, message, self._delay_s(attempts, self.cap_s, chance), reason)

    def after_outage(self, row: Tried, outage: Unavailable, *, chance: float) -> Failure:
        """An outage counts as documented, but never up to the limit (C-12).

        It waits no longer than its tenant pauses: when the cloud is back, all is sent (BK-10). An
        event that failed alone keeps that code and its count until it is delivered, or until the
        cloud itself says that it is too old for it.
        """
        attempts, code = min(row.attempt_count + 1, self.max_attempts - 1), outage.code
        before = row.last_error_code
        if before is not None and is_alone(before) and outage.code != CLOUD_OLDER:
            attempts, code = row.attempt_count, before
        delay_s = self._delay_s(attempts, min(self.cap_s, self.breaker_s), chance)
        return Failure(attempts, code, outage.message, delay_s)

    def pause_s(self, failures: int, outage: Unavailable) -> float:
        """How long a tenant pauses after this many outages in a row.

        Retry-After counts up to a limit: an odd date of a proxy must not stop a farm for a day.
        """
        policy = RetryPolicy(0.5, self.breaker_s, spread=0.0, max_retry_after_s=self.cap_s)
        return policy.delay_s(failures, chance=0.0, retry_after_s=outage.retry_after_s)

    def _delay_s(self, attempts: int, cap_s: float, chance: float) -> float:
        return documented(base_s=self.base_s, cap_s=cap_s).delay_s(attempts, chance=chance)


# --- what people read

_MEANING = {
    "HTTP_401": worded("the cloud does not know this edge's key, or the clocks differ"),
    "HTTP_403": worded(
        "the cloud refuses this tenant (in the cloud `farmiq edge add-tenant` "
        "lets an edge speak for it)"
    ),
    "HTTP_404": worded("nobody takes events at FARMIQ_CLOUD_URL"),
    "HTTP_429": worded("the cloud is busy"),
    "HTTP_503": worded("the cloud's database or bus is away"),
    CLOUD_BROKEN: worded("the cloud fails on everything that it is sent"),
    NOT_OUR_CLOUD: worded("somebody else answers at FARMIQ_CLOUD_URL"),
}


def describe_error(code: str | None, message: str | None) -> str:
    """What the last failure of a paused tenant means, for people."""
    meaning = _MEANING.get(code or "", worded("the cloud was not reached: check the link"))
    if code is None:
        return meaning
    if not message:
        return worded("%(why)s; %(code)s: no reason given", why=meaning, code=code)
    return worded("%(why)s; %(code)s: %(message)s", why=meaning, code=code, message=message)


def needs_operator(code: str) -> bool:
    """Whether waiting does not end this outage: a key, a tenant or an address is wrong."""
    return code in OPERATOR_CODES


def _blamed(body: Any, count: int) -> dict[int, str]:
    details = _error(body).get("details")
    if not isinstance(details, list):
        return {}
    rejected = {}
    for item in details:
        index = item.get("index") if isinstance(item, dict) else None
        # `true` is an int in Python; it names no position.
        if type(index) is int and 0 <= index < count:
            rejected[index] = storable(item.get("reason", "refused"))
    return rejected


def _accepted(body: Any) -> bool:
    return isinstance(body, dict) and body.get("accepted") is True


def _message(body: Any) -> str:
    return storable(_error(body).get("message", ""))


def _error(body: Any) -> dict[str, Any]:
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


LEASE_EXPIRED = "LEASE_EXPIRED"

# A batch after an outage: enough to be worth a request, small enough for a slow link.
PROBE_EVENTS = 20
# Of one claim, at most this many have failed before.
SUSPECTS = 20
# With more rows than this, new events go first (C-92); fewer are sent within a second or two.
BACKLOG_ROWS = 2000
# Events of the last seconds that pass a backlog with the new ones, at most.
RECENT_ROWS = 10_000
# An event that was being written when a drain began is not older than this at its start.
MOMENT_S = 5.0
# What an envelope adds to a payload in a batch, at most.
ENVELOPE_BYTES = 700


T = TypeVar("T")
R = TypeVar("R", bound=Claimed | PendingEvent)


@dataclass(frozen=True, slots=True)
class BatchSizer:
    """How many events the next batch of a tenant has at most.

    A batch that failed may have been too large for the link, so the next one is smaller; each that
    is delivered doubles it.
    """

    max_size: int
    size: int

    def shrink(self) -> "BatchSizer":
        return BatchSizer(self.max_size, max(1, min(PROBE_EVENTS, self.size // 4)))

    def grow(self) -> "BatchSizer":
        return BatchSizer(self.max_size, min(self.max_size, self.size * 2))


@dataclass(frozen=True, slots=True)
class Plan:
    """Which rows are sent first, which in later requests, and which are released.

    The first are not marked as `sending` (OB-04 leaves that open), which saves one of three writes.
    The parts wait, so each is marked when it is sent.
    """

    first: list[Claimed]
    parts: list[list[Claimed]]
    release: list[Claimed]


def plan(rows: Sequence[Claimed], *, max_bytes: int) -> Plan:
    """Healthy rows in batches that fit, then each row that failed before alone.

    Rows that a forwarder held when it stopped are marked before they are sent, so that another
    crash with them counts. They go together the first time: most often it was just stopped. If it
    happens again, one of them may be the cause, so they go last and one at a time, and the others
    are released: a crash then counts for that one alone.
    """
    stranded = [row for row in rows if _stranded(row) and row.attempt_count == 1]
    deadly = [row for row in rows if _stranded(row) and row.attempt_count > 1]
    healthy = [row for row in rows if _healthy(row)]
    apart = [row for row in rows if not _stranded(row) and not _healthy(row)]
    fresh = fitting([row for row in healthy if not row.reclaimed], max_bytes)
    return Plan(
        fresh[0] if fresh else [],
        [
            *fresh[1:],
            *fitting([row for row in healthy if row.reclaimed], max_bytes),
            *fitting(stranded, max_bytes),
            *([row] for row in apart),
            *([row] for row in deadly[:1]),
        ],
        deadly[1:],
    )


def split(rows: Sequence[T]) -> tuple[list[T], list[T]]:
    middle = len(rows) // 2
    return list(rows[:middle]), list(rows[middle:])


def next_level(level: int, *, waiting_at_level: int) -> int:
    """The priority of new events (C-92), given how many already wait at the present one."""
    return level + 1 if waiting_at_level > BACKLOG_ROWS else level


def _healthy(row: Claimed) -> bool:
    return row.attempt_count == 0 or row.last_error_code in OUTAGE_CODES


def _stranded(row: Claimed) -> bool:
    return row.attempt_count > 0 and row.last_error_code == LEASE_EXPIRED


def fitting(rows: Sequence[R], max_bytes: int) -> list[list[R]]:
    """The rows in batches that a request can hold."""
    batches: list[list[R]] = []
    room = 0
    for row in rows:
        size = row.size_bytes + ENVELOPE_BYTES
        if not batches or size > room:
            batches.append([])
            room = max_bytes
        batches[-1].append(row)
        room -= size
    return batches


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen of a backlog: when (monotonic), how many, how old, delivered so far."""

    at_s: float
    waiting: int
    oldest_s: float = 0.0
    delivered: int = 0


def rate(samples: Sequence[Sample]) -> float:
    """Events delivered per second over the samples."""
    if len(samples) < 2 or samples[-1].at_s <= samples[0].at_s:  # noqa: PLR2004 - two make a span
        return 0.0
    return max(
        0.0, (samples[-1].delivered - samples[0].delivered) / (samples[-1].at_s - samples[0].at_s)
    )


def eta_s(samples: Sequence[Sample]) -> float | None:
    """Seconds until the backlog is gone at its present fall; None if it does not fall."""
    if not samples or samples[-1].waiting == 0:
        return 0.0
    span = samples[-1].at_s - samples[0].at_s
    fallen = samples[0].waiting - samples[-1].waiting
    return samples[-1].waiting * span / fallen if span > 0 and fallen > 0 else None


def stalled(samples: Sequence[Sample], *, over_s: float) -> bool:
    """Whether an event has waited that long and the backlog has not become smaller since.

    A backlog that stays level while its oldest event is young is just a busy farm.
    """
    if not samples or samples[-1].at_s - samples[0].at_s < over_s:
        return False
    first = next(sample for sample in samples if samples[-1].at_s - sample.at_s <= over_s)
    return 0 < first.waiting <= samples[-1].waiting and samples[-1].oldest_s >= over_s


def recent(samples: Sequence[Sample], *, over_s: float) -> list[Sample]:
    """The samples of the last `over_s` seconds, and one before them."""
    older = [sample for sample in samples if samples[-1].at_s - sample.at_s > over_s]
    return [
        *older[-1:],
        *(sample for sample in samples if samples[-1].at_s - sample.at_s <= over_s),
    ]

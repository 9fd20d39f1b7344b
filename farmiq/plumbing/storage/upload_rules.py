"""Pure: the states of one upload by a presigned address, and what each response means for it.

    Presigning ──address──> Putting ──2xx──> Stored, or Presigning again if the receiver confirms
      │  └──stored──> Stored   └──403, 412──> Presigning, for another address or to see the state
      └──> Unavailable: nothing is learnt of the object. Rejected: this object is not accepted.

The receiver reads the object back and compares it; a PUT over an object that exists is a 412. So
any step may be repeated after a crash.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ALREADY_EXISTS = 412
# The address has expired, or the clocks differ: another address may be accepted.
ADDRESS_EXPIRED = 403


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How the responses of one receiver are read.

    `unavailable` statuses say nothing of the object, `unauthorized` ones are for a person to fix.
    `confirms`: a PUT counts only after the receiver says that the object is stored.
    `rejects_unknown_format`: a response in another format counts against the object.
    """

    unavailable: frozenset[int]
    unauthorized: frozenset[int]
    confirms: bool
    rejects_unknown_format: bool
    max_puts: int = 1


@dataclass(frozen=True, slots=True)
class Response:
    """A status with the decoded JSON body, or None and why no response came."""

    status: int | None
    body: Any = None
    text: str = ""
    retry_after_s: float | None = None

    @property
    def is_success(self) -> bool:
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004

    @property
    def error(self) -> Mapping[str, Any]:
        """The standard error body's `error`; empty if this is another body."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        return error if isinstance(error, dict) else {}


@dataclass(frozen=True, slots=True)
class Presigning:
    """The next request asks for an address."""

    puts_left: int


@dataclass(frozen=True, slots=True)
class Putting:
    """The next request puts the bytes to this address, with these headers."""

    url: str
    headers: dict[str, str]
    puts_left: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The receiver has the object."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Nothing was learnt of the object; try again later, or when the receiver says."""

    reason: str
    retry_after_s: float | None = None
    unauthorized: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """The object was not accepted; others may be."""

    reason: str


Outcome = Stored | Unavailable | Rejected
State = Presigning | Putting | Outcome


def after_presign(
    state: Presigning, response: Response, policy: Policy, *, object_id: str, sha256: str
) -> Putting | Outcome:
    """What the response to the request for an address leads to."""
    if not response.is_success:
        return _classify_error(response, policy)
    body = response.body if isinstance(response.body, dict) else {}
    if body.get("media_id", object_id) != object_id:
        return Rejected("the response is about another object")
    if body.get("stored") is True:
        is_same = str(body.get("sha256")).lower() == sha256
        return Stored() if is_same else Rejected("other bytes are stored under this id")
    url, headers = body.get("upload_url"), body.get("required_headers", {})
    if not isinstance(url, str) or not isinstance(headers, dict):
        reason = "the response is not in the receiver's format"
        return Rejected(reason) if policy.rejects_unknown_format else Unavailable(reason)
    if not state.puts_left:
        return Rejected("the receiver does not find it after the upload")
    as_text = {str(name): str(value) for name, value in headers.items()}
    return Putting(url, as_text, state.puts_left - 1)


def after_put(state: Putting, response: Response, policy: Policy) -> Presigning | Outcome:
    """What the store's response to the bytes leads to."""
    if response.status is None:
        return Unavailable(response.text)
    if response.is_success:
        return Presigning(state.puts_left) if policy.confirms else Stored()
    if response.status == ALREADY_EXISTS:
        return Presigning(state.puts_left)
    reason = f"the store answered {response.status} {response.text}".strip()
    if response.status == ADDRESS_EXPIRED:
        return Presigning(state.puts_left) if state.puts_left else Rejected(reason)
    if response.status in policy.unavailable:
        return Unavailable(reason, response.retry_after_s)
    return Rejected(reason)


def _classify_error(response: Response, policy: Policy) -> Unavailable | Rejected:
    if response.status is None:
        return Unavailable(response.text)
    message = response.error.get("message", "")
    reason = f"{response.status} {response.error.get('code', '')} {message}".strip()
    unauthorized = response.status in policy.unauthorized
    unknown_format = not message and not policy.rejects_unknown_format
    if unauthorized or unknown_format or response.status in policy.unavailable:
        return Unavailable(reason, response.retry_after_s, unauthorized)
    return Rejected(reason)

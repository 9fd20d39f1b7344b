"""Pure: what somebody asks of the telemetry API, checked parameter by parameter."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

import msgspec

from farmiq.messages.ids import ID_PATTERN

Bucket = Literal["raw", "1m", "1h", "1d"]
BUCKETS: tuple[Bucket, ...] = ("raw", "1m", "1h", "1d")
# What one question may span: a stream of readings is bounded by its time.
LONGEST: dict[Bucket, timedelta] = {
    "raw": timedelta(days=31),
    "1m": timedelta(days=31),
    "1h": timedelta(days=366),
    "1d": timedelta(days=3660),
}
MOST_ROWS = 5000
ROWS = 1000

_PLACE = ("tenant", "farm", "barn", "device", "metric")
_LATEST = (*_PLACE, "limit", "cursor")
_RANGE = (*_PLACE, "from", "to", "bucket", "format", "limit", "cursor")

T = TypeVar("T")


class Wrong(Exception):  # noqa: N818 - it is what the asker did, not an error of ours
    """What is wrong: a field and a reason each."""

    def __init__(self, details: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {reason}" for field, reason in details))
        self.details = list(details)


@dataclass(frozen=True, slots=True)
class Place:
    """None asks for all."""

    tenant: str | None
    farm: str | None
    barn: str | None
    device: str | None
    metric: str | None


@dataclass(frozen=True, slots=True)
class Latest:
    place: Place
    limit: int
    after: tuple[str, str, str] | None


class After(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: what comes next is behind this."""

    bucket: Bucket
    device_id: str
    metric_type: str
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    id: UUID


@dataclass(frozen=True, slots=True)
class Range:
    place: Place
    starts_at: datetime
    ends_at: datetime
    bucket: Bucket | None
    csv: bool
    limit: int
    after: After | None


def latest(parameters: Sequence[tuple[str, str]]) -> Latest:
    """Raises Wrong with everything that is wrong."""
    asked = _Asked(parameters, known=_LATEST)
    found = Latest(
        _place(asked),
        asked.get("limit", _limit) or ROWS,
        asked.get("cursor", _series),
    )
    asked.done()
    return found


def range_(parameters: Sequence[tuple[str, str]]) -> Range:
    """Raises Wrong with everything that is wrong."""
    asked = _Asked(parameters, known=_RANGE, needed=("tenant", "from", "to"))
    starts_at, ends_at = asked.get("from", _moment), asked.get("to", _moment)
    after = asked.get("cursor", _after)
    # A page goes on in the buckets that the first page chose.
    bucket = asked.get("bucket", _bucket) or (after.bucket if after else None)
    if after is not None and bucket != after.bucket:
        asked.wrong.append(("cursor", f"belongs to bucket={after.bucket}"))
    if starts_at and ends_at:
        asked.wrong.extend(_span_problems(starts_at, ends_at, bucket))
    epoch = datetime.fromtimestamp(0, UTC)
    found = Range(
        _place(asked),
        starts_at or epoch,
        ends_at or epoch,
        bucket,
        asked.get("format", _format) == "csv",
        asked.get("limit", _limit) or ROWS,
        after,
    )
    asked.done()
    return found


def cursor(value: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


class _Asked:
    """The parameters as sent; everything that is wrong with them is gathered."""

    def __init__(
        self,
        parameters: Sequence[tuple[str, str]],
        *,
        known: Sequence[str],
        needed: Sequence[str] = (),
    ) -> None:
        self._given: Mapping[str, str] = {name: value for name, value in parameters if value}
        names = [name for name, _ in parameters]
        odd = sorted({name for name in names if name not in known})
        twice = sorted({name for name in names if names.count(name) > 1 and name in known})
        missing = [name for name in needed if name not in self._given]
        self.wrong: list[tuple[str, str]] = [
            *((name[:64], f"is not known; there are: {', '.join(known)}") for name in odd[:20]),
            *((name, "is given more than once") for name in twice),
            *((name, "is missing") for name in missing),
        ]

    def get(self, name: str, read: Callable[[str], T]) -> T | None:
        if name not in self._given:
            return None
        try:
            return read(self._given[name])
        except ValueError as error:
            self.wrong.append((name, str(error)))
            return None

    def done(self) -> None:
        if self.wrong:
            raise Wrong(self.wrong)


def _place(asked: _Asked) -> Place:
    return Place(*(asked.get(name, _id) for name in _PLACE))


def _id(text: str) -> str:
    if not re.match(ID_PATTERN, text):
        raise ValueError("is not an id: letters, digits and . _ : -, at most 128")
    return text


def _moment(text: str) -> datetime:
    try:
        # A plus sign in an address that nobody escaped arrives as a space.
        at = datetime.fromisoformat(text.strip().replace(" ", "+"))
    except ValueError:
        raise ValueError("is not a time such as 2026-05-31T06:00:00Z") from None
    if at.tzinfo is None:
        raise ValueError("has no zone: end it with Z, or with an offset such as %2B02:00")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("is not between the years 1 and 9999") from None


def _bucket(text: str) -> Bucket:
    for bucket in BUCKETS:
        if text == bucket:
            return bucket
    raise ValueError(f"is none of {', '.join(BUCKETS)}")


def _format(text: str) -> str:
    if text not in ("json", "csv"):
        raise ValueError("is neither json nor csv")
    return text


def _limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) or not 1 <= int(text) <= MOST_ROWS:
        raise ValueError(f"is not a number from 1 to {MOST_ROWS}")
    return int(text)


def _span_problems(
    starts_at: datetime, ends_at: datetime, bucket: Bucket | None
) -> list[tuple[str, str]]:
    longest = LONGEST[bucket or "1d"]
    if starts_at >= ends_at:
        return [("to", "is not after from")]
    if ends_at - starts_at > longest:
        said = f"bucket={bucket}" if bucket else "any bucket"
        return [("to", f"is more than {longest.days} days after from, the most for {said}")]
    return []


def _series(text: str) -> tuple[str, str, str]:
    tenant_id, device_id, metric_type = _uncursor(text, tuple[str, str, str])
    return _id(tenant_id), _id(device_id), _id(metric_type)


def _after(text: str) -> After:
    found = _uncursor(text, After)
    _id(found.device_id)
    _id(found.metric_type)
    return found


def _uncursor(text: str, kind: type[T]) -> T:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=kind)
    except (binascii.Error, ValueError, RecursionError):
        raise ValueError("is not one that we gave") from None

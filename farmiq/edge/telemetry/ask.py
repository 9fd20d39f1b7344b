"""Pure: what somebody asks of the telemetry API, checked parameter by parameter."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

import msgspec

from farmiq.asked import Asked, format_, id_, limit, moment

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
    asked = Asked(parameters, known=_LATEST)
    found = Latest(
        _place(asked),
        asked.get("limit", limit(MOST_ROWS)) or ROWS,
        asked.get("cursor", _series),
    )
    asked.done()
    return found


def range_(parameters: Sequence[tuple[str, str]]) -> Range:
    """Raises Wrong with everything that is wrong."""
    asked = Asked(parameters, known=_RANGE, needed=("tenant", "from", "to"))
    starts_at, ends_at = asked.get("from", moment), asked.get("to", moment)
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
        asked.get("format", format_) == "csv",
        asked.get("limit", limit(MOST_ROWS)) or ROWS,
        after,
    )
    asked.done()
    return found


def cursor(value: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def _place(asked: Asked) -> Place:
    return Place(*(asked.get(name, id_) for name in _PLACE))


def _bucket(text: str) -> Bucket:
    for bucket in BUCKETS:
        if text == bucket:
            return bucket
    raise ValueError(f"is none of {', '.join(BUCKETS)}")


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
    return id_(tenant_id), id_(device_id), id_(metric_type)


def _after(text: str) -> After:
    found = _uncursor(text, After)
    id_(found.device_id)
    id_(found.metric_type)
    return found


def _uncursor(text: str, kind: type[T]) -> T:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=kind)
    except (binascii.Error, ValueError, RecursionError):
        raise ValueError("is not one that we gave") from None

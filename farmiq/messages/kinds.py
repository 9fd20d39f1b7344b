"""Kinds of values that payloads share: numbers with their bounds, short texts, moments (C-96)."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from farmiq.messages.wording import worded

# What every reader of JSON keeps exactly, a browser too.
MAX_COUNT = 2**53 - 1
# A million tonnes of feed: more is a mistake, and sums of it are no numbers any more (D-104).
MAX_KG = 1e9
# More than any scale under animals weighs; what says more is a fault of the scale.
MAX_WEIGHT_KG = 100_000.0

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Seq = Annotated[int, msgspec.Meta(ge=-MAX_COUNT, le=MAX_COUNT)]
WeightKg = Annotated[float, msgspec.Meta(gt=0, le=MAX_WEIGHT_KG)]
QuantityKg = Annotated[float, msgspec.Meta(ge=0, le=MAX_KG)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
# A key of a bus payload, true if we took `batch_id` from what is registered of the barn: neither a
# device nor a person named it (D-460).
BATCH_DERIVED = "batch_derived"
Unit = Annotated[str, msgspec.Meta(max_length=64)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Text = Annotated[str, msgspec.Meta(max_length=4096)]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-fA-F]{64}(?![\s\S])")]

# What fields of a type must say together: each rule is given the value, and says what is wrong
# with it. A type lists its own in `rules`, so that all of them can be asked when others are broken.
Rule = Callable[[Any], str | None]
Rules = tuple[Rule, ...]


# Two days from both ends of the calendar: every farm's zone, and the day after, can name a moment.
_FIRST, _LAST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)
NO_MOMENT = worded("not a moment between 0001-01-03 and 9999-12-29 in UTC")


def require_utc(*moments: datetime | msgspec.UnsetType | None) -> None:
    """Raises ValueError for a moment that some zone cannot name; such cannot be kept or shown."""
    for at in moments:
        if isinstance(at, datetime) and not is_in_utc(at):
            raise ValueError(NO_MOMENT)


def in_utc(at: datetime) -> datetime:
    """Raises ValueError as above."""
    require_utc(at)
    return at.astimezone(UTC)


def is_in_utc(at: datetime) -> bool:
    return _FIRST <= at <= _LAST

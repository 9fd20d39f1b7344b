"""New ids: the one place that draws them."""

from uuid import UUID

import uuid_utils


def new() -> UUID:
    """A UUIDv7: later ids sort behind earlier ones, so indexes grow at their right edge."""
    return UUID(bytes=uuid_utils.uuid7().bytes)

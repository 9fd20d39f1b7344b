"""Time zones that this machine knows."""

import functools
import zoneinfo


@functools.cache
def names() -> frozenset[str]:
    """Read once: zoneinfo opens six hundred files to tell."""
    return frozenset(zoneinfo.available_timezones())

"""The agent's clocks: the wall's, which may be wrong, and one that only goes forward."""

import time
from datetime import UTC, datetime


class Clock:
    """What is taken for the time; tests bring one that they move."""

    def now(self) -> datetime:
        """For the `ts` of events and for people. No decision hangs on it (C-44)."""
        return datetime.now(UTC)

    def mono(self) -> float:
        """Seconds that never go back, of this run of the agent."""
        return time.monotonic()

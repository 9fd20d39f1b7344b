"""`python -m farmiq.lab.simulate.moved`: `farmiq agent run` with a wall clock that jumps.

The file SIMULATED_CLOCK_FILE says by how many seconds the clock is wrong; it may change while the
agent runs. All else is the agent's own.
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from farmiq import config
from farmiq.device import service
from farmiq.device.buffer.database import Clock
from farmiq.device.capture import sources
from farmiq.plumbing import log
from farmiq.plumbing.runtime import run as running


class WrongClock(Clock):
    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> datetime:
        try:
            offset_s = float(self._file.read_text(encoding="ascii") or 0)
        except (FileNotFoundError, ValueError):
            offset_s = 0.0
        return datetime.now(UTC) + timedelta(seconds=offset_s)


def main() -> int:
    settings = config.DeviceSettings.load()
    log.configure(settings.log_level)
    clock = WrongClock(Path(config.environment()["SIMULATED_CLOCK_FILE"]))

    async def run() -> int:
        agent = service.run(settings, sources.configured(settings), clock=clock)
        return await running.together({service.NAME: agent}, expected=(OSError, ValueError))

    return asyncio.run(run())


if __name__ == "__main__":
    sys.exit(main())

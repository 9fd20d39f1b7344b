"""The weeks before the demo's first start: posted once, in the background, with progress."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from farmiq.config import EdgeSettings
from farmiq.lab.demo.observe import Observer
from farmiq.lab.demo.provision import LIFE_FILE
from farmiq.lab.simulate.life import files, flocks, post
from farmiq.lab.simulate.life.flocks import Life
from farmiq.lab.simulate.life.post import HistoryError
from farmiq.plumbing import db

POSTED_FILE = "history-posted"
LOOK_S = 1.0
# A line of progress so often, where there is no terminal.
_PARTS = 4


@dataclass
class History:
    """The history of one stack's farm; `posted` of its `events` are in the cloud."""

    root: Path
    environment: Mapping[str, str]
    observer: Observer
    events: int = 0
    posted: int = 0

    @property
    def is_posted(self) -> bool:
        """Of this or an earlier run: it is posted once."""
        return (self.root / POSTED_FILE).exists()

    async def post(self, say: Callable[[str], None]) -> None:
        """Post it as the edge would have, then wait for its figures; a cloud that is away returns.

        What was posted by a run that ended before the end is not stored twice.
        """
        began, life = time.monotonic(), files.read(self.root / LIFE_FILE)
        settings = EdgeSettings.load_some(self.environment)
        say(
            f"posting the history of {len(life.flocks)} flocks over {flocks.DAYS} days to the cloud"
        )

        def report(posted: int, events: int) -> None:
            if posted * _PARTS // events > self.posted * _PARTS // events and posted < events:
                say(f"history: {posted:,} of {events:,} events are in the cloud")
            self.posted, self.events = posted, events

        try:
            await post.post(life, files.standard(), settings, report=report)
        except HistoryError as error:
            say(f"the cloud rejects the history: {error}")
            return
        (self.root / POSTED_FILE).touch()
        took_s = time.monotonic() - began
        say(f"history: all {self.events:,} events are in the cloud (took {took_s:.0f} s)")
        await self._until_figures(life)
        took_s = time.monotonic() - began
        say(f"history: the figures of {len(life.flocks)} batches are there (took {took_s:.0f} s)")

    async def _until_figures(self, life: Life) -> None:
        """Every day before today has figures; today's change as long as the farm lives."""
        due = sum((life.today - flock.placed_on).days for flock in life.flocks)
        there = 0
        while there < due:
            await asyncio.sleep(LOOK_S)
            with contextlib.suppress(*db.UNAVAILABLE):
                there = await self.observer.weighed_days(before=life.today)

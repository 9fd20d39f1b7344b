"""The demo's supervisor: it starts again what died, breaks what a person asks for, and says both.

It also checks that nothing was lost: every event that the broker had confirmed must come to the
tables of the cloud, whatever was broken on the way.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

from farmiq.lab import stack
from farmiq.lab.demo.run import Child, DemoError, Farm, until_ready
from farmiq.plumbing import db

EDGE_DATABASE = "postgres-edge"
# A process that ends so soon after its start is not well; after so many times we give up.
QUICK_S = 10.0
MAX_QUICK_DEATHS = 5
CHECK_EVERY_S = 1.0
CHECK_WITHIN_S = 180.0


class Supervisor:
    """Watches one farm. `say` gets a sentence for everything that happens."""

    def __init__(self, farm: Farm, say: Callable[[str], None]) -> None:
        self._farm, self._say = farm, say
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.link_is_cut = False
        self.database_is_frozen = False
        if farm.history is not None and not farm.history.is_posted:
            self._begin("history", farm.history.post(say))

    def mend(self) -> None:
        """Start again what has ended; raises DemoError if that has failed again and again."""
        for name in [name for name, task in self._tasks.items() if task.done()]:
            self._tasks.pop(name).result()
        for child in self._farm.children.values():
            if child.process.poll() is not None:
                self._restart(child)
        for engine in self._farm.engines.fallen():
            self._begin(engine, self._restart_engine(engine))

    def toggle_link(self) -> None:
        link = self._farm.link
        self.link_is_cut = not self.link_is_cut
        if self.link_is_cut:
            link.refusing = True
            link.cut()
            self._say("the link is cut: the edge goes on and keeps what it owes the cloud")
        else:
            link.heal()
            self._say("the link is back")
            self.check()

    def kill_edge(self) -> None:
        """SIGKILL, as a power cut would; `mend` starts it again."""
        edge = self._farm.children["edge"]
        edge.quick_deaths = 0
        edge.process.kill()
        edge.process.wait()

    def toggle_database(self) -> None:
        self.database_is_frozen = not self.database_is_frozen
        if self.database_is_frozen:
            self._farm.engines.freeze(EDGE_DATABASE)
            self._say("the edge's database is frozen: the broker keeps what the sensors send")
        else:
            self._farm.engines.thaw(EDGE_DATABASE)
            self._say("the edge's database goes on")
            self.check()

    def check(self) -> None:
        """Begin to compare; a check that is under way begins anew, with what came since."""
        earlier = self._tasks.pop("check", None)
        if earlier is not None:
            earlier.cancel()
        self._begin("check", self.check_events())

    async def close(self) -> None:
        if self.database_is_frozen:
            self._farm.engines.thaw(EDGE_DATABASE)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        if name in self._tasks:
            work.close()
        else:
            self._tasks[name] = asyncio.ensure_future(work)

    def _restart(self, child: Child) -> None:
        was_quick = time.monotonic() - child.started_at < QUICK_S
        child.quick_deaths = child.quick_deaths + 1 if was_quick else 0
        if child.quick_deaths >= MAX_QUICK_DEATHS:
            raise DemoError(
                f"{child.name} ended {child.quick_deaths} times right after its start; "
                f"see {child.log}"
            )
        self._say(f"{child.name} {how_it_ended(child.process.returncode)}: starting it again")
        child.start_again()
        if child.ready_url is not None:
            self._begin(child.name, self._until_back(child))

    async def _until_back(self, child: Child) -> None:
        """However long it waits for what it needs, such as a frozen database."""
        began = time.monotonic()
        while True:
            try:
                await until_ready(child)
                break
            except DemoError:
                if child.process.poll() is not None:
                    return  # it ended again, and `mend` sees that
        self._say(f"{child.name} is ready again after {time.monotonic() - began:.1f} s")
        self.check()

    async def _restart_engine(self, engine: str) -> None:
        self._say(f"{engine} has ended: starting it again")
        began = time.monotonic()
        try:
            await asyncio.to_thread(self._farm.engines.restart, engine)
        except stack.StackError as error:
            raise DemoError(f"{engine} cannot be started again: {error}") from error
        self._say(f"{engine} answers again after {time.monotonic() - began:.1f} s")
        self.check()

    async def check_events(self) -> None:
        """Wait until what the broker has confirmed by now is in the cloud, and say so."""
        observer = self._farm.observer
        confirmed = set(observer.tally.look().events["ok"])
        missing, aggregated, twice = confirmed, set[str](), 0
        # Only the time in which the events could have arrived.
        looked_s, reported = 0.0, ""
        while missing and looked_s < CHECK_WITHIN_S:
            if (broken := self._broken()) and broken != reported:
                self._say(f"the check waits for {broken}")
            began, reported = time.monotonic(), broken
            await asyncio.sleep(CHECK_EVERY_S)
            if broken:
                continue
            with contextlib.suppress(*db.UNAVAILABLE):
                missing = await observer.missing(confirmed)
                aggregated = await observer.aggregated(missing)
                missing -= aggregated
                twice = await observer.counted_twice()
            looked_s += time.monotonic() - began
        due = len(confirmed) - len(aggregated)
        others = f"; {len(aggregated):,} more went as aggregates" if aggregated else ""
        self._say(
            f"all {due:,} confirmed events are in the cloud: 0 lost, {twice} twice "
            f"(took {looked_s:.0f} s){others}"
            if not missing
            else f"{len(missing):,} of {due:,} confirmed events are not in the cloud after "
            f"{looked_s:.0f} s{others}; `farmiq trace {min(missing)}` shows where one is"
        )

    def _broken(self) -> str:
        """What a person has broken of the way to the cloud, or nothing."""
        if self.link_is_cut:
            return "the link"
        return "the edge's database" if self.database_is_frozen else ""


def how_it_ended(code: int) -> str:
    """Pure: what an exit code of a process of ours means."""
    return f"was killed (signal {-code})" if code < 0 else f"ended with exit code {code}"

"""The live terminal view: one line per place on the way of an event, all of this run.

Without a terminal it is a line every few seconds, and one for everything that happens.
"""

import asyncio
import contextlib
import os
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from farmiq.lab.demo.observe import CloudFigures, EdgeFigures, Figures
from farmiq.lab.demo.provision import OPERATOR
from farmiq.lab.demo.run import Farm
from farmiq.lab.demo.supervise import Supervisor

REFRESH_S = 1.0
LINE_EVERY_S = 5.0
# Rates are of the last seconds, so that one sees what happens now.
RATE_OVER_S = 10.0
HAPPENINGS = 5
CTRL_C = "\x03"


@dataclass
class Screen:
    """What is drawn: the figures, how they changed, and what happened."""

    farm: Farm
    supervisor: Supervisor | None = None
    happenings: deque[str] = field(default_factory=lambda: deque(maxlen=HAPPENINGS))
    edge: EdgeFigures | None = None
    cloud: CloudFigures | None = None
    _past: deque[tuple[float, dict[str, int]]] = field(default_factory=deque)

    def take(self, figures: Figures, now_s: float) -> None:
        """Keep the last answer of a place that does not answer now."""
        self.edge, self.cloud = figures.edge or self.edge, figures.cloud or self.cloud
        counts = {
            "sensors": figures.sent,
            "broker": figures.confirmed,
            "edge": self.edge.stored if self.edge else 0,
            "cloud": self.cloud.stored if self.cloud else 0,
        }
        self._past.append((now_s, counts))
        while now_s - self._past[0][0] > RATE_OVER_S:
            self._past.popleft()

    def rate(self, place: str) -> str:
        (then_s, then), (now_s, now) = self._past[0], self._past[-1]
        return f"{(now[place] - then[place]) / (now_s - then_s):.1f}" if now_s > then_s else ""


async def show(farm: Farm) -> None:
    """Until Ctrl-C, q or a signal; raises DemoError if something cannot be kept running."""
    console = Console()
    screen = Screen(farm)

    def say(happening: str) -> None:
        screen.happenings.append(f"{datetime.now().astimezone():%H:%M:%S}  {happening}")
        if not console.is_terminal:
            console.print(screen.happenings[-1], soft_wrap=True, highlight=False)

    supervisor = screen.supervisor = Supervisor(farm, say)
    try:
        if console.is_terminal:
            await _draw(screen, supervisor, console)
        else:
            await _print_lines(screen, supervisor, console)
    finally:
        await supervisor.close()


async def _draw(screen: Screen, supervisor: Supervisor, console: Console) -> None:
    stop = asyncio.Event()
    keys = {
        "l": supervisor.toggle_link,
        "k": supervisor.kill_edge,
        "d": supervisor.toggle_database,
        "c": supervisor.check,
        "q": stop.set,
        CTRL_C: stop.set,
    }
    with (
        Live(console=console, auto_refresh=False) as live,
        pressed_keys(lambda key: keys.get(key, _nothing)()),
    ):
        while not stop.is_set():
            supervisor.mend()
            figures = await screen.farm.observer.look()
            screen.take(figures, time.monotonic())
            live.update(render(screen, figures), refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), REFRESH_S)


async def _print_lines(screen: Screen, supervisor: Supervisor, console: Console) -> None:
    site = screen.farm.site
    console.print(
        f"Console {site.console_url}  sign in {site.email}  {site.password}\n"
        f"Edge    {site.edge_url}  sign in {OPERATOR}  PIN {site.pin}  key {site.edge_key}",
        soft_wrap=True,
    )
    printed_at = float("-inf")
    while True:
        supervisor.mend()
        figures = await screen.farm.observer.look()
        screen.take(figures, time.monotonic())
        if time.monotonic() - printed_at >= LINE_EVERY_S:
            printed_at = time.monotonic()
            console.print(line(screen, figures), soft_wrap=True, highlight=False)
        await asyncio.sleep(REFRESH_S)


def _nothing() -> None:
    """A key that means nothing."""


@contextlib.contextmanager
def pressed_keys(press: Callable[[str], None]) -> Iterator[None]:
    """Call `press` with each key. Ctrl-C is a key too: as a signal it would end `make` with us."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read() -> None:
        for key in os.read(descriptor, 64).decode(errors="replace"):
            press(key)

    try:
        tty.setcbreak(descriptor)
        mode = termios.tcgetattr(descriptor)
        mode[6][termios.VINTR] = b"\0"
        termios.tcsetattr(descriptor, termios.TCSANOW, mode)
        loop.add_reader(descriptor, read)
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def render(screen: Screen, figures: Figures) -> Group:
    site = screen.farm.site
    minutes, seconds = divmod(int(time.monotonic() - screen.farm.started_at), 60)
    title = Text.assemble(
        ("FarmIQ demo", "bold green"), f"   up {minutes}:{seconds:02d}   ",
        (site.console_url, "underline"), f"   edge {site.edge_url}",
    )  # fmt: skip
    sign_in = Text.assemble(
        ("sign in  ", "bold"), site.email, ("   password  ", "bold"), site.password
    )
    at_the_edge = Text.assemble(
        ("at the edge  ", "bold"), OPERATOR, ("   PIN  ", "bold"), site.pin,
        ("   or the key  ", "bold"), site.edge_key,
    )  # fmt: skip
    happenings = [Text(happening, style="yellow") for happening in screen.happenings]
    return Group(title, sign_in, at_the_edge, _places(screen, figures), *happenings, _help(screen))


def _places(screen: Screen, figures: Figures) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("of this run", no_wrap=True)
    for name in ("events", "per s", "waiting", "oldest"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what it means")
    for row in rows(screen, figures):
        table.add_row(*row)
    return table


def rows(screen: Screen, figures: Figures) -> list[tuple[str, ...]]:
    """Pure: place, events that came there, per second, what waits there, the oldest, meaning."""
    edge, cloud = screen.edge, screen.cloud
    unsent = figures.sent - figures.confirmed
    lines: list[tuple[str, ...]] = [
        ("sensors", _n(figures.sent), screen.rate("sensors"), _n(unsent), "", "sent"),
        (
            "broker", _n(figures.confirmed), screen.rate("broker"),
            _n(max(0, figures.confirmed - edge.stored)) if edge else "?", "",
            "confirmed, on its disk",
        ),
    ]  # fmt: skip
    if edge is not None:
        answers = "" if figures.edge else "no answer; "
        lines.append((
            "edge", _n(edge.stored), screen.rate("edge"), _n(edge.outbox_waiting),
            _age(edge.outbox_oldest_s),
            f"{answers}stored; {figures.repeats_absorbed:,} repeats absorbed",
        ))  # fmt: skip
    if cloud is not None:
        queue = "?" if figures.queue_waiting is None else _n(figures.queue_waiting)
        answers = "" if figures.cloud else "no answer; "
        newest = f"stored; newest {_age(cloud.newest_age_s)} old" if cloud.stored else "stored"
        lines.append((
            "cloud", _n(cloud.stored), screen.rate("cloud"), queue, "", f"{answers}{newest}",
        ))  # fmt: skip
    if edge is not None and cloud is not None:
        lines.append((
            "weighings", _n(edge.weighed), "", _n(max(0, edge.weighed - cloud.weighed)), "",
            f"{cloud.pictures:,} of {edge.pictures:,} pictures in the cloud",
        ))  # fmt: skip
        lines.append((
            "cameras", _n(cloud.images), "", _n(figures.on_cards), "",
            f"of {figures.captured:,} images, whole in the cloud",
        ))  # fmt: skip
    if cloud is not None and cloud.alerts:
        lines.append(("alerts", "", "", _n(cloud.alerts), "", cloud.alert or ""))
    history = screen.farm.history
    if history is not None and history.events and not history.is_posted:
        lines.append((
            "history", _n(history.posted), "", _n(history.events - history.posted), "",
            "events of the weeks before, posted to the cloud",
        ))  # fmt: skip
    if edge is not None and (edge.quarantined or edge.outbox_dlq):
        lines.append((
            "set aside", _n(edge.quarantined + edge.outbox_dlq), "", "", "",
            "refused, kept with reasons",
        ))  # fmt: skip
    return lines


def _help(screen: Screen) -> Text:
    """What each key does now."""
    supervisor = screen.supervisor
    cut = supervisor is not None and supervisor.link_is_cut
    frozen = supervisor is not None and supervisor.database_is_frozen
    return Text.assemble(
        ("l", "bold"), f" {'mend' if cut else 'cut'} the link   ",
        ("k", "bold"), " kill the edge   ",
        ("d", "bold"), f" {'thaw' if frozen else 'freeze'} its database   ",
        ("c", "bold"), " check   ",
        ("q", "bold"), " stop",
    )  # fmt: skip


def line(screen: Screen, figures: Figures) -> str:
    """Pure: the same figures where there is no terminal."""
    return "  ".join(
        f"{place} {events}" + (f" (waiting {waiting})" if waiting not in ("", "0") else "")
        for place, events, _, waiting, *_ in rows(screen, figures)
    )


def _n(count: int) -> str:
    return f"{count:,}"


def _age(seconds: float | None) -> str:
    return "" if seconds is None else f"{max(0.0, seconds):,.0f} s"

"""The live terminal view: one line per hop, from the sensor to the page."""

import asyncio
import time

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from farmiq.demo.observe import Figures
from farmiq.demo.run import DemoError, Farm

REFRESH_S = 1.0


async def show(farm: Farm) -> None:
    """Redraw once a second until interrupted; raises if a process of ours falls."""
    console = Console()
    if not console.is_terminal:
        site = farm.site
        console.print(f"Console {site.console_url}  sign in {site.email}  {site.password}")
    with Live(console=console, auto_refresh=False, transient=not console.is_terminal) as live:
        while True:
            fallen = farm.fallen()
            if fallen:
                raise DemoError(f"{fallen.name} ended by itself; see {fallen.log}")
            figures = await farm.observer.look()
            if console.is_terminal:
                live.update(_screen(farm, figures), refresh=True)
            else:
                console.print(_line(figures), soft_wrap=True)
            await asyncio.sleep(REFRESH_S if console.is_terminal else 5 * REFRESH_S)


def _screen(farm: Farm, figures: Figures) -> Group:
    site = farm.site
    address = Text.assemble(
        ("Console  ", "bold"), (site.console_url, "underline"),
        ("   sign in  ", "bold"), site.email, ("   password  ", "bold"), site.password,
    )  # fmt: skip
    minutes, seconds = divmod(int(time.monotonic() - farm.started_at), 60)
    footer = Text(
        f"up {minutes}:{seconds:02d}   `farmiq trace <event_id>` follows one reading   "
        "Ctrl-C stops everything",
        style="dim",
    )
    return Group(Panel(address, title="FarmIQ demo", border_style="green"), _hops(figures), footer)


def _hops(figures: Figures) -> Table:
    table = Table(expand=True, header_style="bold")
    table.add_column("hop")
    table.add_column("events", justify="right")
    table.add_column("waiting", justify="right")
    table.add_column("oldest", justify="right")
    table.add_column("what it means", ratio=1)
    waiting = figures.sent - figures.confirmed
    table.add_row("sensors", f"{figures.sent}", f"{waiting}", "", "sent; waiting for the broker")
    table.add_row("broker", f"{figures.confirmed}", "", "", "acknowledged: written to its disk")
    behind = max(0, figures.confirmed - figures.edge_stored)
    once = f"stored once, committed; {figures.repeats_absorbed} repeats absorbed"
    table.add_row("edge", f"{figures.edge_stored}", f"{behind}", "", once)
    oldest = _age(figures.outbox_oldest_s)
    table.add_row(
        "outbox", f"{figures.cloud_accepted}", f"{figures.outbox_waiting}", oldest,
        "accepted by the cloud and confirmed by the bus",
    )  # fmt: skip
    queue = "?" if figures.queue_waiting is None else str(figures.queue_waiting)
    table.add_row(
        "cloud", f"{figures.cloud_stored}", queue, _age(figures.newest_age_s),
        f"of {figures.edge_readings} readings stored in the cloud; the page shows them (oldest: "
        "age of the newest)",
    )  # fmt: skip
    table.add_row(
        "weighings", f"{figures.weighed_edge}",
        f"{max(0, figures.weighed_edge - figures.weighed_cloud)}", "",
        f"sessions of the weigh stations; {figures.pictures_edge} pictures at the edge, "
        f"{figures.pictures_cloud} in the cloud",
    )  # fmt: skip
    if figures.quarantined or figures.outbox_dlq:
        table.add_row(
            "set aside", f"{figures.quarantined + figures.outbox_dlq}", "", "",
            "quarantined at the door or refused by the cloud: kept, with the reasons",
            style="yellow",
        )  # fmt: skip
    return table


def _line(figures: Figures) -> str:
    return (
        f"sent {figures.sent}  confirmed {figures.confirmed}  edge {figures.edge_stored}  "
        f"outbox {figures.outbox_waiting} (oldest {_age(figures.outbox_oldest_s) or '0 s'})  "
        f"cloud {figures.cloud_stored} of {figures.edge_readings} readings  "
        f"weighings {figures.weighed_edge}/{figures.weighed_cloud}"
    )


def _age(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f} s"

"""`farmiq bench`: ours beside a ceiling or a peer, in the same run."""

import asyncio
import importlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from bench.results import Result

app = terminal.Group(
    "Measure ours beside a ceiling or a peer in the same run; needs a checkout of the source.\n\n"
    "Each command starts the engines that it needs and stops them again. Results go to "
    "bench/results.json and docs/develop/bench.md. Exit code 3: a target is missed.",
    shared=terminal.JSON,
)
Rounds = Annotated[int, typer.Option(min=1, help="The median of them counts.")]
Events = Annotated[int, typer.Option(min=1000, help="Messages or readings per measurement.")]


@app.command("ingest")
def ingest(
    *,
    rounds: Annotated[int, typer.Option(min=3, help="The median of them counts.")] = 3,
    events: Events = 40_000,
    node_red: Annotated[
        bool, typer.Option("--node-red/--no-node-red", help="Beside Node-RED, fetched by npm.")
    ] = True,
    travel: Annotated[
        bool, typer.Option("--travel/--no-travel", help="Also memory and latency, to the cloud.")
    ] = True,
) -> int:
    """Edge ingest: P1 to P4 beside a C subscriber, Node-RED and COPY; P9, P11, P14 and P15."""
    return _measure("edge", rounds=rounds, events=events, node_red=node_red, travel=travel)


@app.command("delivery")
def delivery(
    *,
    rounds: Annotated[int, typer.Option(min=3, help="The median of them counts.")] = 3,
    events: Events = 40_000,
) -> int:
    """From the outbox to the cloud: P5 to P8 beside pgqueuer, procrastinate and aio-pika; P10, P19.

    Takes about ten minutes: the outbox is filled with up to 5 million rows.
    """
    return _measure("delivery", rounds=rounds, events=events)


@app.command("figures")
def figures(
    *,
    large: Annotated[
        bool, typer.Option("--large", help="Also at 100 million readings: minutes, 8 GB of disk.")
    ] = False,
) -> int:
    """Daily figures: what it costs to compute one batch day again, P17."""
    return _measure("figures", large=large)


@app.command("history")
def history(
    *,
    readings: Annotated[
        int, typer.Option(min=100_000, help="How many readings, of which two thirds are archived.")
    ] = 1_000_000,
) -> int:
    """Readings in Parquet files: bytes of each, and 90 days over both tiers, P35.

    100 million take about an hour and 50 GB of disk.
    """
    return _measure("history", readings=readings)


@app.command("rollups")
def rollups(*, rounds: Rounds = 3, events: Events = 300_000) -> int:
    """Readings into the cloud with rollups and figures beside it, and without: P18."""
    return _measure("rollups", rounds=rounds, events=events)


@app.command("alerts")
def alerts(*, rounds: Rounds = 3, events: Events = 100_000) -> int:
    """Readings into the cloud with 10,000 alert rules evaluated beside it and without: P18."""
    return _measure("alerts", rounds=rounds, events=events)


@app.command("cameras")
def cameras(*, rounds: Rounds = 3) -> int:
    """The cameras' gateway: 200 images at once, with 30 % of chunks lost (P12) and without (P13).

    Takes about two minutes a round. Exit code 3 also if an image is not here, byte for byte.
    """
    return _measure("cameras", rounds=rounds)


@app.command("pages")
def pages(
    *,
    rounds: Rounds = 3,
    viewers: Annotated[int, typer.Option(min=2, help="Live pages open at once.")] = 50,
) -> int:
    """Pages with 200 devices and 90 days beside a static file, and at 50 viewers: P16."""
    return _measure("pages", rounds=rounds, viewers=viewers)


@app.command("vision")
def vision(
    *,
    animals: Annotated[int, typer.Option(min=110, help="Rendered for each of three barns.")] = 130,
    scenes: Annotated[int, typer.Option(min=10, help="Rendered to compare masks.")] = 60,
) -> int:
    """Weights from images: masks, errors, intervals, CPU and memory for each frame; P20 to P27.

    Takes about five minutes, and no engine.
    """
    return _measure("vision", animals=animals, scenes=scenes)


@app.command("inference")
def inference(*, rounds: Rounds = 3, events: Events = 40_000) -> int:
    """Edge ingest while images are looked at beside it, and without: P28.

    Exit code 3 also if fewer than five images a second were finished.
    """
    return _measure("inference", rounds=rounds, events=events)


def _measure(name: str, **plan: Any) -> int:
    from farmiq.plumbing import log

    try:
        bench = importlib.import_module(f"bench.{name}")
    except ImportError:
        terminal.fail("the bench is not in the package: run it in a checkout, with `make bench`")
    log.configure("error")
    results_: list[Result] = asyncio.run(bench.measure(bench.Plan(**plan), terminal.progress()))
    if terminal.wants_json():
        terminal.print_json([result.entry() for result in results_])
    else:
        _print(results_)
    return 3 if not all(result.ok for result in results_) else 0


def _print(results_: "list[Result]") -> None:
    from rich.console import Console
    from rich.table import Table

    from bench import results

    table = Table("target", "what", "value", "aim", "", "rounds", box=None)
    for row in results.table(results_):
        table.add_row(*row[:4], f"[{'green' if row[4] == 'pass' else 'red'}]{row[4]}[/]", row[5])
    Console().print(table)
    for result in results_:
        for line in results.details(result.detail):
            typer.echo(f"{result.id}  {line}")

"""`farmiq stations`: simulated weigh stations with real agents."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from farmiq.cli import terminal


def stations(
    *,
    logins: Annotated[
        Path | None,
        typer.Option(help="Logins, as `farmiq device import --out` writes them (the demo's)."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Where each station has its buffer, log and visits.jsonl."),
    ] = None,
    gap: Annotated[float, typer.Option(min=0.1, help="Seconds between two animals.")] = 8.0,
    stands: Annotated[float, typer.Option(min=2, help="Seconds that an animal stands.")] = 6.0,
    day: Annotated[float, typer.Option(min=10, help="Seconds that a day takes.")] = 86400.0,
    seconds: Annotated[float | None, typer.Option(help="How long; default: until Ctrl-C.")] = None,
    seed: Annotated[int, typer.Option(help="Another seed is another herd.")] = 1,
    life: Annotated[
        Path | None, typer.Option(help="Life of the farm (the demo's): its birds are weighed.")
    ] = None,
    before: Annotated[
        int,
        typer.Option(
            min=0, help="Weighings of earlier days that a new station has to deliver (with --life)."
        ),
    ] = 0,
    cuts: Annotated[
        bool, typer.Option("--cuts", help="Kill an agent now and then, as a power cut does.")
    ] = False,
) -> int:
    """Simulate weigh stations: a scale on a serial line, a camera, and a real agent for each.

    Every device of the logins that has a station_id and a token becomes one. The agents talk to
    FARMIQ_DEVICES_MQTT_URL and to the edge at FARMIQ_EDGE_HTTP_PORT (the running demo's). Exit
    code 3: some events or pictures still wait in the buffers.
    """
    from farmiq.lab.simulate import runner
    from farmiq.lab.simulate.stations import Habits
    from farmiq.plumbing import log

    log.configure("warning")
    environment = terminal.environment()
    url = terminal.needed("FARMIQ_DEVICES_MQTT_URL", environment)
    port = terminal.needed("FARMIQ_EDGE_HTTP_PORT", environment)
    file = logins or Path(terminal.needed("FARMIQ_DEVICES_LOGINS_FILE", environment))
    posts = runner.read_posts(file, mqtt_url=url, edge_url=f"http://127.0.0.1:{port}")
    if not posts:
        terminal.fail(f"no device in {file} has a station_id and a token: register one first")
    summary = asyncio.run(
        runner.run_stations(
            posts,
            folder or terminal.state_dir() / "stations",
            habits=Habits(seed=seed, gap_s=gap, stands_s=stands, day_s=day),
            seconds=seconds,
            cuts=cuts,
            say=terminal.progress(),
            birds=runner.read_birds(life) if life else {},
            before=before,
        )
    )
    terminal.print_result(
        summary,
        f"{summary['visits']} animals on {summary['stations']} scales, {summary['due']} to be "
        f"weighed, {summary['pictures']} pictures, {summary['kills']} power cuts; "
        f"{summary['waiting']} still wait",
    )
    return 3 if summary["waiting"] else 0

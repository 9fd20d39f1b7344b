"""`farmiq agent`: the weigh station's agent, and a look into its buffer."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import hardware, terminal

if TYPE_CHECKING:
    from farmiq.config import DeviceSettings

app = terminal.Group(
    "The agent of a weigh station. `farmiq config device` prints its settings; put them into "
    "the environment. See docs/operate/agent.md.",
    shared=terminal.JSON,
)
buffer = terminal.Group(
    "What waits on the station's disk. These look into the folder AGENT_BUFFER_DIR, beside a "
    "running agent or without one.",
    shared=terminal.JSON,
)
app.add_typer(buffer, name="buffer")
app.command(value_error=2)(hardware.scale)
app.command(value_error=2)(hardware.camera)

Folder = Annotated[
    Path | None, typer.Option("--dir", help="Folder of the buffer (default: AGENT_BUFFER_DIR).")
]
_PAGE = 500


@app.command(shared=terminal.NO_OPTIONS)
def run() -> int:
    """Run the agent until Ctrl-C or SIGTERM; it may be killed at any moment and loses nothing."""
    import asyncio

    from farmiq import config, crash
    from farmiq.device import service
    from farmiq.device.buffer import database as buffers
    from farmiq.device.capture import sources
    from farmiq.plumbing import log
    from farmiq.plumbing.runtime import run as running

    settings = config.DeviceSettings.load()
    configured = sources.configured(settings)
    crash.arm(config.crash_at())
    log.configure(settings.log_level)

    async def both() -> int:
        parts = {service.NAME: service.run(settings, configured)}
        return await running.together(
            parts, expected=(buffers.TakenError, buffers.DiskFullError, OSError, ValueError)
        )

    return asyncio.run(both())


@app.command()
def status(*, folder: Folder = None) -> int:
    """How the station is: what waits, what failed, since when. Exit code 3: look at it.

    A running agent is asked on its status page; without one the buffer alone is looked at.
    """
    from farmiq.device import status as looking

    summary = fetch_status() if folder is None else None
    if summary is None:
        with _looking(folder) as tx:
            summary = {**looking.summary(tx), "running": False, "alarms": {}}
    terminal.print_result(summary, _describe(summary))
    return 3 if looking.needs_attention(summary) else 0


@buffer.command("ls")
def ls(
    *,
    state: Annotated[
        str | None,
        typer.Option(help="waiting, sending, published, stored, refused or failed."),
    ] = None,
    after: Annotated[int, typer.Option(help="Only events behind this seq.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    folder: Folder = None,
) -> None:
    """List events in the order they were made; --after pages on."""
    from farmiq.device.buffer import store

    terminal.check_known(state, store.EVENT_STATES, f"there is no state {state!r}:")
    with _looking(folder) as tx:
        rows = store.page(tx, after_seq=after, limit=limit, state=state)
    terminal.print_list(
        [_without_bytes(row) for row in rows],
        lambda row: (
            f"{row['seq']:>8}",
            row["state"],
            str(row["event_id"]),
            row["event_type"],
            f"sent {row['attempts']}x  {row['reason'] or ''}".rstrip(),
        ),
        more=None if len(rows) == limit else 0,
        hint=f"perhaps: --after {rows[-1]['seq']} goes on" if rows else "",
    )


@buffer.command()
def show(
    event_id: Annotated[str, typer.Argument(help="event_id, as `ls` prints it.")],
    *,
    folder: Folder = None,
) -> None:
    """Print an event with its topic and its bytes."""
    from farmiq.device.buffer import store

    with _looking(folder) as tx:
        row = store.event(tx, event_id)
    if row is None:
        terminal.fail(f"the buffer holds no event {event_id}; `farmiq agent buffer ls` lists them")
    body = row.pop("raw").decode()
    lines = "\n".join(f"{name:<11} {value}" for name, value in row.items())
    terminal.print_result({**row, "envelope": body}, f"{lines}\n{body}")


@buffer.command()
def verify(*, folder: Folder = None) -> int:
    """Read every page, every event and every picture, and compare with what was written.

    Exit code 3 if something is not as it was; nothing is changed.
    """
    from farmiq.device.buffer import jobs

    path = _folder(folder)
    with _looking(path) as tx:
        report = jobs.verify(tx, path)
    line = "\n".join(report["problems"]) or (
        f"good: {report['events']} events, {report['pictures']} pictures"
    )
    terminal.print_result(report, line)
    return 3 if report["problems"] else 0


@buffer.command()
def export(
    out: Annotated[Path, typer.Argument(help="File to write, a JSON line per event.")],
    *,
    folder: Folder = None,
) -> None:
    """Write all events with topic, state and the bytes that are sent: for a dying machine."""
    import json

    from farmiq.device.buffer import store

    count, after = 0, 0
    with _looking(folder) as tx, out.open("w", encoding="utf-8") as file:
        while rows := store.page(tx, after_seq=after, limit=_PAGE):
            after = rows[-1]["seq"]
            count += len(rows)
            for row in rows:
                line = {**_without_bytes(row), "envelope": row["raw"].decode()}
                file.write(json.dumps(line) + "\n")
    terminal.print_result({"events": count, "file": str(out)}, f"{count} events in {out}")


@buffer.command()
def redrive(*, folder: Folder = None) -> None:
    """Try again what failed or was refused; a running agent takes it up at once."""
    from farmiq.device.buffer import database as buffers
    from farmiq.device.uplink import commands

    path = _folder(folder) / buffers.FILE
    if not path.exists():
        terminal.fail(f"no buffer at {path}: AGENT_BUFFER_DIR names its folder")
    with closing(buffers.connect(path)) as tx:
        tx.execute("begin immediate")
        result = commands.redrive(tx)
        tx.execute("commit")
    terminal.print_result({"done": result}, result)


@buffer.command()
def plan(
    *,
    sessions_per_hour: Annotated[float, typer.Option(min=0, help="Animals weighed an hour.")] = 60,
    weights: Annotated[int, typer.Option(min=0, help="Weights of a session.")] = 2,
    pictures: Annotated[int, typer.Option(min=0, help="Pictures of a session.")] = 1,
    picture_kb: Annotated[float, typer.Option(min=0, help="Size of a picture in kB.")] = 250,
    loose_per_hour: Annotated[
        float, typer.Option(min=0, help="Scheduled pictures an hour, outside of sessions.")
    ] = 0,
    hours: Annotated[float, typer.Option(min=0, help="How long the edge may be away.")] = 72,
) -> int:
    """Will an outage fit? Rate by size by hours against the limits. Exit code 3: it will not."""
    from dataclasses import asdict

    from farmiq.device.buffer import rules as planning

    settings = _settings()
    outage = planning.plan(
        sessions_per_hour=sessions_per_hour,
        weights=weights,
        pictures=pictures,
        picture_bytes=round(picture_kb * 1000),
        loose_per_hour=loose_per_hour,
        hours=hours,
        events_limit=settings.buffer_events,
        picture_limit=settings.picture_bytes,
    )
    outcome = "fits" if outage.fits else f"does NOT fit: full after {outage.hours_that_fit:g} h"
    line = (
        f"{hours:g} h {outcome}\n"
        f"events    {outage.events:>12,} of {outage.events_limit:,} (AGENT_BUFFER_EVENTS)\n"
        f"pictures  {outage.picture_bytes:>12,} of {outage.picture_limit:,} bytes "
        "(AGENT_PICTURE_BYTES)\n"
        f"sent in   {outage.drain_s:>12,.0f} s at 20 a second"
    )
    terminal.print_result(asdict(outage), line)
    return 3 if not outage.fits else 0


# --- what they share


def _settings() -> "DeviceSettings":
    """What these commands need has defaults; what they do not need may be missing."""
    from farmiq import config

    return config.DeviceSettings.load_some(config.environment())


def _folder(given: Path | None) -> Path:
    return given or _settings().buffer_dir


@contextmanager
def _looking(folder: Path | None) -> Iterator[sqlite3.Connection]:
    from farmiq.device.buffer import database as buffers

    try:
        with closing(buffers.connect_read_only(_folder(folder) / buffers.FILE)) as tx:
            yield tx
    except sqlite3.DatabaseError as error:
        terminal.fail(f"the buffer cannot be read: {error}; a start of the agent salvages it")


def fetch_status() -> dict[str, Any] | None:
    import httpx2

    settings = _settings()
    if not settings.status_port:
        return None
    try:
        url = f"http://{settings.status_host}:{settings.status_port}/status.json"
        answer = httpx2.get(url, timeout=5, verify=False)  # plain HTTP
        document: dict[str, Any] = answer.raise_for_status().json()
    except (httpx2.HTTPError, ValueError):
        return None
    return document


def _without_bytes(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "raw"}


def _describe_parts(status: dict[str, Any]) -> list[str]:
    """What only a running agent knows."""
    uploads = f"NOT possible: {status['uploads_away']}" if status["uploads_away"] else "good"
    words = {True: "good", False: "NOT good", None: "none, or it has said nothing yet"}
    return [
        f"edge       {'connected' if status['connected'] else 'NOT connected'}",
        f"uploads    {uploads}",
        f"scale      {words[status['scale_ok']]}",
        f"camera     {words[status['camera_ok']]}",
    ]


def _describe(status: dict[str, Any]) -> str:
    pictures, events = status["pictures"], status["events"]
    counts = ", ".join(f"{events[item]} {item}" for item in ("stored", "refused", "failed"))
    state = f"running, {status['state']}" if status["running"] else "not running"
    lines = [f"agent      {state}"]
    if status["running"]:
        lines += _describe_parts(status)
    lines += [
        f"events     {status['backlog']} wait, {counts}, {status['dropped_total']} dropped so far",
        f"oldest     {status['oldest_waiting_s'] or 0:g} s",
        f"pictures   {pictures['waiting']} wait, {pictures['failed']} failed",
    ]
    if status["running"]:
        receipt_at = terminal.local(status["last_receipt_at"], absent="none yet")
        lines.append(f"receipt    {receipt_at}")
    lines += [f"ALARM      {name}: {item['text']}" for name, item in status["alarms"].items()]
    lines += [
        f"FAILED     session {item['session_id']}: {item['problem']}"
        for item in status["failed_sessions"]
    ]
    return "\n".join(lines)

"""`farmiq agent scale` and `farmiq agent camera`: what a technician in the barn wants to see."""

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.config import DeviceSettings
    from farmiq.device.capture.scale import Received, Scale
    from farmiq.device.capture.stable import Limits

FormatName = Annotated[
    str | None,
    typer.Option("--format", help="and, ohaus, rinstrum, toledo or regex (AGENT_SCALE_FORMAT)."),
]


def scale(
    url: Annotated[
        str | None,
        typer.Argument(help="serial:///dev/ttyUSB0 or tcp://host:port (AGENT_SCALE_URL)."),
    ] = None,
    *,
    format_: FormatName = None,
    baud: Annotated[int | None, typer.Option(help="Speed (AGENT_SCALE_BAUD).")] = None,
    mode: Annotated[str | None, typer.Option(help="Such as 8N1 (AGENT_SCALE_MODE).")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Stop after so long (default: Ctrl-C; JSON: 5).")
    ] = None,
) -> int:
    """Show what the scale sends, what we read in it, and when a weight is stable.

    Stop the agent first: two programs cannot read one cable. If lines come and none can be read,
    it says which formats would fit. Exit code 3: nothing came, or nothing could be read.
    """
    import asyncio

    from farmiq.device.capture import sources

    given = {
        "AGENT_SCALE_URL": url,
        "AGENT_SCALE_FORMAT": format_,
        "AGENT_SCALE_BAUD": baud,
        "AGENT_SCALE_MODE": mode,
    }
    settings = _settings({name: str(value) for name, value in given.items() if value})
    there = sources.scale_of(settings)
    limit_s = 5.0 if terminal.wants_json() and seconds is None else seconds
    say = _nothing if terminal.wants_json() else typer.echo
    say(f"reading {there.port}; Ctrl-C stops")
    watch = Watch(sources.limits(settings), say=say)
    try:
        asyncio.run(_watch(there, watch, limit_s))
    except KeyboardInterrupt:
        typer.echo()
    summary = watch.summary(there)
    terminal.print_result(summary, _summary(summary))
    return 3 if not summary["readings"] else 0


def camera(
    url: Annotated[
        str | None,
        typer.Argument(help="http://…, v4l2:/dev/video0 or folder:/path (AGENT_CAMERA_URL)."),
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", help="Write the picture here.")] = None,
) -> None:
    """Take one picture; say its size and how long it took."""
    import asyncio

    from farmiq.device.capture import sources
    from farmiq.device.capture.camera import CameraError

    async def once() -> tuple[Any, float]:
        eye = sources.camera_of(settings)
        try:
            began = time.monotonic()
            return await eye.take(), time.monotonic() - began
        finally:
            await eye.close()

    settings = _settings({"AGENT_CAMERA_URL": url} if url else {})
    try:
        shot, took_s = asyncio.run(once())
    except CameraError as error:
        terminal.fail(f"no picture: {error}")
    if out is not None:
        out.write_bytes(shot.data)
    result = {
        "content_type": shot.content_type,
        "width": shot.width,
        "height": shot.height,
        "size_bytes": len(shot.data),
        "took_s": round(took_s, 3),
        "captured_at": shot.captured_at,
        "file": str(out) if out else None,
    }
    line = (
        f"{shot.content_type} {shot.width} by {shot.height}, {len(shot.data):,} bytes, "
        f"in {took_s * 1000:.0f} ms" + (f"; written to {out}" if out else "")
    )
    terminal.print_result(result, line)


@dataclass
class Watch:
    """Prints what comes, and counts it."""

    limits: "Limits"
    say: Any
    readings: int = 0
    stable_weights: list[float] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)
    fitting: Counter[str] = field(default_factory=Counter)
    state: Any = None

    def hear(self, heard: "Received | None", *, now: float) -> None:
        from farmiq.device.capture import stable
        from farmiq.device.capture.indicator import Malformed

        sample, reading = None, heard.reading if heard else None
        if heard is not None and isinstance(reading, Malformed):
            self.problems[reading.reason] += 1
            self._try_others(heard.frame)
        elif reading is not None and not isinstance(reading, Malformed):
            self.readings += 1
            sample = stable.Sample(reading.weight_kg, reading.stable, reading.overload)
        state = self.state or stable.State()
        self.state, effects = stable.step(state, sample, heard.at if heard else now, self.limits)
        if heard is not None:
            self.say(
                f"{_visible(heard.frame):<28} {_describe(heard.reading):<26} {self.state.phase}"
            )
        for effect in effects:
            if isinstance(effect, stable.Settled):
                self.stable_weights.append(effect.weight_kg)
            self.say(f"  -> {effect}")

    def _try_others(self, frame: bytes) -> None:
        from farmiq.device.capture import indicator

        for name in indicator.FORMATS[:-1]:
            if isinstance(indicator.parser(name)(frame), indicator.Reading):
                self.fitting[name] += 1

    def summary(self, there: "Scale") -> dict[str, Any]:
        return {
            "port": str(there.port),
            "away": there.offline_reason,
            "lines": there.lines,
            "readings": self.readings,
            "malformed": there.malformed,
            "dropped_bytes": there.dropped_bytes,
            "problems": dict(self.problems.most_common(5)),
            "formats_that_fit": dict(self.fitting.most_common()),
            "stable_weights_kg": self.stable_weights[-20:],
        }


async def _watch(there: "Scale", watch: Watch, seconds: float | None) -> None:
    ends_at = None if seconds is None else time.monotonic() + seconds
    problem: str | None = None
    async with there.listening() as following:
        while ends_at is None or time.monotonic() < ends_at:
            watch.hear(await following(), now=time.monotonic())
            if there.offline_reason not in (problem, None, "not opened yet"):
                watch.say(f"away: {there.offline_reason}")
            problem = there.offline_reason


def _summary(seen: dict[str, Any]) -> str:
    lines = [f"{seen['lines']} lines, {seen['readings']} readings, {seen['malformed']} malformed"]
    if seen["away"]:
        lines.append(f"away: {seen['away']}")
    lines += [f"  {count} times: {why}" for why, count in seen["problems"].items()]
    if seen["formats_that_fit"] and not seen["readings"]:
        lines.append(f"these formats would fit: {', '.join(seen['formats_that_fit'])} (--format)")
    if seen["stable_weights_kg"]:
        lines.append(f"stable: {', '.join(f'{kg:g} kg' for kg in seen['stable_weights_kg'])}")
    return "\n".join(lines)


def _describe(reading: Any) -> str:
    from farmiq.device.capture.indicator import Reading

    if not isinstance(reading, Reading):
        return f"? {reading.reason}"
    if reading.weight_kg is None:
        return "overload" if reading.overload else "no weight"
    flag = {True: "stable", False: "moving", None: ""}[reading.stable]
    return f"{reading.weight_kg:>10.3f} kg {flag}"


def _visible(frame: bytes) -> str:
    return ascii(frame.decode("latin-1"))[1:-1]


def _settings(over: dict[str, str]) -> "DeviceSettings":
    """What these commands do not need may be missing."""
    from farmiq import config
    from farmiq.plumbing import log

    log.configure("error")  # they say everything themselves
    return config.DeviceSettings.load_some(config.environment(over=over))


def _nothing(_: str) -> None:
    pass

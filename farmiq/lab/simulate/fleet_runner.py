"""`farmiq simulate cameras`: a fleet from start to summary."""

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farmiq.lab.simulate import camera_account, fleet
from farmiq.lab.simulate.camera import Firmware
from farmiq.lab.simulate.camera_faults import Faults, Kit
from farmiq.lab.simulate.fleet import SimulatedCamera, Timing, Witness
from farmiq.lab.simulate.journal import Journal
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.runtime.run import stop_on_signal

PROGRESS_S = 5.0
DRAIN_S = 120.0
DRAIN_INTERRUPTED_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a fleet is run; without `seconds` and `wakes` until a signal comes."""

    faults: Faults
    timing: Timing
    firmware: Firmware
    wakes: int | None = None
    seconds: float | None = None
    spread_s: float = 0.0


def read_logins(file: Path) -> dict[str, tuple[str, str]]:
    """(user, password) by MAC. Raises ValueError."""
    try:
        logins = json.loads(file.read_text(encoding="utf-8"))["cameras"]
        return {login["mac"]: (login["user"], login["password"]) for login in logins}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is not a file of logins of cameras") from error


async def run(
    kits: list[Kit],
    url: str,
    folder: Path | None,
    plan: Plan,
    *,
    say: Callable[[str], None],
    witness: Witness | None = None,
    logins: dict[str, tuple[str, str]] | None = None,
) -> dict[str, Any]:
    """Simulate until the time is over or a signal comes; then cards are emptied."""
    mqtt.address(url)  # an address that cannot be one is refused before anything starts
    with contextlib.ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        journal = stack.enter_context(contextlib.closing(Journal(place / "captures.jsonl")))
        cameras = fleet.cameras(
            kits, url, place / "cards", journal, faults=plan.faults, timing=plan.timing,
            firmware=plan.firmware, witness=witness, logins=logins,
        )  # fmt: skip
        await _live(cameras, plan, say)
        account = camera_account.read(place / "captures.jsonl")
        return {
            "cameras": len(cameras),
            "wakes": account.acts["woke"],
            "captured": len(account.captures),
            "acked": len(account.acked),
            "deaths": account.acts["died"],
            "gave_up": account.acts["gave_up"],
            "unreadable": len(account.unreadable),
            "waiting": len(account.waiting),
            "stranded": sum(camera.stranded for camera in cameras),
        }


async def _live(cameras: list[SimulatedCamera], plan: Plan, say: Callable[[str], None]) -> None:
    stop_requested = stop_on_signal()
    living = asyncio.gather(
        *(
            camera.live(wakes=plan.wakes, phase_s=plan.spread_s * number / len(cameras))
            for number, camera in enumerate(cameras)
        )
    )
    await _until(living, stop_requested, plan.seconds, cameras, say)
    delivering = asyncio.gather(*(camera.deliver() for camera in cameras))
    within_s = DRAIN_INTERRUPTED_S if stop_requested.is_set() else DRAIN_S
    await _until(delivering, asyncio.Event(), within_s, cameras, say)


async def _until(
    work: "asyncio.Future[Any]",
    stop_requested: asyncio.Event,
    seconds: float | None,
    cameras: list[SimulatedCamera],
    say: Callable[[str], None],
) -> None:
    """Wait until the work is done, the time is over or a stop is requested; then cancel it."""
    ends_at = None if seconds is None else time.monotonic() + seconds
    waiting: asyncio.Future[Any] = asyncio.create_task(stop_requested.wait())
    while not (work.done() or waiting.done()):
        left_s = PROGRESS_S if ends_at is None else ends_at - time.monotonic()
        if left_s <= 0:
            break
        await asyncio.wait(
            [work, waiting], timeout=min(PROGRESS_S, left_s), return_when="FIRST_COMPLETED"
        )
        say(
            f"{sum(camera.wakes for camera in cameras)} wakes, "
            f"{sum(camera.waiting for camera in cameras)} images wait on the cards"
        )
    waiting.cancel()
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work

"""`farmiq simulate`: a farm from start to summary."""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from farmiq.lab.simulate import sensors
from farmiq.lab.simulate.farm import Device
from farmiq.lab.simulate.journal import Journal, Tally
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.runtime.run import stop_on_signal

PROGRESS_S = 5.0


def read_logins(file: Path, devices: list[Device]) -> sensors.Logins:
    """The logins as `farmiq device import` wrote them. Raises ValueError naming who has none."""
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))["devices"]
        logins = {
            (login["tenant_id"], login["device_id"]): (login["user"], login["password"])
            for login in entries
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{file} is not a file of logins as `farmiq device import` writes it"
        ) from error
    lacking = [
        device.place.device_id
        for device in devices
        if (device.place.tenant_id, device.place.device_id) not in logins
    ]
    if lacking:
        raise ValueError(f"{file} has no login of {', '.join(lacking)}: register them first")
    return logins


async def run(
    devices: list[Device],
    url: str,
    file: Path | None,
    *,
    interval_s: float,
    day_s: float,
    seconds: float | None,
    say: Callable[[str], None],
    logins: sensors.Logins | None = None,
) -> dict[str, int]:
    """Simulate until the time is over or a signal comes; returns the counts of the journal."""
    mqtt.address(url)  # an address that cannot be one is refused before anything starts
    with contextlib.ExitStack() as stack:
        path = file or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "journal.jsonl"
        journal = stack.enter_context(contextlib.closing(Journal(path)))
        tally = Tally(path)
        stopping = _until_signal(seconds)
        work = asyncio.create_task(
            sensors.simulate(
                devices,
                url,
                journal,
                interval_s=interval_s,
                day_s=day_s,
                stop=stopping,
                logins=logins,
            )
        )
        while not work.done():
            await asyncio.wait([work], timeout=PROGRESS_S)
            tally.look()
            say(f"sent {tally.count('sent')}, acknowledged {tally.count('ok')}")
        waiting = work.result()
        counts: dict[str, int] = {act: tally.look().count(act) for act in tally.events}
        return {**counts, "waiting": waiting}


async def _until_signal(seconds: float | None) -> bool:
    """True if a signal came before the time was over."""
    stop_requested = stop_on_signal()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop_requested.wait()
    return stop_requested.is_set()

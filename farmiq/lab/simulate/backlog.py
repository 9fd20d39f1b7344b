"""What a simulated station weighed in the days before: it waits in the buffer of its agent.

birds --> [backlog] --> the agent's buffer, visits.jsonl --> the agent delivers it when it starts

As if the link had been down for days. So an edge that is new gets weighings of several days with
their pictures by the way of all weighings, and can learn from them as from any others.
"""

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from farmiq.config import DeviceSettings
from farmiq.device.buffer import database
from farmiq.device.buffer.database import Clock
from farmiq.device.buffer.recorder import Picture, Recorder
from farmiq.device.buffer.rules import Identity
from farmiq.device.buffer.writer import Writer
from farmiq.device.service import limits
from farmiq.lab.simulate import pictures
from farmiq.lab.simulate.herd import Animal
from farmiq.lab.simulate.life import flocks
from farmiq.lab.simulate.stations import Birds, SimulatedStation
from farmiq.lab.simulate.weighings import Visited
from farmiq.plumbing import ids

A_DAY = 8
PICTURES = 2
# Between two weighings of a day; half of it lies before the first.
_APART = timedelta(hours=1.5)
_STANDS = timedelta(seconds=6)


async def fill(station: SimulatedStation, birds: Birds, count: int) -> None:
    """So many weighings of the days before today, oldest first, before the agent's first start.

    A station that has run before has nothing more to tell of those days.
    """
    if station.journal.exists() or station.buffer.exists():
        return
    settings = DeviceSettings.load(
        {**station.post.environment, "AGENT_BUFFER_DIR": str(station.buffer)}
    )
    station.buffer.mkdir(parents=True)
    with database.locked(station.buffer):
        buffer = await database.opened(station.buffer, clock=Clock())
        try:
            identity = Identity(settings.place, settings.station_id)
            recorder = Recorder(buffer, Writer(identity, buffer, limits(settings)))
            visits = await _weighed(station.post.station_id, recorder, birds, count)
        finally:
            await buffer.close()
    station.visits += visits
    lines = [msgspec.json.encode(visit) + b"\n" for visit in visits]
    await asyncio.to_thread(station.journal.write_bytes, b"".join(lines))


async def _weighed(station_id: str, recorder: Recorder, birds: Birds, count: int) -> list[Visited]:
    animals, visits = birds.animals(), []
    for number, at in enumerate(moments(datetime.now(UTC), count)):
        if number == 0:
            # Nobody has stepped on the scale yet.
            empty = await _picture(station_id, number=-1, at=at - _STANDS)
            await recorder.photograph(empty, of_empty_scale=True)
        chance = flocks.share(birds.seed, "before", number)
        animal = animals[int(chance * len(animals))]
        visits.append(await _weigh(station_id, recorder, birds, animal, number=number, at=at))
    return visits


def moments(now: datetime, count: int) -> list[datetime]:
    """Pure: when they were weighed, A_DAY on each day before today."""
    days = -(-count // A_DAY)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return [
        midnight - timedelta(days=days - number // A_DAY) + (number % A_DAY + 0.5) * _APART
        for number in range(count)
    ]


async def _weigh(
    station_id: str, recorder: Recorder, birds: Birds, animal: Animal, *, number: int, at: datetime
) -> Visited:
    """A whole session, as the capture code records it."""
    session_id, weight_kg = ids.new(), birds.weigh(animal, at)
    taken = [
        await _picture(
            station_id, number=number * PICTURES + shot, at=at + timedelta(seconds=shot),
            session_id=session_id, animal=animal.number, weight_kg=weight_kg,
        )
        for shot in range(PICTURES)
    ]  # fmt: skip
    first, *others = taken
    await recorder.open(
        session_id, batch_id=None, initial_weight_kg=weight_kg, picture=first, at=at
    )
    for picture in others:
        await recorder.photograph(picture)
    await recorder.weigh(session_id, weight_kg=weight_kg, at=at + _STANDS / 2)
    await recorder.close(session_id, final_weight_kg=weight_kg, at=at + _STANDS)
    return Visited(
        visit_id=f"{station_id}-before-{number}",
        station_id=station_id,
        animal=animal.number,
        weight_kg=weight_kg,
        due=True,
        sha256s=tuple(hashlib.sha256(picture.data).hexdigest() for picture in taken),
    )


async def _picture(
    station_id: str,
    *,
    number: int,
    at: datetime,
    session_id: UUID | None = None,
    animal: int | None = None,
    weight_kg: float = 0.0,
) -> Picture:
    data = await asyncio.to_thread(
        pictures.render,
        station_id=station_id, number=number, at=at, animal=animal, weight_kg=weight_kg,
    )  # fmt: skip
    return Picture(ids.new(), session_id, "image/jpeg", data, at)

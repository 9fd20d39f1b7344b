"""Pure: a fleet of cameras and what goes wrong with it; chance comes from the seed alone.

Rates are shares: of chunks (loss, duplicates), of transmissions (reorder), of wakes (deaths), of
cameras (drifting, lost_clocks, looping, same_names, weak).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from farmiq.lab.simulate.camera import Chunk, Frame, Reading
from farmiq.lab.simulate.camera_wire import DIALECTS, ENCODINGS, Dialect, Encoding, Speech

ZONES = ("Asia/Bangkok", "Europe/Berlin", "America/New_York")
FULL_V, EMPTY_V = 4.2, 3.0
_PER_WAKE_V, _WEAK_PER_WAKE_V = 0.002, 0.15
_MAX_DRIFT_S = 240.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CHUNK_BYTES = (1024, 2048, 4096)
SAME_NAME = "IMG_001.jpg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    seed: int = 1
    loss: float = 0.0
    duplicates: float = 0.0
    reorder: float = 0.0
    deaths: float = 0.0
    drifting: float = 0.0
    lost_clocks: float = 0.0
    looping: float = 0.0
    loop_wakes: int = 200
    same_names: float = 0.0
    weak: float = 0.0


ALL = Faults(
    loss=0.3, duplicates=0.1, reorder=0.5, deaths=0.1, drifting=0.3, lost_clocks=0.1, looping=0.05,
    same_names=0.3, weak=0.2,
)  # fmt: skip


def seeded(faults: Faults, *, seed: int, loop_wakes: int) -> Faults:
    return replace(faults, seed=seed, loop_wakes=loop_wakes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """A camera as it was made, and what is wrong with it for good."""

    number: int
    mac: str
    speech: Speech
    chunk_bytes: int
    timezone: str
    drift_s: float = 0.0
    lost_clock: bool = False
    loops: bool = False
    same_name: bool = False
    per_wake_v: float = _PER_WAKE_V


def fleet(
    count: int,
    *,
    faults: Faults,
    dialects: tuple[Dialect, ...] = DIALECTS,
    encodings: tuple[Encoding, ...] = ENCODINGS,
) -> list[Kit]:
    """So many cameras, the same for the same seed; dialects, encodings and zones take turns."""
    return [_kit(number, faults, dialects, encodings) for number in range(1, count + 1)]


def mac(seed: int, number: int) -> str:
    """An address of the locally administered kind, which no maker gave away."""
    return f"02{hashlib.blake2b(f'{seed} {number}'.encode(), digest_size=5).hexdigest()}".upper()


def _kit(
    number: int, faults: Faults, dialects: tuple[Dialect, ...], encodings: tuple[Encoding, ...]
) -> Kit:
    address = mac(faults.seed, number)

    def has(what: str, rate: float) -> bool:
        return share(faults.seed, what, address) < rate

    dialect = dialects[number % len(dialects)]
    encoding = encodings[number // len(dialects) % len(encodings)]
    drift_s = (share(faults.seed, "drift", address) * 2 - 1) * _MAX_DRIFT_S
    return Kit(
        number=number,
        mac=address,
        speech=Speech(
            address,
            dialect,
            "array" if dialect == "esp32cam" else encoding,
            names_chunks=dialect == "esp32cam" or number % 4 < 2,  # noqa: PLR2004 - a half
        ),
        chunk_bytes=CHUNK_BYTES[number % len(CHUNK_BYTES)],
        timezone=ZONES[number % len(ZONES)],
        drift_s=drift_s if has("drifts", faults.drifting) else 0.0,
        lost_clock=has("clock", faults.lost_clocks),
        loops=has("loops", faults.looping),
        same_name=has("name", faults.same_names),
        per_wake_v=_WEAK_PER_WAKE_V if has("weak", faults.weak) else _PER_WAKE_V,
    )


def image_name(kit: Kit, number: int) -> str:
    return SAME_NAME if kit.same_name else f"IMG_{number:05d}.jpg"


def clock(kit: Kit, *, now: datetime, powered_at: datetime) -> datetime:
    """What the camera's clock says, in whole seconds; a lost one began in 1970 at power-up."""
    moment = _EPOCH + (now - powered_at) if kit.lost_clock else now + timedelta(seconds=kit.drift_s)
    return moment.replace(microsecond=0)


def voltage(kit: Kit, wakes: int) -> float:
    return round(max(EMPTY_V, FULL_V - kit.per_wake_v * wakes), 3)


def measured(kit: Kit, *, number: int, seed: int, wakes: int) -> Reading:
    def around(what: str, middle: float, swing: float) -> float:
        return round(middle + swing * (share(seed, what, kit.mac, number) * 2 - 1), 2)

    return Reading(
        temperature=around("temperature", 24, 4),
        humidity=around("humidity", 62, 9),
        pressure=around("pressure", 1008, 12),
        gas_resistance=around("gas", 50_000, 9000),
        battery_voltage=voltage(kit, wakes),
        wifi_rssi=int(around("rssi", -67, 18)),
    )


def through_air(frames: Iterable[Frame], faults: Faults, *words: object) -> list[Frame]:
    """What arrives of a transmission: chunks are lost, doubled, overtaken; `words` name it."""
    arrived: list[Frame] = []
    chunks: list[Chunk] = []
    for place, frame in enumerate(frames):
        if not isinstance(frame, Chunk):
            arrived.append(frame)
        elif share(faults.seed, "loss", place, *words) >= faults.loss:
            doubled = share(faults.seed, "double", place, *words) < faults.duplicates
            chunks += [frame, frame] if doubled else [frame]
    if share(faults.seed, "reorder", *words) < faults.reorder:
        order = sorted(range(len(chunks)), key=lambda at: share(faults.seed, "order", at, *words))
        chunks = [chunks[at] for at in order]
    return [*arrived, *chunks]


def dies_after(faults: Faults, *words: object, frames: int) -> int | None:
    """After how many frames of a wake the battery gives way; None: it does not."""
    if share(faults.seed, "death", *words) >= faults.deaths:
        return None
    return int(share(faults.seed, "when", *words) * (frames + 1))


def share(*words: object) -> float:
    """In [0, 1), the same for the same words."""
    digest = hashlib.blake2b(" ".join(map(str, words)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64

"""Pure: an image on its way. Which chunks are here, what is due next, whether the whole is right.

    announced --chunks--> receiving --all here--> complete
                           |    ^
              time is over v    | announced again
                          failed

Chunks may come in any order, twice or not at all; before the announcement they wait for it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from farmiq.cloud.camera.gateway.wire import (
    MAX_CHUNKS,
    MAX_IMAGE_BYTES,
    Metadata,
    RejectedMessageError,
)

State = Literal["receiving", "complete", "failed"]

# Open images per camera, and images whose bytes are kept at all (C-78).
MAX_OPEN = 2
MAX_KEPT = 4
# Images of a camera that are here whole and wait to be stored: the bucket may be away for days.
MAX_WHOLE = 32
# Rounds of missing_chunks that an image gets before it may fail, and rounds in all (C-68).
MIN_ROUNDS_IN_VAIN = 3
MAX_ROUNDS = 60
# A camera that may still be sending is asked after so many times the pause between its chunks.
GAPS_TO_WAIT = 4.0
MAX_PACED_S = 5.0
MAX_PACED_TRANSFERS = 20_000
# Until its first chunk comes a camera gets so many times the pause of a round.
FIRST_CHUNK_ROUNDS = 4.0
# Rounds in vain beyond those double the pause, up to this.
MAX_BACKOFF_S = 30.0
# How often an image that is here, but wrong, is asked for again whole.
MAX_SPOILED = 1
MAX_NUMBERS = 512
DIGEST_BYTES = 8
# The head of a JPEG may be the same in every picture of a camera; what follows it never is.
HEAD_BYTES = 1024
# Fewer bytes, or fewer values among them, may stand in any image: its end, or what fills it up.
TELLING_BYTES = 32
TELLING_VALUES = 16
# What is about how an image is sent, not about what it is.
_CHUNKING = ("total_chunks", "chunk_size", "first_chunk_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long after the last sign a round is due, and when an image has failed.

    `chunk_gaps` is how fast cameras send: when the last chunk of each transfer came, the pause
    between its chunks, and the last one that it was asked for.
    """

    round_s: float = 0.5
    timeout_s: float = 300.0
    resume_days: float = 7.0
    chunk_gaps: dict[UUID, tuple[int, float, int | None]] = field(default_factory=dict)

    @property
    def round(self) -> timedelta:
        return timedelta(seconds=self.round_s)

    @property
    def timeout(self) -> timedelta:
        return timedelta(seconds=self.timeout_s)

    def saw_chunk(self, transfer_id: UUID, stored_at_ns: int) -> None:
        """A chunk reached the broker then."""
        last_ns, gap_s, asked = self.chunk_gaps.pop(transfer_id, (0, 0.0, None))
        if last_ns:
            pause_s = min(max(0.0, (stored_at_ns - last_ns) / 1e9), MAX_PACED_S)
            gap_s = 0.7 * gap_s + 0.3 * pause_s
        self.chunk_gaps[transfer_id] = (stored_at_ns, gap_s, asked)
        if len(self.chunk_gaps) > MAX_PACED_TRANSFERS:
            del self.chunk_gaps[next(iter(self.chunk_gaps))]

    def was_asked(self, transfer_id: UUID, last_number: int) -> None:
        """The pause until the answer comes tells nothing of how fast the camera sends."""
        gap_s = self.chunk_gaps.get(transfer_id, (0, 0.0, None))[1]
        self.chunk_gaps[transfer_id] = (0, gap_s, last_number)

    def gap_s(self, transfer_id: UUID, transfer: "Transfer") -> float:
        """The pause to expect; none where the last chunk that was asked for is here."""
        _, gap_s, asked = self.chunk_gaps.get(transfer_id, (0, 0.0, None))
        is_over = asked is not None and has(transfer.received, asked - transfer.first_chunk_id)
        return 0.0 if is_over else gap_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What is known of an image on its way. `received` has a bit for each chunk that is here."""

    state: State = "receiving"
    total_chunks: int | None = None
    image_size: int | None = None
    chunk_size: int | None = None
    first_chunk_id: int = 0
    sha256: bytes | None = None
    received: bytes = b""
    received_count: int = 0
    received_bytes: int = 0
    rounds: int = 0
    rounds_in_vain: int = 0
    spoiled: int = 0
    heard_at: datetime
    asked_at: datetime | None = None

    @property
    def is_announced(self) -> bool:
        return self.total_chunks is not None

    @property
    def is_whole(self) -> bool:
        return self.received_count == self.total_chunks


@dataclass(frozen=True, slots=True)
class Assemble:
    """All chunks are here."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Another round, for these; numbered as the camera counts."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    until: datetime


@dataclass(frozen=True, slots=True)
class Fail:
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """It is stored: say so, once more if need be."""


@dataclass(frozen=True, slots=True)
class Withhold:
    """Its camera is no longer at this image, or retired: ACK_OK would be taken for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAck:
    """An ACK_OK: whether it was ever sent, and what its camera has done since.

    `other_…` is about images of the same name. `is_retired`: another camera, of another company,
    may have its address.
    """

    acknowledged_count: int
    heard_at: datetime
    camera_heard_at: datetime
    greeted_at: datetime | None = None
    other_is_open: bool = False
    other_announced_at: datetime | None = None
    is_retired: bool = False


@dataclass(frozen=True, slots=True)
class Compare:
    """Nobody announced these bytes: perhaps they are of an image that is stored already."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Nobody will ask for these bytes any more."""


Step = Assemble | Ask | Wait | Fail | Acknowledge | Compare | Expire


def next_step(transfer: Transfer, *, now: datetime, pace: Pace, gap_s: float = 0.0) -> Step:
    """What is due for a transfer; `gap_s` is the pause between its camera's chunks, if known."""
    if transfer.state == "complete":
        return Acknowledge()
    if transfer.state == "failed":
        until = transfer.heard_at + timedelta(days=pace.resume_days)
        return Expire() if now >= until else Wait(until)
    if not transfer.is_announced:
        return _unannounced(transfer, now=now, pace=pace)
    return Assemble() if transfer.is_whole else _gaps(transfer, now=now, pace=pace, gap_s=gap_s)


def acknowledgement(
    pending: PendingAck, *, now: datetime, pace: Pace
) -> Acknowledge | Wait | Withhold:
    """Whether ACK_OK may be sent now. It carries a name only, and the camera deletes by it.

    The caller has read all that the camera said until now. Whoever waits for an answer is quiet: a
    repeat, which may answer what was sent long ago, is only sent to one that is.
    """
    moved_on = (pending.greeted_at, pending.other_announced_at)
    if any(at is not None and at > pending.heard_at for at in moved_on):
        return Withhold()
    if pending.other_is_open or pending.is_retired:
        return Withhold()
    quiet_at = pending.camera_heard_at + pace.round
    return Acknowledge() if pending.acknowledged_count == 0 or now >= quiet_at else Wait(quiet_at)


def acknowledgement_due(acknowledged_count: int, *, now: datetime, pace: Pace) -> datetime:
    """When to look at an ACK_OK that is pending from now on."""
    return now + pace.round if acknowledged_count else now


def _gaps(transfer: Transfer, *, now: datetime, pace: Pace, gap_s: float) -> Step:
    fails_at = transfer.heard_at + pace.timeout
    round_at = _round_at(transfer, pace=pace, gap_s=gap_s)
    if now >= fails_at and (
        transfer.rounds_in_vain >= MIN_ROUNDS_IN_VAIN or transfer.rounds >= MAX_ROUNDS
    ):
        return Fail("TIMEOUT", _timeout_text(transfer))
    if transfer.rounds >= MAX_ROUNDS:
        return Wait(fails_at)
    return Ask(missing(transfer)) if now >= round_at else Wait(round_at)


def _round_at(transfer: Transfer, *, pace: Pace, gap_s: float) -> datetime:
    """When to ask for what is missing: soon after the camera's pass, later after rounds in vain."""
    wait_s = pace.round_s
    if transfer.received_count == 0:
        wait_s *= FIRST_CHUNK_ROUNDS
    elif transfer.rounds > 0 or not has(transfer.received, (transfer.total_chunks or 1) - 1):
        # The last chunk has not come: perhaps the camera is still sending, at its own pace.
        wait_s = max(wait_s, min(GAPS_TO_WAIT * gap_s, MAX_PACED_S))
    if transfer.asked_at is None or transfer.asked_at <= transfer.heard_at:
        return transfer.heard_at + timedelta(seconds=wait_s)
    doublings = min(max(0, transfer.rounds_in_vain - MIN_ROUNDS_IN_VAIN), 10)
    wait_s = min(wait_s * 2**doublings, MAX_BACKOFF_S)
    return transfer.asked_at + timedelta(seconds=max(wait_s, pace.round_s))


def _unannounced(transfer: Transfer, *, now: datetime, pace: Pace) -> Step:
    """Compared when no more comes for a while; `asked_at` is when that was."""
    until, round_at = transfer.heard_at + pace.timeout, transfer.heard_at + pace.round
    if now >= until:
        return Expire()
    if transfer.asked_at is not None and transfer.asked_at >= transfer.heard_at:
        return Wait(until)
    return Compare() if now >= round_at else Wait(round_at)


def _timeout_text(transfer: Transfer) -> str:
    here, total = transfer.received_count, transfer.total_chunks
    return f"{here} of {total} chunks came; asked for the rest {transfer.rounds} times"


def announced(transfer: Transfer, said: Metadata, *, now: datetime) -> Transfer:
    """After an announcement. Raises RejectedMessageError if it contradicts one that is on its way.

    A failed image begins where it stopped; if it is announced otherwise, from nothing. A stored one
    may be announced in other chunks: its bytes are the same. What is left out holds as it was said.
    """
    differences = _differences(transfer, said)
    if transfer.state == "complete":
        differences = [each for each in differences if not each.startswith(_CHUNKING)]
    if differences and transfer.state != "failed":
        raise RejectedMessageError(differences, kind="conflict")
    if transfer.state == "complete":
        return replace(transfer, heard_at=now)
    bare = not transfer.is_announced or differences
    known = transfer if transfer.state == "receiving" else said
    return replace(
        transfer,
        state="receiving",
        total_chunks=said.total_chunks,
        image_size=said.image_size or known.image_size,
        chunk_size=said.chunk_size or known.chunk_size,
        first_chunk_id=said.first_chunk_id,
        sha256=said.sha256 or known.sha256,
        received=bytes((said.total_chunks + 7) // 8) if bare else transfer.received,
        received_count=0 if bare else transfer.received_count,
        received_bytes=0 if bare else transfer.received_bytes,
        spoiled=0 if bare else transfer.spoiled,
        # Whether it was ever asked for says whose a chunk is that came with another image too.
        rounds=min(transfer.rounds, 1),
        rounds_in_vain=0,
        heard_at=now,
        asked_at=None,
    )


def starts_over(transfer: Transfer, said: Metadata) -> bool:
    """Whether the bytes that are here are of an image announced otherwise."""
    return transfer.state == "failed" and bool(_differences(transfer, said))


def _differences(transfer: Transfer, said: Metadata) -> list[str]:
    if not transfer.is_announced:
        return []
    pairs = (
        ("total_chunks", transfer.total_chunks, said.total_chunks),
        ("image_size", transfer.image_size, said.image_size),
        ("chunk_size", transfer.chunk_size, said.chunk_size),
        ("sha256", transfer.sha256, said.sha256),
        ("first_chunk_id", transfer.first_chunk_id, said.first_chunk_id),
    )
    return [
        f"{name} of this image was {_shown(before)} and is {_shown(now)} now"
        for name, before, now in pairs
        if before is not None and now is not None and before != now
    ]


def _shown(value: int | bytes) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def took(transfer: Transfer, number: int, size: int, *, now: datetime) -> Transfer | None:
    """After a chunk of so many bytes; None if it is a repeat. Raises RejectedMessageError."""
    if wrong := _chunk_problems(transfer, number, size):
        raise RejectedMessageError(wrong, kind="limits")
    index = number - transfer.first_chunk_id
    if has(transfer.received, index):
        return None
    return replace(
        transfer,
        received=_with(transfer.received, index),
        received_count=transfer.received_count + 1,
        received_bytes=transfer.received_bytes + size,
        rounds_in_vain=0,
        heard_at=now,
    )


def _chunk_problems(transfer: Transfer, number: int, size: int) -> list[str]:
    index = number - transfer.first_chunk_id
    total = transfer.total_chunks
    last = (total or MAX_CHUNKS + 1) - 1
    if not 0 <= index <= last:
        counted = f"{transfer.first_chunk_id} to {last + transfer.first_chunk_id}"
        return [f"chunk_id is {number}: this image has {counted}"]
    if has(transfer.received, index):
        return []
    most = transfer.image_size or MAX_IMAGE_BYTES
    if transfer.received_bytes + size > most:
        return [f"chunk {number} makes the image larger than {most} bytes"]
    wanted = _wanted(transfer, index)
    if wanted is not None and size != wanted:
        return [f"chunk {number} has {size} bytes, not {wanted}"]
    return []


def _wanted(transfer: Transfer, index: int) -> int | None:
    """How many bytes a chunk has to have, if that is known."""
    if transfer.chunk_size is None or transfer.total_chunks is None:
        return None
    if index < transfer.total_chunks - 1:
        return transfer.chunk_size
    if transfer.image_size is None:
        return None
    return transfer.image_size - index * transfer.chunk_size


def asked(transfer: Transfer, *, now: datetime) -> Transfer:
    return replace(
        transfer,
        rounds=transfer.rounds + 1,
        rounds_in_vain=transfer.rounds_in_vain + 1,
        asked_at=now,
    )


def spoiled(transfer: Transfer, *, now: datetime) -> Transfer:
    """After the whole proved wrong: which chunk it was nobody knows, so none is here."""
    return replace(bare(transfer), spoiled=transfer.spoiled + 1, heard_at=now, asked_at=now)


def bare(transfer: Transfer) -> Transfer:
    """Without its bytes."""
    return replace(
        transfer, received=bytes(len(transfer.received)), received_count=0, received_bytes=0
    )


def missing(transfer: Transfer) -> tuple[int, ...]:
    """Which chunks have not come, numbered as the camera counts."""
    first, total = transfer.first_chunk_id, transfer.total_chunks or 0
    return tuple(first + index for index in range(total) if not has(transfer.received, index))


def in_messages(numbers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """As many as a small device takes at once."""
    return [numbers[at : at + MAX_NUMBERS] for at in range(0, len(numbers), MAX_NUMBERS)]


def has(received: bytes, index: int) -> bool:
    byte, bit = divmod(index, 8)
    return byte < len(received) and bool(received[byte] >> bit & 1)


def _with(received: bytes, index: int) -> bytes:
    byte, bit = divmod(index, 8)
    changed = bytearray(received.ljust(byte + 1, b"\0"))
    changed[byte] |= 1 << bit
    return bytes(changed)


# --- the whole


def problems(transfer: Transfer, data: bytes) -> list[str]:
    """What is wrong with an assembled image."""
    wrong = []
    if transfer.image_size is not None and len(data) != transfer.image_size:
        wrong.append(f"it has {len(data)} bytes, and was announced with {transfer.image_size}")
    if not data.startswith(b"\xff\xd8\xff"):
        wrong.append("it does not begin as a JPEG does")
    # Cameras that send whole blocks fill the last one up.
    if not data.rstrip(b"\0").endswith(b"\xff\xd9"):
        wrong.append("it does not end as a JPEG does: it is cut off")
    if transfer.sha256 is not None and hashlib.sha256(data).digest() != transfer.sha256:
        wrong.append("its sha256 is not the announced one")
    return wrong


def digests(pieces: list[bytes]) -> bytes:
    """What a stored image's chunks are known by when one comes again."""
    return b"".join(_digest(piece) for piece in pieces)


def is_same(known: bytes, transfer: Transfer, number: int, data: bytes) -> bool:
    """Whether a stored image has this very chunk; others may have it too."""
    index = number - transfer.first_chunk_id
    within = 0 <= index < (transfer.total_chunks or 0)
    return within and known[index * DIGEST_BYTES :][:DIGEST_BYTES] == _digest(data)


def is_repeat(known: bytes, transfer: Transfer, number: int, data: bytes) -> bool:
    """Whether this chunk is surely of this stored image, and not of another under its name."""
    index = number - transfer.first_chunk_id
    beyond_head = index * (transfer.chunk_size or len(data)) >= HEAD_BYTES
    telling = transfer.total_chunks == 1 or beyond_head
    return telling and is_same(known, transfer, number, data)


def is_part(image: bytes, pieces: Sequence[bytes]) -> bool:
    """Whether these are surely parts of this stored image, in chunks of whatever size."""
    if b"".join(pieces) == image:
        return True
    found = [image.find(piece) for piece in pieces]
    return min(found, default=-1) >= 0 and any(
        at >= HEAD_BYTES and _is_telling(piece) for at, piece in zip(found, pieces, strict=True)
    )


def _is_telling(piece: bytes) -> bool:
    return len(piece) >= TELLING_BYTES and len(set(piece)) >= TELLING_VALUES


def _digest(piece: bytes) -> bytes:
    return hashlib.sha256(piece).digest()[:DIGEST_BYTES]

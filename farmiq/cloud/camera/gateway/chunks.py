"""Pure: the transfer of an image: which chunks were received, what is due next, is it correct.

    announcement or chunk --> receiving --all received--> complete
                              |    ^
                      timeout v    | announced again
                             failed

Chunks may arrive in any order, twice or not at all, and also before their announcement.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from farmiq.cloud.camera.protocol.wire import (
    MAX_CHUNKS,
    MAX_IMAGE_BYTES,
    Announcement,
    RejectedMessageError,
)
from farmiq.plumbing import retry

State = Literal["receiving", "complete", "failed"]

# Open images of a camera, and images of which chunks are stored (C-78).
MAX_OPEN = 2
MAX_WITH_CHUNKS = 4
# Complete images of a camera that wait for the bucket, which may be unavailable for days.
MAX_WHOLE = 32
# Rounds of missing_chunks that an image gets before it may fail, and rounds in all (C-68).
MIN_ROUNDS_IN_VAIN = 3
MAX_ROUNDS = 60
# While a camera may still be sending, a request waits this many gaps between its chunks.
GAPS_TO_WAIT = 4.0
MAX_GAP_S = 5.0
MAX_TIMED_TRANSFERS = 20_000
# Before the first chunk a camera gets this many times the pause of a round.
FIRST_CHUNK_ROUNDS = 4.0
# Each further round in vain doubles the pause, up to this.
MAX_BACKOFF_S = 30.0
# How often all chunks of a corrupt image are requested again.
MAX_SPOILED = 1
MAX_NUMBERS = 512
DIGEST_BYTES = 8
# The header of a JPEG may be the same in all images of a camera; the data after it is not.
HEAD_BYTES = 1024
# Shorter pieces, or pieces with fewer values, may be in any image: its end, or its padding.
DISTINCTIVE_BYTES = 32
DISTINCTIVE_VALUES = 16
# Fields about how an image is sent, not about its content.
_CHUNKING = ("total_chunks", "chunk_size", "first_chunk_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When missing chunks are requested, and when an image has failed.

    `chunk_gaps` has, by transfer: when the last chunk arrived (ns), the mean gap between chunks,
    and the last chunk that was requested.
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

    def note_chunk(self, transfer_id: UUID, stored_at_ns: int) -> None:
        last_ns, gap_s, last_requested = self.chunk_gaps.pop(transfer_id, (0, 0.0, None))
        if last_ns:
            pause_s = min(max(0.0, (stored_at_ns - last_ns) / 1e9), MAX_GAP_S)
            gap_s = 0.7 * gap_s + 0.3 * pause_s
        self.chunk_gaps[transfer_id] = (stored_at_ns, gap_s, last_requested)
        if len(self.chunk_gaps) > MAX_TIMED_TRANSFERS:
            del self.chunk_gaps[next(iter(self.chunk_gaps))]

    def note_request(self, transfer_id: UUID, last_number: int) -> None:
        """The time until the answer is not a gap between chunks."""
        gap_s = self.chunk_gaps.get(transfer_id, (0, 0.0, None))[1]
        self.chunk_gaps[transfer_id] = (0, gap_s, last_number)

    def gap_s(self, transfer_id: UUID, transfer: "Transfer") -> float:
        """The expected gap; 0 if the last chunk that was requested is received."""
        _, gap_s, number = self.chunk_gaps.get(transfer_id, (0, 0.0, None))
        is_over = number is not None and has(transfer.received, number - transfer.first_chunk_id)
        return 0.0 if is_over else gap_s


class Transfer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """State of a transfer. `received` has one bit per chunk."""

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


class Action(Enum):
    """A step without parameters."""

    # All chunks are received.
    ASSEMBLE = "assemble"
    # The image is stored: send ACK_OK, again if necessary.
    ACKNOWLEDGE = "acknowledge"
    # No ACK_OK: the camera sends another image now and would take it for that, or is retired.
    WITHHOLD = "withhold"
    # Chunks without an announcement: perhaps they belong to an image that is stored.
    COMPARE = "compare"
    # The chunks are not needed any more.
    EXPIRE = "expire"


class RequestChunks(NamedTuple):
    """Request these chunks, numbered as the camera counts."""

    numbers: tuple[int, ...]


class Wait(NamedTuple):
    until: datetime


class Fail(NamedTuple):
    code: str
    message: str


Step = Action | RequestChunks | Wait | Fail


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraState:
    """What the camera of a transfer has done since; `other_…` is about images of the same name.

    `is_retired`: a camera of another company may have its address now. `sends_another`: an image of
    any name is being received. `is_overtaken`: an image of the same name was announced since, or
    together with this one.
    """

    acknowledged_count: int
    heard_at: datetime
    camera_heard_at: datetime
    greeted_at: datetime | None = None
    other_is_open: bool = False
    other_announced_at: datetime | None = None
    is_retired: bool = False
    sends_another: bool = False
    is_overtaken: bool = False


def next_step(transfer: Transfer, *, now: datetime, timing: Timing, gap_s: float = 0.0) -> Step:
    """What is due for a transfer; `gap_s` is the gap between its chunks, if known."""
    if transfer.state == "complete":
        return Action.ACKNOWLEDGE
    if transfer.state == "failed":
        until = transfer.heard_at + timedelta(days=timing.resume_days)
        return Action.EXPIRE if now >= until else Wait(until)
    if not transfer.is_announced:
        return _unannounced(transfer, now=now, timing=timing)
    return (
        Action.ASSEMBLE
        if transfer.is_whole
        else _gaps(transfer, now=now, timing=timing, gap_s=gap_s)
    )


def acknowledgement(camera: CameraState, *, now: datetime, timing: Timing) -> Action | Wait:
    """Whether ACK_OK may be sent now. It has only a name, and the camera deletes that image.

    All messages of the camera until now are stored. A repeated ACK_OK is only sent to a camera that
    is silent, as one that waits for an answer is.
    """
    moved_on = (camera.greeted_at, camera.other_announced_at)
    if any(at is not None and at > camera.heard_at for at in moved_on):
        return Action.WITHHOLD
    if camera.other_is_open or camera.is_retired:
        return Action.WITHHOLD
    quiet_at = camera.camera_heard_at + timing.round
    return (
        Action.ACKNOWLEDGE if camera.acknowledged_count == 0 or now >= quiet_at else Wait(quiet_at)
    )


def acknowledgement_due(acknowledged_count: int, *, now: datetime, timing: Timing) -> datetime:
    """When to decide about an ACK_OK that is pending from now on."""
    return now + timing.round if acknowledged_count else now


def _gaps(transfer: Transfer, *, now: datetime, timing: Timing, gap_s: float) -> Step:
    fails_at = transfer.heard_at + timing.timeout
    round_at = _round_at(transfer, timing=timing, gap_s=gap_s)
    if now >= fails_at and (
        transfer.rounds_in_vain >= MIN_ROUNDS_IN_VAIN or transfer.rounds >= MAX_ROUNDS
    ):
        chunks_of = f"{transfer.received_count} of {transfer.total_chunks} chunks"
        return Fail("TIMEOUT", f"{chunks_of} came; asked for the rest {transfer.rounds} times")
    if transfer.rounds >= MAX_ROUNDS:
        return Wait(fails_at)
    return RequestChunks(missing(transfer)) if now >= round_at else Wait(round_at)


def _round_at(transfer: Transfer, *, timing: Timing, gap_s: float) -> datetime:
    """When to request missing chunks: soon after the last chunk, later after rounds in vain."""
    wait_s = timing.round_s
    if transfer.received_count == 0:
        wait_s *= FIRST_CHUNK_ROUNDS
    elif transfer.rounds > 0 or not has(transfer.received, (transfer.total_chunks or 1) - 1):
        # The last chunk is missing: perhaps the camera is still sending.
        wait_s = max(wait_s, min(GAPS_TO_WAIT * gap_s, MAX_GAP_S))
    if transfer.asked_at is None or transfer.asked_at <= transfer.heard_at:
        return transfer.heard_at + timedelta(seconds=wait_s)
    attempt = max(0, transfer.rounds_in_vain - MIN_ROUNDS_IN_VAIN)
    wait_s = retry.fixed_delay_s(attempt, base_s=wait_s, cap_s=MAX_BACKOFF_S)
    return transfer.asked_at + timedelta(seconds=max(wait_s, timing.round_s))


def _unannounced(transfer: Transfer, *, now: datetime, timing: Timing) -> Step:
    """Compare after a pause without chunks; `asked_at` is when that was done."""
    until, round_at = transfer.heard_at + timing.timeout, transfer.heard_at + timing.round
    if now >= until:
        return Action.EXPIRE
    if transfer.asked_at is not None and transfer.asked_at >= transfer.heard_at:
        return Wait(until)
    return Action.COMPARE if now >= round_at else Wait(round_at)


def after_announcement(
    transfer: Transfer, announcement: Announcement, *, now: datetime
) -> Transfer:
    """Raises RejectedMessageError if it contradicts the announcement of an open image.

    A failed image continues where it stopped, or from the start if it is announced differently. A
    stored one may be announced in other chunks. A field that is left out stays as it was.
    """
    reasons = differences(transfer, announcement)
    if transfer.state == "complete":
        reasons = [text for text in reasons if not text.startswith(_CHUNKING)]
    if reasons and transfer.state != "failed":
        raise RejectedMessageError(reasons, kind="conflict")
    if transfer.state == "complete":
        return replace(transfer, heard_at=now)
    from_start = not transfer.is_announced or reasons
    known = transfer if transfer.state == "receiving" else announcement
    return replace(
        transfer,
        state="receiving",
        total_chunks=announcement.total_chunks,
        image_size=announcement.image_size or known.image_size,
        chunk_size=announcement.chunk_size or known.chunk_size,
        first_chunk_id=announcement.first_chunk_id,
        sha256=announcement.sha256 or known.sha256,
        received=bytes((announcement.total_chunks + 7) // 8) if from_start else transfer.received,
        received_count=0 if from_start else transfer.received_count,
        received_bytes=0 if from_start else transfer.received_bytes,
        spoiled=0 if from_start else transfer.spoiled,
        # Whether chunks were ever requested decides which image a repeated chunk belongs to.
        rounds=min(transfer.rounds, 1),
        rounds_in_vain=0,
        heard_at=now,
        asked_at=None,
    )


def starts_over(transfer: Transfer, announcement: Announcement) -> bool:
    """Whether a failed image is announced differently, so its chunks are useless."""
    return transfer.state == "failed" and bool(differences(transfer, announcement))


def differences(transfer: Transfer, announcement: Announcement) -> list[str]:
    if not transfer.is_announced:
        return []
    names = ("total_chunks", "image_size", "chunk_size", "sha256", "first_chunk_id")
    pairs = [(name, getattr(transfer, name), getattr(announcement, name)) for name in names]
    return [
        f"{name} of this image was {_text(before)} and is {_text(now)} now"
        for name, before, now in pairs
        if before is not None and now is not None and before != now
    ]


def _text(value: int | bytes) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def after_chunk(transfer: Transfer, number: int, size: int, *, now: datetime) -> Transfer | None:
    """None if the chunk is a repeat. Raises RejectedMessageError."""
    if reasons := _chunk_problems(transfer, number, size):
        raise RejectedMessageError(reasons, kind="limits")
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
    last = (transfer.total_chunks or MAX_CHUNKS + 1) - 1
    if not 0 <= index <= last:
        numbers = f"{transfer.first_chunk_id} to {last + transfer.first_chunk_id}"
        return [f"chunk_id is {number}: this image has {numbers}"]
    if has(transfer.received, index):
        return []
    max_bytes = transfer.image_size or MAX_IMAGE_BYTES
    if transfer.received_bytes + size > max_bytes:
        return [f"chunk {number} makes the image larger than {max_bytes} bytes"]
    expected = _expected_size(transfer, index)
    if expected is not None and size != expected:
        return [f"chunk {number} has {size} bytes, not {expected}"]
    return []


def _expected_size(transfer: Transfer, index: int) -> int | None:
    if transfer.chunk_size is None or transfer.total_chunks is None:
        return None
    if index < transfer.total_chunks - 1:
        return transfer.chunk_size
    if transfer.image_size is None:
        return None
    return transfer.image_size - index * transfer.chunk_size


def after_request(transfer: Transfer, *, now: datetime) -> Transfer:
    return replace(
        transfer,
        rounds=transfer.rounds + 1,
        rounds_in_vain=transfer.rounds_in_vain + 1,
        asked_at=now,
    )


def after_corruption(transfer: Transfer, *, now: datetime) -> Transfer:
    """Nobody knows which chunk is wrong: all are requested again."""
    return replace(
        without_chunks(transfer), spoiled=transfer.spoiled + 1, heard_at=now, asked_at=now
    )


def without_chunks(transfer: Transfer) -> Transfer:
    return replace(
        transfer, received=bytes(len(transfer.received)), received_count=0, received_bytes=0
    )


def missing(transfer: Transfer) -> tuple[int, ...]:
    """Numbers of missing chunks, as the camera counts."""
    first, total = transfer.first_chunk_id, transfer.total_chunks or 0
    return tuple(first + index for index in range(total) if not has(transfer.received, index))


def in_messages(numbers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Split into messages that a small device can read."""
    return [numbers[at : at + MAX_NUMBERS] for at in range(0, len(numbers), MAX_NUMBERS)]


def has(received: bytes, index: int) -> bool:
    byte, bit = divmod(index, 8)
    return byte < len(received) and bool(received[byte] >> bit & 1)


def _with(received: bytes, index: int) -> bytes:
    byte, bit = divmod(index, 8)
    changed = bytearray(received.ljust(byte + 1, b"\0"))
    changed[byte] |= 1 << bit
    return bytes(changed)


# --- complete images


def problems(transfer: Transfer, data: bytes) -> list[str]:
    """What is wrong with a complete image."""
    reasons = []
    if transfer.image_size is not None and len(data) != transfer.image_size:
        reasons.append(f"it has {len(data)} bytes, and was announced with {transfer.image_size}")
    if not data.startswith(b"\xff\xd8\xff"):
        reasons.append("it does not begin as a JPEG does")
    # Some cameras pad the last block.
    if not data.rstrip(b"\0").endswith(b"\xff\xd9"):
        reasons.append("it does not end as a JPEG does: it is cut off")
    if transfer.sha256 is not None and hashlib.sha256(data).digest() != transfer.sha256:
        reasons.append("its sha256 is not the announced one")
    return reasons


def digests(pieces: list[bytes]) -> bytes:
    """To recognize the chunks of a stored image when they arrive again."""
    return b"".join(_digest(piece) for piece in pieces)


def is_same(known: bytes, transfer: Transfer, number: int, data: bytes) -> bool:
    """Whether a stored image has this chunk; other images may have it too."""
    index = number - transfer.first_chunk_id
    within = 0 <= index < (transfer.total_chunks or 0)
    return within and known[index * DIGEST_BYTES :][:DIGEST_BYTES] == _digest(data)


def is_repeat(known: bytes, transfer: Transfer, number: int, data: bytes) -> bool:
    """Whether this chunk is certainly of this stored image, not of another of its name."""
    index = number - transfer.first_chunk_id
    beyond_head = index * (transfer.chunk_size or len(data)) >= HEAD_BYTES
    is_distinctive = transfer.total_chunks == 1 or beyond_head
    return is_distinctive and is_same(known, transfer, number, data)


def is_part(image: bytes, pieces: Sequence[bytes]) -> bool:
    """Whether these are certainly parts of this stored image, in chunks of any size."""
    if b"".join(pieces) == image:
        return True
    positions = [image.find(piece) for piece in pieces]
    return min(positions, default=-1) >= 0 and any(
        at >= HEAD_BYTES
        and len(piece) >= DISTINCTIVE_BYTES
        and len(set(piece)) >= DISTINCTIVE_VALUES
        for at, piece in zip(positions, pieces, strict=True)
    )


def _digest(piece: bytes) -> bytes:
    return hashlib.sha256(piece).digest()[:DIGEST_BYTES]

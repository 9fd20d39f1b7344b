"""An image on its way: any order, repeats, gaps; bounded rounds; nothing wrong is whole."""

import hashlib
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from farmiq.cloud.camera.gateway import chunks
from farmiq.cloud.camera.gateway.chunks import (
    Action,
    CameraState,
    Fail,
    RequestChunks,
    Timing,
    Transfer,
    Wait,
)
from farmiq.cloud.camera.protocol import wire
from farmiq.cloud.camera.protocol.wire import Announcement, RejectedMessageError

NOW = datetime(2025, 1, 15, 8, tzinfo=UTC)
TIMING = Timing(round_s=5, timeout_s=300, resume_days=7)


def jpeg(size: int) -> bytes:
    return b"\xff\xd8\xff" + Random(size).randbytes(size - 5) + b"\xff\xd9"


def metadata(total: int, **said: object) -> Announcement:
    given_: dict[str, object] = {"image_name": "a.jpg", "captured_at": NOW, "total_chunks": total}
    return Announcement(**{**given_, **said})  # type: ignore[arg-type]


def opened(total: int, **said: object) -> Transfer:
    return chunks.after_announcement(Transfer(heard_at=NOW), metadata(total, **said), now=NOW)


@given(
    size=st.integers(10, 4000), chunk_size=st.integers(1, 600), first=st.integers(0, 1),
    seed=st.integers(0, 2**32),
)  # fmt: skip
@pytest.mark.req("DB2-13")
def test_any_order_with_repeats_and_losses_gives_the_same_bytes(
    size: int, chunk_size: int, first: int, seed: int
) -> None:
    chance = Random(seed)
    image = jpeg(size)
    pieces = {
        first + n: image[at : at + chunk_size] for n, at in enumerate(range(0, size, chunk_size))
    }
    transfer = opened(
        len(pieces), image_size=size, chunk_size=chunk_size, first_chunk_id=first,
        sha256=hashlib.sha256(image).digest(),
    )  # fmt: skip
    kept: dict[int, bytes] = {}
    wanted = list(pieces)
    while not transfer.is_whole:
        sent = [n for n in wanted * chance.randint(1, 2) if chance.random() > 0.3]
        chance.shuffle(sent)
        for number in sent:
            after = chunks.after_chunk(transfer, number, len(pieces[number]), now=NOW)
            if after is not None:
                assert number not in kept
                kept[number], transfer = pieces[number], after
        wanted = list(chunks.missing(transfer))
    whole = b"".join(kept[number] for number in sorted(kept))
    assert whole == image
    assert chunks.problems(transfer, whole) == []
    assert chunks.next_step(transfer, now=NOW, timing=TIMING) == Action.ASSEMBLE


@pytest.mark.req("DB2-13")
def test_rounds_in_vain_come_more_and_more_seldom_until_time_decides() -> None:
    transfer, now, asked = opened(4, first_chunk_id=1), NOW, [NOW]
    after = chunks.after_chunk(transfer, 2, 10, now=now)
    assert after is not None
    transfer = after
    while isinstance(
        step := chunks.next_step(transfer, now=now, timing=TIMING), (Wait, RequestChunks)
    ):
        if isinstance(step, RequestChunks):
            assert step.numbers == (1, 3, 4)
            asked.append(now)
            transfer = chunks.after_request(transfer, now=now)
        else:
            now = step.until
    pauses = [(later - before).total_seconds() for before, later in pairwise(asked)]
    assert pauses[:6] == [5, 5, 5, 5, 10, 20]
    assert set(pauses[6:]) == {chunks.MAX_BACKOFF_S}
    rounds = len(asked) - 1
    assert step == Fail("TIMEOUT", f"1 of 4 chunks came; asked for the rest {rounds} times")
    assert NOW + TIMING.timeout <= now <= NOW + TIMING.timeout + timedelta(seconds=30)


def test_a_round_that_brought_a_chunk_was_not_in_vain_but_there_is_an_end() -> None:
    transfer = opened(100)
    for number in range(chunks.MAX_ROUNDS):
        transfer = chunks.after_request(transfer, now=NOW)
        transfer = chunks.after_chunk(transfer, number, 1, now=NOW) or transfer
    assert chunks.next_step(transfer, now=NOW, timing=TIMING) == Wait(NOW + TIMING.timeout)


@pytest.mark.parametrize(
    ("numbers", "gap_s", "wait_s"),
    [
        ([], 0.0, 20.0),  # it may not have begun
        ([0, 1], 0.0, 5.0),
        ([0, 1], 1.2, 5.0),
        ([0, 1], 3.0, 5.0),  # never later than MAX_GAP_S, unless a round is longer
        ([0, 3], 3.0, 5.0),  # the last one came: the camera has sent all
    ],
)
def test_missing_chunks_are_asked_for_at_the_pace_of_the_camera(
    numbers: list[int], gap_s: float, wait_s: float
) -> None:
    transfer = opened(4)
    for number in numbers:
        transfer = chunks.after_chunk(transfer, number, 1, now=NOW) or transfer
    step = chunks.next_step(transfer, now=NOW, timing=TIMING, gap_s=gap_s)
    assert step == Wait(NOW + timedelta(seconds=wait_s))


def test_a_camera_that_sends_slowly_is_not_asked_while_it_sends() -> None:
    timing, transfer_id = Timing(), UUID(int=1)
    for second in range(5):
        timing.note_chunk(transfer_id, 10**18 + second * 10**9)
    gap_s = timing.gap_s(transfer_id, opened(9))
    transfer = chunks.after_chunk(opened(9), 4, 1, now=NOW)
    assert transfer is not None
    paced = chunks.next_step(transfer, now=NOW, timing=timing, gap_s=gap_s)
    assert isinstance(paced, Wait)
    assert paced.until - NOW > timedelta(seconds=2)
    whole = chunks.after_chunk(transfer, 8, 1, now=NOW)
    assert whole is not None
    done = chunks.next_step(whole, now=NOW, timing=timing, gap_s=gap_s)
    assert done == Wait(NOW + timedelta(seconds=0.5))
    # The time until it answers a round says nothing of its timing.
    timing.note_request(transfer_id, 8)
    timing.note_chunk(transfer_id, 10**18 + 60 * 10**9)
    assert timing.gap_s(transfer_id, opened(9)) == gap_s
    # The last chunk that was asked for is here: it sends no more of this round.
    assert timing.gap_s(transfer_id, whole) == 0


@pytest.mark.req("DB2-15")
def test_a_failed_image_goes_on_where_it_stopped_unless_it_is_another() -> None:
    transfer = chunks.after_chunk(opened(3, image_size=30), 1, 10, now=NOW)
    assert transfer is not None
    failed = Transfer(**{**_fields(transfer), "state": "failed"})  # type: ignore[arg-type]
    later = NOW + timedelta(hours=1)
    again = chunks.after_announcement(failed, metadata(3, image_size=30), now=later)
    assert (again.state, again.received_count) == ("receiving", 1)
    other = chunks.after_announcement(failed, metadata(4, image_size=40), now=later)
    assert (other.state, other.received_count, other.total_chunks) == ("receiving", 0, 4)
    assert chunks.starts_over(failed, metadata(4, image_size=40))
    gone = NOW + timedelta(days=7)
    assert chunks.next_step(failed, now=gone, timing=TIMING) == Action.EXPIRE


def test_an_announcement_that_contradicts_an_open_image_is_refused_with_every_reason() -> None:
    transfer = opened(3, image_size=30)
    with pytest.raises(RejectedMessageError) as wrong:
        chunks.after_announcement(transfer, metadata(4, image_size=40), now=NOW)
    assert wrong.value.reasons == [
        "total_chunks of this image was 3 and is 4 now",
        "image_size of this image was 30 and is 40 now",
    ]


def test_chunks_counted_otherwise_contradict_those_that_are_here() -> None:
    transfer = chunks.after_chunk(opened(3), 1, 10, now=NOW)
    assert transfer is not None
    counted_from_1 = metadata(3, first_chunk_id=1)
    with pytest.raises(
        RejectedMessageError, match="first_chunk_id of this image was 0 and is 1 now"
    ):
        chunks.after_announcement(transfer, counted_from_1, now=NOW)
    failed = replace(transfer, state="failed")
    assert chunks.starts_over(failed, counted_from_1)
    assert chunks.missing(chunks.after_announcement(failed, counted_from_1, now=NOW)) == (1, 2, 3)
    stored = replace(transfer, state="complete")
    assert chunks.after_announcement(stored, counted_from_1, now=NOW).first_chunk_id == 0


def test_what_an_announcement_leaves_out_was_said_by_the_one_before() -> None:
    said = metadata(3, image_size=25, chunk_size=10, sha256=b"1" * 32)
    first = chunks.after_announcement(Transfer(heard_at=NOW), said, now=NOW)
    assert chunks.after_announcement(first, metadata(3), now=NOW) == first
    with pytest.raises(RejectedMessageError, match="sha256 of this image was"):
        chunks.after_announcement(
            chunks.after_announcement(first, metadata(3), now=NOW),
            metadata(3, sha256=b"2" * 32),
            now=NOW,
        )


@pytest.mark.parametrize(
    ("number", "size", "why"),
    [
        (3, 10, "chunk_id is 3: this image has 0 to 2"),
        (-1, 10, "chunk_id is -1"),
        (2**31, 10, "this image has 0 to 2"),
        (1, 9, "chunk 1 has 9 bytes, not 10"),
        (2, 10, "chunk 2 has 10 bytes, not 5"),
        (0, 26, "larger than 25 bytes"),
    ],
)
def test_a_chunk_that_cannot_be_is_refused(number: int, size: int, why: str) -> None:
    with pytest.raises(RejectedMessageError, match=why):
        chunks.after_chunk(opened(3, image_size=25, chunk_size=10), number, size, now=NOW)


def test_what_nobody_announced_is_bounded_too() -> None:
    orphan = Transfer(heard_at=NOW)
    with pytest.raises(RejectedMessageError, match="larger than"):
        chunks.after_chunk(orphan, 0, wire.MAX_IMAGE_BYTES + 1, now=NOW)
    assert chunks.next_step(orphan, now=NOW, timing=TIMING) == Wait(NOW + TIMING.round)
    assert chunks.next_step(orphan, now=NOW + TIMING.round, timing=TIMING) == Action.COMPARE
    compared = replace(orphan, asked_at=NOW + TIMING.round)
    assert chunks.next_step(compared, now=NOW + TIMING.round, timing=TIMING) == Wait(
        NOW + TIMING.timeout
    )
    assert chunks.next_step(compared, now=NOW + TIMING.timeout, timing=TIMING) == Action.EXPIRE


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (jpeg(100)[:-1], ["99 bytes", "cut off"]),
        (b"GIF89a" + bytes(92) + b"\xff\xd9", ["does not begin"]),
        (jpeg(100)[:50] + b"!" + jpeg(100)[51:], ["sha256"]),
        (b"", ["0 bytes", "does not begin", "cut off", "sha256"]),
    ],
)
def test_a_whole_that_is_wrong_says_everything_that_is(data: bytes, why: list[str]) -> None:
    transfer = opened(1, image_size=100, sha256=hashlib.sha256(jpeg(100)).digest())
    found = chunks.problems(transfer, data)
    assert all(any(word in reason for reason in found) for word in why)
    assert chunks.problems(transfer, jpeg(100)) == []


def test_a_chunk_is_a_repeat_only_if_it_cannot_be_of_another_image() -> None:
    image = jpeg(4000)
    pieces = [image[at : at + 1000] for at in range(0, 4000, 1000)]
    transfer, known = opened(4, chunk_size=1000), chunks.digests(pieces)
    assert chunks.is_repeat(known, transfer, 2, pieces[2])
    assert not chunks.is_repeat(known, transfer, 2, pieces[3])
    assert not chunks.is_repeat(known, transfer, 0, pieces[0])  # perhaps every picture's head
    assert not chunks.is_repeat(known, transfer, 4, pieces[3])
    assert chunks.is_repeat(chunks.digests([image]), opened(1), 0, image)


@pytest.mark.req("DB2-14")
def test_a_stored_image_may_be_announced_in_other_chunks_but_not_with_other_bytes() -> None:
    stored = replace(opened(3, image_size=30, chunk_size=10), state="complete")
    again = chunks.after_announcement(
        stored, metadata(6, image_size=30, chunk_size=5), now=NOW + TIMING.round
    )
    assert again == replace(stored, heard_at=NOW + TIMING.round)
    with pytest.raises(RejectedMessageError, match="image_size of this image was 30 and is 31 now"):
        chunks.after_announcement(stored, metadata(4, image_size=31), now=NOW)


@pytest.mark.req("DB2-14")
def test_chunks_of_another_size_are_known_by_the_stored_bytes() -> None:
    image = jpeg(4000)
    parts = [image[at : at + 700] for at in range(0, 4000, 700)]
    assert chunks.is_part(image, parts)
    assert chunks.is_part(image, parts[3:4])
    assert chunks.is_part(image[:900], [image[:500], image[500:900]])
    assert not chunks.is_part(image, parts[:1])  # perhaps every picture's head
    assert not chunks.is_part(image, [parts[3], jpeg(700)])
    assert not chunks.is_part(image + bytes(900), [bytes(700)])  # filled up, as others are
    assert not chunks.is_part(image, [b"\xff\xd9"])
    assert not chunks.is_part(image, [])


def test_missing_chunks_are_told_in_messages_that_a_small_device_can_take() -> None:
    numbers = chunks.missing(opened(wire.MAX_CHUNKS))
    told = chunks.in_messages(numbers)
    assert [n for message in told for n in message] == list(range(wire.MAX_CHUNKS))
    assert max(map(len, told)) == chunks.MAX_NUMBERS


def _fields(transfer: Transfer) -> dict[str, object]:
    return {name: getattr(transfer, name) for name in Transfer.__struct_fields__}


# --- ACK_OK


def camera_state(**more: object) -> CameraState:
    known: dict[str, object] = {"acknowledged_count": 1, "heard_at": NOW, "camera_heard_at": NOW}
    return CameraState(**{**known, **more})  # type: ignore[arg-type]


def answered(after_s: float, **more: object) -> object:
    now = NOW + timedelta(seconds=after_s)
    return chunks.acknowledgement(camera_state(**more), now=now, timing=TIMING)


LATER = NOW + timedelta(seconds=1)


@pytest.mark.req("DB2-14")
def test_the_first_ack_ok_is_sent_at_once_and_a_repeat_to_a_camera_that_is_quiet() -> None:
    assert answered(0, acknowledged_count=0) == Action.ACKNOWLEDGE
    assert answered(4) == Wait(NOW + TIMING.round)
    assert answered(5) == Action.ACKNOWLEDGE
    assert answered(5, camera_heard_at=LATER) == Wait(LATER + TIMING.round)


@pytest.mark.req("DB2-14")
@pytest.mark.parametrize("acknowledged_count", [0, 1])
@pytest.mark.parametrize(
    "since", [{"other_is_open": True}, {"other_announced_at": LATER}, {"greeted_at": LATER}]
)
def test_a_camera_at_another_image_of_that_name_or_woken_anew_hears_nothing(
    acknowledged_count: int, since: dict[str, object]
) -> None:
    assert answered(60, acknowledged_count=acknowledged_count, **since) == Action.WITHHOLD


def test_what_was_before_the_last_sign_of_the_image_does_not_count() -> None:
    assert answered(5, greeted_at=NOW, other_announced_at=NOW) == Action.ACKNOWLEDGE


def test_a_repeat_is_looked_at_when_a_camera_may_be_quiet() -> None:
    assert chunks.acknowledgement_due(0, now=NOW, timing=TIMING) == NOW
    assert chunks.acknowledgement_due(2, now=NOW, timing=TIMING) == NOW + TIMING.round

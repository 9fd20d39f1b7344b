"""What may be requested, whether bytes are right, and when an image has expired."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from farmiq.api import cursor
from farmiq.edge.media import rules
from farmiq.edge.media.api import ImageFilter
from farmiq.edge.media.rules import Aged, Claim, Declared, StoredObject
from farmiq.messages import media
from farmiq.messages.check import InvalidError
from farmiq.messages.media import MediaStored
from farmiq.messages.topics import Place

AT = datetime(2026, 11, 15, 8, tzinfo=UTC)
MEDIA_ID = UUID("018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0601")
DAY = timedelta(days=1)
SHA = "ab" * 32
BODY: dict[str, Any] = {
    "tenantId": "t", "farmId": "f", "barnId": "b", "deviceId": "d", "traceId": "x",
    "capturedAt": "2026-11-15T08:00:00Z", "contentType": "image/jpeg",
}  # fmt: skip


def read(**over: Any) -> rules.UploadRequest:
    return rules.read(json.dumps({**BODY, **over}).encode(), max_bytes=1000)


@pytest.mark.req("MD-09", "MD-10", "MD-11")
@pytest.mark.parametrize(("kind", "extension"), [*media.EXTENSIONS.items()])
def test_an_image_lies_where_the_document_says(kind: media.ImageType, extension: str) -> None:
    # Half past one in the night in Berlin is the day before in UTC.
    at = datetime.fromisoformat("2026-03-01T00:30:00+01:00")
    key = media.object_key(
        Place("t-1", "f-1", "b-1", "d-1"), media_id=MEDIA_ID, captured_at=at, content_type=kind
    )
    assert key == (
        f"tenants/t-1/farms/f-1/barns/b-1/devices/d-1/images/2026/02/28/{MEDIA_ID}.{extension}"
    )


def test_the_longest_names_have_a_key_that_the_event_may_carry() -> None:
    long = "x" * 128
    key = media.object_key(
        Place(long, long, long, long),
        media_id=MEDIA_ID,
        captured_at=AT,
        content_type="image/webp",
    )
    raw = json.dumps(
        {"media_id": str(MEDIA_ID), "path": key, "mime_type": "image/webp", "size_bytes": 1}
    )
    assert msgspec.json.decode(raw, type=MediaStored).path == key


def test_a_request_is_read_without_the_difference_of_absent_and_null() -> None:
    nothing = dict.fromkeys(("stationId", "sessionId", "contentLength", "mediaId", "sha256"))
    assert read() == read(**nothing)
    assert read(sha256=SHA.upper()).sha256 == SHA
    assert read(capturedAt="2026-11-15T10:00:00+02:00").captured_at == AT


def test_too_large_is_an_answer_of_its_own() -> None:
    assert read(contentLength=1000).size_bytes == 1000
    with pytest.raises(rules.TooLargeError, match="1001"):
        read(contentLength=1001)
    with pytest.raises(rules.TooLargeError):
        read(contentLength=2**60, tenantId="../")
    with pytest.raises(InvalidError):
        read(contentLength=True)
    with pytest.raises(InvalidError, match="UUIDv7"):
        read(mediaId="018f1a84-bb0e-4d3f-b2e4-9e8b5f8e0601")


def test_what_is_not_the_callers_own_is_named() -> None:
    place = Place("t", "f", "b", "d")
    assert rules.not_its_own(read(), place, None) == []
    assert rules.not_its_own(read(), place, "s") == [], "a station may be left out"
    assert rules.not_its_own(read(stationId="s"), place, "s") == []
    assert [f for f, _ in rules.not_its_own(read(stationId="s"), place, None)] == ["stationId"]
    other = Place("t2", "f2", "b2", "d2")
    assert len(rules.not_its_own(read(), other, None)) == 4


def test_saying_more_is_no_contradiction() -> None:
    known = Declared("image/jpeg", None, None, AT, None)
    assert rules.differences(read(contentLength=5, sha256=SHA), known) == []
    assert rules.differences(read(), Declared("image/jpeg", 5, SHA, AT, MEDIA_ID)) == []
    wrong = rules.differences(
        read(contentLength=5, contentType="image/png"), Declared("image/jpeg", 6, None, AT, None)
    )
    assert [field for field, _ in wrong] == ["contentType", "contentLength"]


GOOD = StoredObject(5, "e", SHA, "image/jpeg")


@pytest.mark.req("MD-13")
@pytest.mark.parametrize(
    ("found", "said", "reason"),
    [
        (GOOD, Claim("x", None, None, None), None),
        (GOOD, Claim("x", "image/jpeg", 5, SHA), None),
        (GOOD, Claim("x", "image/png", None, None), "first bytes say image/jpeg"),
        (GOOD, Claim("x", None, 6, None), "6 bytes, it has 5"),
        (GOOD, Claim("x", None, None, "cd" * 32), "sha256"),
        (StoredObject(0, "e"), Claim("x", None, None, None), "empty"),
        (StoredObject(11, "e"), Claim("x", None, None, None), "at most 10"),
        (StoredObject(5, "e", SHA, None, "odd"), Claim("x", None, None, None), "no image: odd"),
    ],
)
def test_bytes_are_compared_with_request_and_announcement(
    found: StoredObject, said: Claim, reason: str | None
) -> None:
    wrong = rules.problems(found, (said,), max_bytes=10)
    assert (wrong == []) if reason is None else (reason in wrong[0])


def aged(**over: Any) -> Aged:
    said: dict[str, Any] = {
        "id": MEDIA_ID, "object_key": "k", "aside_key": None,
        "captured_at": AT, "created_at": AT, "stored": True, "synced": True, "session_open": False,
    }  # fmt: skip
    return Aged(**{**said, **over})


@pytest.mark.req("RT-08", "RT-09")
@given(
    captured=st.floats(-40000, 40000), passed=st.floats(0, 400), stored=st.booleans(),
    synced=st.booleans(), open_=st.booleans(), allowed=st.booleans(),
)  # fmt: skip
def test_nothing_goes_that_must_stay_whatever_the_clock_said(
    *, captured: float, passed: float, stored: bool, synced: bool, open_: bool, allowed: bool
) -> None:
    at = AT + timedelta(days=captured / 100)
    image = aged(captured_at=at, stored=stored, synced=synced, session_open=open_)
    over = rules.is_expired(image, now=AT + passed * DAY, days=90, open_sessions=allowed)
    if stored and not synced:
        assert not over
    if open_ and not allowed:
        assert not over
    # Never more than the longest absence too early, never more than a day too late.
    if over:
        assert passed > 90 - rules.MAX_OFFLINE.days
    elif not (stored and not synced) and not (open_ and not allowed):
        assert passed <= 91


@pytest.mark.parametrize(
    ("captured", "believed"),
    [(AT, True), (AT - 29 * DAY, True), (AT - 31 * DAY, False), (AT + 2 * DAY, False),
     (datetime(1970, 1, 1, tzinfo=UTC), False)],
)  # fmt: skip
def test_a_clock_is_believed_within_reason(captured: datetime, *, believed: bool) -> None:
    assert rules.age_from(captured, AT) == (captured if believed else AT)


def test_a_page_goes_on_where_the_last_one_ended() -> None:
    found = ImageFilter.model_validate({"cursor": cursor(AT, MEDIA_ID), "status": "missing"}).page()
    assert (found["after_at"], found["after_id"], found["status"]) == (AT, MEDIA_ID, "missing")
    wrong = {"cursor": "x" * 999, "session": "1", "status": "lost", "limit": "x"}
    with pytest.raises(ValidationError) as error:
        ImageFilter.model_validate(wrong)
    assert len(error.value.errors()) == 4

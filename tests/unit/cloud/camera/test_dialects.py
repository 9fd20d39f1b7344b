"""The two dialects: what is parsed, what is rejected with every reason, how answers are encoded."""

import base64
import contextlib
import json
import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.cloud.camera.protocol import dialects, wire
from farmiq.cloud.camera.protocol.wire import (
    Announcement,
    CaptureImage,
    Chunk,
    Hello,
    Message,
    Missing,
    NextWake,
    RejectedMessageError,
    SendImage,
    Stored,
)

MAC = "AA:BB:CC:DD:EE:01"
AT = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)


def read(topic: str, body: Any) -> Message:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    parsed = wire.parse_topic(topic)
    return dialects.parse(dialects.dialect_of(parsed), parsed, raw)


def standard(channel: str, body: Any) -> Message:
    return read(f"device/{MAC}/{channel}", body)


def esp32cam(channel: str, body: Any) -> Message:
    return read(f"ESP32CAM/{MAC}/{channel}", body)


@pytest.mark.req("DB2-10", "XC-06")
def test_standard_dialect_is_parsed_as_004_writes_it() -> None:
    assert standard("status", {"alive": 1, "pending_count": 3}) == Hello(3)
    said = {"image_name": "IMG_001.jpg", "captured_at": "2025-01-15T10:30:00Z", "total_chunks": 2,
            "temperature": 21.5}  # fmt: skip
    assert standard("data", said) == Announcement(
        image_name="IMG_001.jpg", captured_at=AT, total_chunks=2, fields=said
    )
    wanted = Chunk(None, 1, b"\x00\xff!")
    assert standard("data", {"chunk_id": 1, "payload": [0, 255, 33]}) == wanted
    text = base64.b64encode(wanted.data).decode()
    assert standard("data", {"chunk_id": 1, "payload": text}) == wanted
    assert standard("data", {"chunk_id": 1.0, "payload": text, "more": [{}]}) == wanted
    escaped = b'{"chunk_id": 1, "payload": "AP\\u0038h"}'
    assert standard("data", escaped) == wanted
    assert standard("data", struct.pack(">BHI", 1, 0, 1) + wanted.data) == wanted
    named = struct.pack(">BH", 1, 5) + b"a.jpg" + struct.pack(">I", 7) + b"x"
    assert standard("data", named) == Chunk("a.jpg", 7, b"x")


@pytest.mark.req("DB2-10")
def test_esp32cam_dialect_computes_the_chunk_count_from_the_size() -> None:
    hello = {"device_id": MAC, "status": "alive", "pendingImg": 2}
    assert esp32cam("status", hello) == Hello(2)
    said = {"device_id": MAC, "capture_timestamp": "2025-01-15 10:30:00", "image_name": "a.jpg",
            "image_size": 2001, "max_chunk_size": 1000, "total_chunks_count": 2,
            "error": 0}  # fmt: skip
    found = esp32cam("data", said)
    assert isinstance(found, Announcement)
    assert (found.total_chunks, found.first_chunk_id, found.captured_at) == (3, 1, AT)
    chunk = {"device_id": MAC, "image_name": "a.jpg", "chunk_id": 1, "max_chunk_size": 1000,
             "payload": [1, 2]}  # fmt: skip
    assert esp32cam("data", chunk) == Chunk("a.jpg", 1, b"\x01\x02")


@pytest.mark.req("DB2-10", "XC-06")
def test_answers_are_encoded_as_each_dialect_writes_them() -> None:
    def encoded(dialect: str, answer: wire.Answer) -> tuple[str, Any]:
        made = dialects.encode(dialect, "aabb", answer)
        assert made is not None
        return made[0], json.loads(made[1])

    bangkok = "Asia/Bangkok"
    assert encoded("standard", Missing("a.jpg", (0, 2))) == (
        "device/aabb/ack", {"image_name": "a.jpg", "missing_chunks": [0, 2]}
    )  # fmt: skip
    assert encoded("standard", Stored("a.jpg", AT, bangkok)) == (
        "device/aabb/ack",
        {"image_name": "a.jpg", "ACK_OK": True, "next_wake": "2025-01-15T10:30:00Z"},
    )
    assert encoded("standard", SendImage("a.jpg")) == ("device/aabb/cmd", {"send_image": "a.jpg"})
    mine = {"device_id": "aabb"}
    assert encoded("esp32cam", Missing("a.jpg", (1,))) == (
        "ESP32CAM/aabb/cmd", {**mine, "image_name": "a.jpg", "missing_chunks": [1]}
    )  # fmt: skip
    assert encoded("esp32cam", Stored("a.jpg", AT, bangkok)) == (
        "ESP32CAM/aabb/ack",
        {**mine, "image_name": "a.jpg", "ACK_OK": {"next_wake_time": "5:30PM"}},
    )
    assert encoded("esp32cam", Stored("a.jpg", None, bangkok))[1]["ACK_OK"] == {}
    assert encoded("esp32cam", CaptureImage()) == (
        "ESP32CAM/aabb/cmd",
        {**mine, "capture_image": 1},
    )
    assert encoded("esp32cam", NextWake(AT, "UTC"))[1] == {**mine, "next_wake": "10:30AM"}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"image_name": "a", "total_chunks": 2**31}, "1 to 4096 chunks, not 2147483648"),
        ({"image_name": "a", "total_chunks": 0}, "not 0"),
        ({"image_name": "a", "total_chunks": "two"}, "total_chunks has to be a whole number"),
        ({"image_name": "a", "total_chunks": 2, "image_size": 2**40}, "bytes, not"),
        ({"image_name": "../../etc/passwd", "total_chunks": 2}, "image_name is"),
        ({"image_name": "a\0b", "total_chunks": 2}, "NUL"),
        ({"image_name": "a" * 4096, "total_chunks": 2}, "image_name is"),
        ({"image_name": 7, "total_chunks": 2}, "image_name has to be text"),
        ({"image_name": "a", "total_chunks": 2, "captured_at": "soon"}, "is no moment"),
        ({"image_name": "a", "total_chunks": 2, "captured_at": 1e300}, "is no moment"),
        ({"image_name": "a", "total_chunks": 2, "chunk_size": 10, "image_size": 30}, "do not make"),
        ({"chunk_id": 2**31, "payload": [1]}, "chunk_id is 2147483648"),
        ({"chunk_id": -1, "payload": [1]}, "chunk_id is -1"),
        ({"chunk_id": "one", "payload": [1]}, "chunk_id has to be a whole number"),
        ({"chunk_id": 1, "payload": [256]}, "0 to 255"),
        ({"chunk_id": 1, "payload": "%%%"}, "not base64"),
        ({"chunk_id": 1, "payload": []}, "without bytes"),
        ({"chunk_id": 1}, "payload is missing"),
        (b'{"chunk_id": 1, "image_name": "a\xff.jpg", "payload": [1]}', "image_name is no JSON"),
        ({"chunk_id": 1, "image_name": 7, "payload": [1]}, "image_name has to be text"),
        ({"chunk_id": 1, "image_name": ["a"], "payload": [1]}, "image_name has to be text"),
        ({}, "neither"),
        (b"[]", "not a JSON object"),
        (b"\x01\x00", "ends early"),
        (b"\xff\xfe", "not a JSON object"),
        (b'{"image_name":"a","total_chunks":2,"t":' + b"[" * 9000, "not a JSON object"),
    ],
)  # fmt: skip
def test_bad_input_is_rejected_with_the_reason(body: Any, why: str) -> None:
    with pytest.raises(RejectedMessageError) as rejected:
        standard("data", body)
    assert why in "; ".join(rejected.value.reasons)


def test_rejected_message_lists_all_reasons() -> None:
    with pytest.raises(RejectedMessageError) as rejected:
        standard("data", {"image_name": "../x", "total_chunks": 9999, "captured_at": "soon"})
    assert len(rejected.value.reasons) == 3


@given(
    st.binary(max_size=200),
    st.sampled_from(["device", "ESP32CAM"]),
    st.sampled_from(["status", "data"]),
)
def test_any_bytes_are_a_message_or_rejected(raw: bytes, root: str, channel: str) -> None:
    with contextlib.suppress(RejectedMessageError):
        read(f"{root}/{MAC}/{channel}", raw)


def test_body_that_names_another_camera_is_rejected() -> None:
    body = {"device_id": "AA:BB:CC:DD:EE:02", "status": "alive", "pendingImg": 0}
    with pytest.raises(RejectedMessageError, match="and the topic"):
        esp32cam("status", body)


@pytest.mark.parametrize("said", [b'"\xff"', b"7", b"[]"])
def test_chunk_with_a_device_id_that_is_not_text_is_rejected(said: bytes) -> None:
    with pytest.raises(RejectedMessageError, match="device_id"):
        esp32cam("data", b'{"chunk_id": 1, "payload": [1], "device_id": ' + said + b"}")


@pytest.mark.req("DB2-12")
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"image_name": "a.jpg"},
        {"image_name": "a.jpg", "image_size": -1, "max_chunk_size": 0},
        {"image_name": "a.jpg", "image_size": None, "total_chunks_count": 0},
    ],
)
def test_announcement_of_a_camera_error_needs_no_sizes(more: Any) -> None:
    found = esp32cam("data", {"device_id": MAC, "error": "sensor", **more})
    assert isinstance(found, Announcement)
    assert (found.error, found.total_chunks, found.image_size) == ("sensor", 0, None)
    assert found.image_name == more.get("image_name", "no-image")


@pytest.mark.parametrize("said", [0, None, False, ""])
def test_announcement_without_error_and_sizes_is_rejected(said: Any) -> None:
    with pytest.raises(RejectedMessageError):
        esp32cam("data", {"device_id": MAC, "image_name": "a.jpg", "error": said})


def test_chunk_size_larger_than_any_image_is_rejected() -> None:
    said = {"device_id": MAC, "image_name": "a.jpg", "image_size": 9, "max_chunk_size": 2**31}
    with pytest.raises(RejectedMessageError, match="no chunk has 2147483648 bytes"):
        esp32cam("data", said)


@pytest.mark.req("DB2-11")
def test_hello_stores_what_is_plausible_and_notes_the_rest() -> None:
    odd = {"alive": 1, "battery_voltage": 1e300, "wifi_rssi": -60, "firmware": "v" * 200_000}
    hello = standard("status", {**odd, "pending_count": 2})
    assert isinstance(hello, Hello)
    assert (hello.pending_count, hello.battery_voltage, hello.wifi_rssi) == (2, None, -60)
    assert hello.firmware is None
    assert [reason.partition(" ")[0] for reason in hello.noted] == ["battery_voltage", "firmware"]
    assert max(map(len, hello.noted)) < 200


@pytest.mark.parametrize("dialect", [standard, esp32cam])
def test_announcement_stores_what_is_plausible_and_notes_the_rest(dialect: Any) -> None:
    said = {"image_name": "a.jpg", "total_chunks": 1, "image_size": 9, "max_chunk_size": 9}
    odd = {"temperature": "1e300", "humidity": -7e9, "note": "n" * 400_000,
           "location": {"x": ["y" * 2000]}, "pressure": 10**400}  # fmt: skip
    many = {f"f{n}": "z" * 500 for n in range(100)}
    found = dialect("data", {**said, **odd, **many, "wifi_rssi": -70, "seen": "hens"})
    assert isinstance(found, Announcement)
    assert {**said, "wifi_rssi": -70, "seen": "hens"}.items() <= found.fields.items()
    assert not odd.keys() & found.fields.keys()
    assert len(json.dumps(found.fields)) < 9_000
    assert len("".join(found.noted)) < 9_000
    assert any("note has 400000 characters" in reason for reason in found.noted)


@pytest.mark.parametrize(
    "topic",
    [
        "device/x/data",
        "device/AABBCCDDEE01",
        "iot/AABBCCDDEE01/data",
        "device/AABBCCDDEE01/ack",
        "device/AA:BB-CC:DD:EE:01/data",
    ],
)
def test_topics_of_no_camera_are_rejected(topic: str) -> None:
    with pytest.raises(RejectedMessageError):
        read(topic, {"alive": 1})


def test_mac_address_has_one_plain_form_and_topics_for_every_spelling() -> None:
    plain = wire.plain_mac(MAC)
    assert {wire.plain_mac(each) for each in wire.spellings(plain)} == {plain}
    up = dialects.topics(plain, wire.UP_CHANNELS)
    down = dialects.topics(plain, wire.DOWN_CHANNELS)
    assert {"device/aabbccddee01/data", f"ESP32CAM/{MAC}/status"} <= set(up)
    assert not set(up) & set(down)
    assert all(each.rpartition("/")[2] in {"ack", "cmd"} for each in down)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("2025-01-15T17:30:00+07:00", AT),
        (1736937000, AT),
        ("1736937000000", AT),
        ("20250115_103000", AT),
        ("1970-01-01T00:00:09Z", datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC)),
        ("", None),
        (None, None),
    ],
)
def test_instants_are_parsed_as_firmware_writes_them(said: Any, wanted: datetime | None) -> None:
    found = standard("data", {"image_name": "a.jpg", "total_chunks": 1, "captured_at": said})
    assert isinstance(found, Announcement)
    assert found.captured_at == wanted


def test_clock_too_far_behind_or_unknown_is_suspect() -> None:
    assert wire.is_suspect(datetime(1970, 1, 1, tzinfo=UTC), AT)
    assert wire.is_suspect(None, AT)
    assert not wire.is_suspect(AT, AT)


@pytest.mark.parametrize(
    ("channel", "said"),
    [
        ("status", {"status": "alive", "pendingImg": 0}),
        ("data", {"image_name": "a.jpg", "image_size": 9, "max_chunk_size": 9}),
        ("data", {"image_name": "a.jpg", "chunk_id": 1, "payload": [1]}),
    ],
)
def test_body_that_names_another_camera_is_a_security_matter(
    channel: str, said: dict[str, object]
) -> None:
    topic = wire.parse_topic(f"ESP32CAM/AABBCCDDEEFF/{channel}")
    foreign = json.dumps({**said, "device_id": "112233445566"}).encode()
    with pytest.raises(RejectedMessageError) as rejected:
        dialects.parse("esp32cam", topic, foreign)
    assert rejected.value.kind == "security"
    odd = json.dumps({**said, "device_id": 7, "image_size": "x", "status": "dead"}).encode()
    with pytest.raises(RejectedMessageError) as rejected:
        dialects.parse("esp32cam", topic, odd)
    assert rejected.value.kind == "format"

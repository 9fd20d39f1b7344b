"""The MQTT envelope: what it must say, what it may say, and what it keeps."""

from typing import Any

import msgspec
import pytest

from farmiq.messages import envelope
from farmiq.messages.check import InvalidError
from tests.unit.messages import examples

FIELDS = (
    "schema_version", "event_id", "trace_id", "tenant_id", "device_id", "event_type", "ts",
    "payload",
)  # fmt: skip


def reasons(raw: bytes) -> list[str]:
    with pytest.raises(InvalidError) as refused:
        envelope.read(raw)
    return refused.value.reasons


def test_whole_envelope_is_read() -> None:
    read = envelope.read(examples.envelope())

    assert str(read.event_id) == examples.EVENT_ID
    assert read.ts == examples.AT
    assert read.seq is msgspec.UNSET


@pytest.mark.parametrize("name", FIELDS)
def test_each_missing_field_is_named(name: str) -> None:
    assert reasons(examples.envelope(**{name: examples.ABSENT})) == [
        f"missing required field `{name}` - at `$`"
    ]


def test_all_missing_fields_are_named_at_once() -> None:
    assert reasons(b"{}") == [f"missing required field `{name}` - at `$`" for name in FIELDS]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("schema_version", 1, "Expected `str`, got `int`"),
        ("event_id", "not-a-uuid", "Invalid UUID"),
        ("event_id", 7, "Expected `uuid`, got `int`"),
        ("trace_id", "", "length >= 1"),
        ("trace_id", "x" * 129, "length <= 128"),
        ("tenant_id", "a b", "matching regex"),
        ("tenant_id", "t-001\n", "matching regex"),
        ("device_id", None, "got `null`"),
        ("event_type", ["x"], "got `array`"),
        ("ts", "2025-01-02T10:00:00", "timezone"),
        ("ts", "yesterday", "Invalid RFC3339"),
        ("ts", 1735812000, "Expected `datetime`"),
        ("seq", "1", "Expected `int`"),
        ("boot_id", 1, "Expected `str`"),
    ],
)
def test_wrong_value_is_named_with_its_place(name: str, value: Any, said: str) -> None:
    (reason,) = reasons(examples.envelope(**{name: value}))

    assert said in reason
    assert reason.endswith(f"- at `$.{name}`")


def test_all_problems_are_listed_at_once() -> None:
    raw = examples.envelope(
        event_id="x", tenant_id="a b", ts="2025-01-02T10:00:00", payload=examples.ABSENT
    )

    assert len(reasons(raw)) == 4


@pytest.mark.parametrize(
    "version",
    ["2.0", "0.9", "10.0", "", "one", " 1.0", "1.", "1.x", "1.x; drop", "1.0\n", "1.0.0", "11"],
)
def test_another_major_version_is_refused(version: str) -> None:
    (reason,) = reasons(examples.envelope(schema_version=version))

    assert reason == f"schema_version {version!r} is not understood, expected 1 or 1.<digits>"


@pytest.mark.parametrize("version", ["1", "1.7", "1.10"])
def test_newer_minor_version_is_read(version: str) -> None:
    assert envelope.read(examples.envelope(schema_version=version)).schema_version == version


def test_unknown_fields_are_ignored() -> None:
    read = envelope.read(examples.envelope(firmware="2.1", extra={"deep": [1]}))

    assert msgspec.json.encode(read) == msgspec.json.encode(envelope.read(examples.envelope()))


@pytest.mark.parametrize(
    "ts", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
)  # UTC has no year 0 and no year 10000
def test_moment_that_utc_cannot_name_is_refused(ts: str) -> None:
    (reason,) = reasons(examples.envelope(ts=ts))

    assert reason == "not a moment between 0001-01-03 and 9999-12-29 in UTC - at `$.ts`"


def test_text_that_only_looks_like_a_nul_is_kept() -> None:
    assert envelope.read(examples.envelope(boot_id=r"a\u0000b")).boot_id == r"a\u0000b"


def test_nul_is_refused_wherever_it_stands() -> None:
    assert reasons(examples.envelope(payload={"a": ["\x00"]})) == [
        "contains a NUL character - at `$.payload.a[0]`"
    ]


def test_message_fields_absent_or_present_stay_so() -> None:
    bare = msgspec.json.decode(msgspec.json.encode(envelope.read(examples.envelope())))
    full = msgspec.json.decode(
        msgspec.json.encode(
            envelope.read(examples.envelope(seq=7, boot_id="boot-1", content_hash="ab"))
        )
    )

    assert tuple(bare) == FIELDS
    assert (full["seq"], full["boot_id"], full["content_hash"]) == (7, "boot-1", "ab")


def test_payload_keeps_its_bytes() -> None:
    raw = examples.envelope(payload="here").replace(b'"here"', b'{ "b":1.50,  "a" : 2 }')

    assert bytes(envelope.read(raw).payload) == b'{ "b":1.50,  "a" : 2 }'

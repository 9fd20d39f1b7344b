"""Reading JSON: a value, or InvalidError with reasons; never anything else, whatever the bytes."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from farmiq.messages import bus, check, envelope, telemetry
from farmiq.messages.check import InvalidError
from farmiq.messages.telemetry import Reading
from tests.unit.messages import examples


def reading(value: str = "1", more: str = "") -> bytes:
    return f'{{"metric_type":"m","metric_value":{value},"unit":"C"{more}}}'.encode()


def read(raw: bytes) -> Reading:
    return check.read(raw, telemetry.ingested_decoder, Reading)


def reasons(raw: bytes) -> list[str]:
    with pytest.raises(InvalidError) as refused:
        read(raw)
    assert refused.value.reasons
    return refused.value.reasons


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"{", "not JSON"),
        (reading("NaN"), "not JSON"),
        (reading("Infinity"), "not JSON"),
        (reading("1e400"), "out of range"),
        (reading("-1e400"), "out of range"),
        (reading("1" * 400), "out of range"),
        (reading("1" * 5000), "out of range"),
        (reading("1", ',"x":"\xff"').replace(b"\xc3\xbf", b"\xff"), ""),
        (b'{"metric_type":"m","metric_value":1,"unit":"\xff"}', "utf-8"),
        (b'{"metric_type":"m","metric_value":1,"unit":"\\ud800"}', "lone surrogate, which is half"),
        (reading("1", r',"x":{"\udc00":1}'), "a key contains a lone surrogate"),
        (b'{"metric_type":"m","metric_value":1,"unit":"a\x00"}', "not JSON"),
        (reading("1", r',"x":"\u0000"'), "contains a NUL character - at `$.x`"),
        (reading("1", r',"\u0000":1'), "a key contains a NUL character - at `$`"),
        (b"[" * 10_000, "nested deeper than 32 levels"),
        (b"[" * 10_000 + b"]" * 10_000, "nested deeper than 32 levels"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nested deeper than 32 levels"),
        (reading("1", ',"x":' + "[" * 10_000 + "]" * 10_000), "nested deeper than 32 levels"),
        (b"[]", "expected an object, got an array"),
        (b'"text"', "expected an object, got a string"),
        (b"1", "expected an object, got a number"),
        (b"true", "expected an object, got a boolean"),
        (b"null", "expected an object, got null"),
    ],
)
def test_bytes_that_cannot_be_stored_are_rejected_with_a_reason(raw: bytes, said: str) -> None:
    if said:
        assert any(said in reason for reason in reasons(raw))
    else:  # what nobody reads may say anything: it is not kept
        assert read(raw).metric_type == "m"


def test_of_two_equal_keys_the_last_counts() -> None:
    raw = b'{"metric_type":"a","metric_type":"b","metric_value":1,"metric_value":2,"unit":"C"}'

    assert read(raw) == Reading(metric_type="b", metric_value=2.0, unit="C")


def test_integer_beyond_64_bits_is_a_number() -> None:
    assert read(reading("9" * 25)).metric_value == 1e25


def test_problem_deep_in_a_list_is_named_with_its_place() -> None:
    assert reasons(reading("1", r',"x":[{"y":[0,"\u0000"]}]')) == [
        "contains a NUL character - at `$.x[0].y[1]`"
    ]


def test_reason_is_text_whatever_the_keys_are() -> None:
    found = reasons(reading('"1"', r',"\ud800\u0000":{"y":1e400}'))

    assert r"a number out of range - at `$.\ud800\x00.y`" in found
    assert all(reason.isprintable() for reason in found)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" * 5000])
def test_number_out_of_range_hides_nothing(number: str) -> None:
    raw = f'{{"metric_value":{number},"metric_type":"a b","x":"\\u0000"}}'.encode()

    assert [reason.split(" - at ")[1] for reason in reasons(raw)] == [
        "`$.metric_value`",
        "`$.x`",
        "`$.metric_type`",
        "`$`",
    ]


@pytest.mark.parametrize("number", ["0." + "0" * 250 + "1e-99", "1e-400", "0." + "0" * 400 + "1"])
def test_number_that_a_double_makes_nothing_of_is_not_kept(number: str) -> None:
    assert check.keepable(number.encode()) == ["a number that cannot be kept exactly - at `$`"]
    assert check.keepable(reading(number)) == [
        "a number that cannot be kept exactly - at `$.metric_value`"
    ]


def test_every_problem_is_listed() -> None:
    assert len(reasons(b'{"metric_value":"1","unit":5}')) == 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
near_misses = st.fixed_dictionaries(
    {}, optional=dict.fromkeys((*examples.event_fields(), "ts", "seq", "value"), json_values)
)


def outcome(reader: Callable[[Any], Any], raw: bytes) -> tuple[Any, list[str] | None]:
    """(the value, None) or (None, why it was refused)."""
    try:
        return reader(raw), None
    except InvalidError as invalid:
        return None, invalid.reasons


def readers() -> list[Any]:
    return [
        envelope.read,
        bus.read,
        telemetry.read_ingested,
        lambda raw: telemetry.read(raw, metric_type="m"),
    ]


@given(
    raw=st.one_of(
        st.binary(max_size=200),
        st.builds(lambda value: json.dumps(value).encode(), json_values),
        st.builds(lambda value: json.dumps(value).encode(), near_misses),
    )
)
@example(raw=b"[" * 5000)
@example(raw=b'{"payload":' * 5000)
@example(raw=examples.event_with_payload(reading("1", ',"x":1e400')))
@example(raw=examples.event_with_payload(reading("1", ',"x":' + "1" * 5000)))
def test_any_bytes_are_a_value_or_invalid_with_reasons(raw: bytes) -> None:
    for reader in readers():
        _, found = outcome(reader, raw)
        assert found is None or (found and all(found))


@given(
    position=st.integers(0, 400),
    insert=st.binary(max_size=3),
    cut=st.integers(0, 3),
    whole=st.sampled_from([examples.envelope(seq=1, boot_id="b"), examples.event()]),
)
def test_damaged_message_is_a_value_or_invalid_with_reasons(
    position: int, insert: bytes, cut: int, whole: bytes
) -> None:
    damaged = whole[:position] + insert + whole[position + cut :]
    for reader in readers():
        kept, found = outcome(reader, damaged)
        assert found is None or found
        if isinstance(kept, bus.BusEvent):
            assert len(bus.content_hash(kept)) == 32
            assert msgspec.json.decode(bus.write(kept))


def test_message_with_more_values_than_anybody_looks_at_is_refused_at_once() -> None:
    many = b"[" + b",".join([b"0"] * check.MAX_VALUES) + b"]"
    assert check.keepable(many) == []
    (why,) = check.keepable(many[:-1] + b",0]")
    assert why.startswith(f"{check.MAX_VALUES + 1} values")
    assert check.look(many[:-1] + b",0]") == (check.ODD, [why])


@pytest.mark.parametrize("places", [0, 1, 4000, check.MAX_DECIMALS // 2, 8191])
def test_number_with_too_many_decimals_is_found_wherever_it_stands(places: int) -> None:
    long = b"0." + b"7" * (check.MAX_DECIMALS + 1)
    (why,) = check.keepable(b"[" + b" " * places + long + b"," + b" " * 20_000 + b"1]")
    assert "cannot be kept exactly" in why
    assert check.keepable(b"[" + b" " * places + long[:-1] + b"]") == []

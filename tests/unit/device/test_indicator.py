"""Every format reads what its indicator sends; nothing that comes over a cable raises."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.device.capture import indicator
from farmiq.device.capture.indicator import Frames, Malformed, Reading


def toledo(
    digits: str, *, point: int = 4, b: int = 0x30, c: int = 0x20, tare: str = "000000"
) -> bytes:
    return bytes([0x28 | point, b, c]) + digits.encode() + tare.encode()


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("and", b"ST,GS,+0012.34kg", Reading(12.34, stable=True)),
        ("and", b"US,GS,+0012.34kg", Reading(12.34, stable=False)),
        ("and", b"ST,NT,-0000.50kg", Reading(-0.5, stable=True)),
        ("and", b"ST,+00123.45  g", Reading(0.12345, stable=True)),
        ("and", b"ST,GS,   245.6 g", Reading(0.2456, stable=True)),
        ("and", b"US,NT,-   10.0,lb", Reading(-4.535924, stable=False)),
        ("and", b"OL,GS,+9999.99kg", Reading(None, stable=False, overload=True)),
        ("ohaus", b"     12.34 kg", Reading(12.34, stable=True)),
        ("ohaus", b"  -   0.50 kg    ? G", Reading(-0.5, stable=False)),
        ("ohaus", b"    250.0 lb     NET", Reading(113.398093, stable=True)),
        ("ohaus", b"00012.5", Reading(12.5, stable=True)),
        ("ohaus", b"? 12.3 kg", Reading(12.3, stable=False)),
        ("ohaus", b"  ------  ", Reading(None, stable=False, overload=True)),
        ("rinstrum", b"   12.34G", Reading(12.34, stable=True)),
        ("rinstrum", b"-   0.50M", Reading(-0.5, stable=False)),
        ("rinstrum", b"   12.34G  - kg", Reading(12.34, stable=True)),
        ("rinstrum", b"   12.34GM -   ", Reading(12.34, stable=False)),
        ("rinstrum", b"       O", Reading(None, stable=False, overload=True)),
        ("rinstrum", b"STGR   12.34kg", Reading(12.34, stable=True)),
        ("rinstrum", b"US,GS,   12.34,kg", Reading(12.34, stable=False)),
        ("toledo", toledo("001234"), Reading(12.34, stable=True)),
        ("toledo", toledo("  1234", b=0x38), Reading(12.34, stable=False)),
        ("toledo", toledo("001234", b=0x32), Reading(-12.34, stable=True)),
        ("toledo", toledo("001000", b=0x20, point=3), Reading(45.359237, stable=True)),
        ("toledo", toledo("001234", point=2, c=0x21), Reading(1.234, stable=True)),
        ("toledo", toledo("999999", b=0x34), Reading(None, stable=False, overload=True)),
        ("toledo", bytes(x | 0x80 for x in toledo("001234")), Reading(12.34, stable=True)),
    ],
)
def test_lines_of_common_indicators_are_read(name: str, line: bytes, expected: Reading) -> None:
    assert indicator.parser(name)(line) == expected


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("and", b"ST,TR,+0012.34kg"),
        ("and", b"QT,GS,+000012 PC"),
        ("and", b"ST,GS,+00.12.34kg"),
        ("and", b"T,GS,+0012.34kg"),
        ("and", b"ST,GS,+0012.34xx"),
        ("ohaus", b"hello"),
        ("ohaus", b"   3 PCS"),
        ("ohaus", b"12.34 kg T"),
        ("ohaus", b"\xff\x00\xfe"),
        ("ohaus", b"."),
        ("rinstrum", b"12"),
        ("toledo", b"012"),
        ("toledo", toledo("00-234")),
        ("toledo", toledo("001234", c=0x23)),
        ("toledo", b"\x00\x00\x00001234"),
    ],
)
def test_line_without_a_weight_is_malformed_with_the_reason(name: str, line: bytes) -> None:
    found = indicator.parser(name)(line)
    assert isinstance(found, Malformed)
    assert found.reason


def test_pattern_of_the_settings_reads_lines() -> None:
    parse = indicator.parser(
        "regex", unit="g", pattern=r"W=(?P<weight>[-+]?[\d.,]+)(?P<unit>kg)?;(?P<stable>S)?"
    )
    assert parse(b"W=-12,5kg;S") == Reading(-12.5, stable=True)
    assert parse(b"W=500;") == Reading(0.5, stable=False)
    assert isinstance(parse(b"W=;S"), Malformed)
    assert indicator.parser("regex", pattern=r"(?P<weight>\d+)")(b"7") == Reading(7.0)
    noted = indicator.parser("regex", pattern=r"(?P<weight>\d*)(?P<unstable>!)?(?P<overload>\^)?")
    assert noted(b"7!") == Reading(7.0, stable=False)
    assert noted(b"7") == Reading(7.0, stable=True)
    assert noted(b"^") == Reading(None, stable=False, overload=True)


@pytest.mark.parametrize("pattern", ["(", "", None, r"(?P<kg>\d+)"])
def test_pattern_that_cannot_work_is_rejected(pattern: str | None) -> None:
    with pytest.raises(indicator.BadPatternError):
        indicator.parser("regex", pattern=pattern)


def test_frames_end_with_cr_lf_or_etx_and_begin_behind_stx() -> None:
    frames = Frames()
    assert frames.feed(b"ST,GS") == []
    assert frames.feed(b",+0012.34kg\r\n\x02  1.0G\x03junk\x02 2") == [
        b"ST,GS,+0012.34kg",
        b"  1.0G",
    ]
    assert frames.feed(b".0G\x03") == [b" 2.0G"]


def test_noise_without_a_line_end_is_dropped() -> None:
    frames = Frames()
    for _ in range(1000):
        assert frames.feed(b"\xff" * 4096) == []
    assert len(frames._rest) <= indicator.MAX_FRAME
    assert frames.feed(b"\r   1.0 kg\r") == [b"   1.0 kg"]
    assert frames.dropped >= 4_096_000 - indicator.MAX_FRAME


@given(st.lists(st.binary(max_size=40)), st.sampled_from(indicator.FORMATS))
def test_any_bytes_of_a_scale_are_read_or_counted(chunks: list[bytes], name: str) -> None:
    frames = Frames()
    parse = indicator.parser(name, pattern=r"(?P<weight>.*)")
    for chunk in chunks:
        for frame in frames.feed(chunk):
            said = parse(frame)
            if isinstance(said, Reading) and said.weight_kg is not None:
                assert math.isfinite(said.weight_kg)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400)))
def test_frames_cut_at_any_byte_are_the_same(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    whole, parts = Frames(), Frames()
    expected = whole.feed(data)
    found: list[bytes] = []
    for begin, end in itertools.pairwise(places):
        found += parts.feed(data[begin:end])
    assert found == expected


@given(st.floats(-5000, 5000), st.sampled_from(["kg", "g", "lb"]))
def test_weight_written_as_a_line_is_read_back(value: float, unit: str) -> None:
    line = f"ST,GS,{value:+09.2f}{unit}".encode()
    found = indicator.parser("and")(line)
    assert isinstance(found, Reading)
    assert found.weight_kg == pytest.approx(float(f"{value:.2f}") * indicator.KG_OF[unit], abs=1e-5)

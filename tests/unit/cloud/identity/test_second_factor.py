"""Codes of authenticator apps: the vectors of RFC 6238, clocks that differ, codes used twice."""

import base64
from urllib.parse import parse_qs, urlsplit

import pytest

from farmiq.cloud.identity import second_factor

# Appendix B of RFC 6238, SHA-1: the secret is this text.
RFC_SECRET = b"12345678901234567890"
NOW_S = 1_111_111_109


@pytest.mark.parametrize(
    ("at_s", "code"),
    [
        (59, "94287082"),
        (1111111109, "07081804"),
        (1111111111, "14050471"),
        (1234567890, "89005924"),
        (2000000000, "69279037"),
        (20000000000, "65353130"),
    ],
)
def test_codes_are_those_of_the_rfc(at_s: int, code: str) -> None:
    assert second_factor.code(RFC_SECRET, at_s // 30, digits=8) == code


def accepted(given: str, *, at_s: float = NOW_S, last_step: int = 0) -> int | None:
    return second_factor.accepted_step(RFC_SECRET, given, at_s=at_s, last_step=last_step)


@pytest.mark.parametrize("steps_off", [-1, 0, 1])
def test_code_of_a_clock_half_a_minute_off_is_accepted(steps_off: int) -> None:
    step = NOW_S // 30
    assert accepted(second_factor.code(RFC_SECRET, step + steps_off)) == step + steps_off


@pytest.mark.parametrize("steps_off", [-2, 2])
def test_code_of_a_clock_a_minute_off_is_rejected(steps_off: int) -> None:
    assert accepted(second_factor.code(RFC_SECRET, NOW_S // 30 + steps_off)) is None


def test_code_is_accepted_once_and_none_older_after_it() -> None:
    step = NOW_S // 30
    now, before = (second_factor.code(RFC_SECRET, step - back) for back in (0, 1))

    assert accepted(now, last_step=step - 1) == step
    assert accepted(now, last_step=step) is None
    assert accepted(before, last_step=step) is None


@pytest.mark.parametrize(
    "given",
    ["", "12345", "1234567", "abcdef", "\uff11\uff12\uff13\uff14\uff15\uff16", "12 34 5", "\0" * 6],
)
def test_what_is_no_code_is_rejected(given: str) -> None:
    assert accepted(given) is None


def test_code_with_a_space_is_accepted_as_apps_show_it() -> None:
    code = second_factor.code(RFC_SECRET, NOW_S // 30)
    assert accepted(f" {code[:3]} {code[3:]} ") == NOW_S // 30


def test_address_of_the_qr_code_holds_what_an_app_needs() -> None:
    address = urlsplit(second_factor.address(RFC_SECRET, email="ann+x@hill.farm", issuer="FarmIQ"))
    query = parse_qs(address.query)

    assert (address.scheme, address.netloc) == ("otpauth", "totp")
    assert address.path == "/FarmIQ:ann%2Bx@hill.farm"
    assert base64.b32decode(query["secret"][0]) == RFC_SECRET
    assert (query["digits"], query["period"], query["issuer"]) == (["6"], ["30"], ["FarmIQ"])


def test_recovery_codes_are_ten_and_their_hash_ignores_how_they_are_typed() -> None:
    codes = second_factor.recovery_codes(bytes(range(second_factor.RECOVERY_RANDOM_BYTES)))

    assert len(set(codes)) == 10
    typed = codes[0].upper().replace("-", " ")
    assert second_factor.recovery_hash("u1", typed) == second_factor.recovery_hash("u1", codes[0])
    assert second_factor.recovery_hash("u2", codes[0]) != second_factor.recovery_hash(
        "u1", codes[0]
    )

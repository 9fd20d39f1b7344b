"""Pure: codes of the second factor (RFC 6238, as authenticator apps make them), recovery codes."""

import base64
import hashlib
import hmac
from urllib.parse import quote, urlencode

STEP_S = 30
DIGITS = 6
# A clock may be half a minute off.
SKEW_STEPS = 1
SECRET_BYTES = 20
RECOVERY_CODES = 10
_RECOVERY_BYTES = 5
RECOVERY_RANDOM_BYTES = RECOVERY_CODES * 2 * _RECOVERY_BYTES


def code(secret: bytes, step: int, *, digits: int = DIGITS) -> str:
    """The code of a step: RFC 4226 with the number of the step as counter."""
    digest = hmac.digest(secret, step.to_bytes(8, "big"), hashlib.sha1)
    offset = digest[-1] & 0x0F
    number = int.from_bytes(digest[offset : offset + 4], "big") & 0x7FFFFFFF
    return f"{number % 10**digits:0{digits}}"


def accepted_step(secret: bytes, given: str, *, at_s: float, last_step: int) -> int | None:
    """The step of this code, if it is one of now and newer than the last one accepted."""
    digits = "".join(given.split())
    if len(digits) != DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    now = int(at_s) // STEP_S
    fitting = [
        step
        for step in range(max(0, now - SKEW_STEPS), now + SKEW_STEPS + 1)
        if hmac.compare_digest(code(secret, step), digits) and step > last_step
    ]
    return fitting[0] if fitting else None


def secret_text(secret: bytes) -> str:
    """As a person types it into an app: base32 in groups of four."""
    text = base64.b32encode(secret).decode().rstrip("=")
    return " ".join(text[begin : begin + 4] for begin in range(0, len(text), 4))


def address(secret: bytes, *, email: str, issuer: str) -> str:
    """What the QR code says (otpauth://…)."""
    label = quote(f"{issuer}:{email}", safe=":@")
    query = urlencode(
        {
            "secret": base64.b32encode(secret).decode().rstrip("="),
            "issuer": issuer,
            "algorithm": "SHA1",
            "digits": DIGITS,
            "period": STEP_S,
        },
        quote_via=quote,
    )
    return f"otpauth://totp/{label}?{query}"


def recovery_codes(random: bytes) -> list[str]:
    """Ten codes such as k7q2m4xa-p9d3w5ze, of RECOVERY_RANDOM_BYTES random bytes."""
    parts = [
        base64.b32encode(random[begin : begin + _RECOVERY_BYTES]).decode().lower()
        for begin in range(0, RECOVERY_RANDOM_BYTES, _RECOVERY_BYTES)
    ]
    return [f"{first}-{second}" for first, second in zip(parts[::2], parts[1::2], strict=True)]


def recovery_hash(user_id: object, given: str) -> bytes:
    """As second_factors has it. A code has 80 random bits: a fast hash gives nothing away."""
    letters = "".join(letter for letter in given.lower() if letter.isalnum())
    return hashlib.sha256(f"farmiq recovery {user_id} {letters}".encode()).digest()

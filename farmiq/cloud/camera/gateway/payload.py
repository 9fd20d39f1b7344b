"""Pure: JSON as cameras write it, and the bytes of a chunk inside of it."""

import base64
import binascii
from typing import Any

import msgspec

from farmiq.cloud.camera.gateway.wire import Wrong
from farmiq.messages import check

# A chunk says little but its bytes, which may be an array of numbers: it is read by itself.
_frame = msgspec.json.Decoder(dict[str, msgspec.Raw])
_bytes = msgspec.json.Decoder(list[int])
_plain = msgspec.json.Decoder()


def fields(raw: bytes) -> dict[str, msgspec.Raw]:
    """The fields of an object, not looked into. Raises Wrong."""
    try:
        return _frame.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Wrong([f"not a JSON object: {error}"[:300]]) from None


def whole(raw: bytes) -> dict[str, Any]:
    """An object that can be kept as it is. Raises Wrong with every reason."""
    if reasons := check.keepable(raw):
        raise Wrong(check.Invalid(reasons).reasons)
    said = _plain.decode(raw)
    if not isinstance(said, dict):
        raise Wrong(["not a JSON object"])
    return said


def values(found: dict[str, msgspec.Raw], *names: str) -> tuple[dict[str, Any], list[str]]:
    """(those fields that are there, what is wrong with them). What cannot be read is not absent."""
    said, wrong = {}, []
    for name in names:
        if name not in found:
            continue
        try:
            said[name] = _plain.decode(found[name])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            wrong.append(f"{name} is no JSON: {error}"[:200])
    return said, wrong


class Reader:
    """Takes fields out of an object and gathers what is wrong with them."""

    def __init__(self, said: dict[str, Any]) -> None:
        self._said = said
        self.wrong: list[str] = []

    def whole_number(self, *names: str, needed: bool = False) -> int | None:
        name, found = self._find(names, needed=needed)
        if found is None:
            return None
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
        self._refuse(name, found, "a whole number")
        return None

    def number(self, *names: str) -> float | None:
        name, found = self._find(names, needed=False)
        if found is None:
            return None
        if isinstance(found, (int, float)) and not isinstance(found, bool):
            try:
                return float(found)
            except OverflowError:  # an integer of hundreds of digits
                pass
        self._refuse(name, found, "a number")
        return None

    def text(self, *names: str, needed: bool = False) -> str | None:
        name, found = self._find(names, needed=needed)
        if found is None or isinstance(found, str):
            return found
        self._refuse(name, found, "text")
        return None

    def _find(self, names: tuple[str, ...], *, needed: bool) -> tuple[str, Any]:
        for name in names:
            if self._said.get(name) is not None:
                return name, self._said[name]
        if needed:
            self.wrong.append(f"{names[0]} is missing")
        return names[0], None

    def _refuse(self, name: str, found: Any, wanted: str) -> None:
        self.wrong.append(f"{name} has to be {wanted}, not {_quoted(found)}")


def shown(found: Any, *, most: int = 40) -> str:
    """Not all of it, and Python itself refuses to write integers of thousands of digits."""
    try:
        return ascii(str(found)[:most])[1:-1]
    except ValueError:
        return "one of thousands of digits"


def _quoted(found: Any) -> str:
    return f"'{shown(found)}'"


def data_of(raw: msgspec.Raw | None) -> bytes:
    """A chunk's bytes: an array of numbers from 0 to 255, or base64. Raises Wrong."""
    if raw is None:
        raise Wrong(["payload is missing"])
    if bytes(raw)[:1] == b'"':
        return _from_base64(raw)
    try:
        return bytes(_bytes.decode(raw))
    except (msgspec.DecodeError, ValueError, OverflowError):
        raise Wrong(["payload has to be base64 or an array of numbers from 0 to 255"]) from None


def _from_base64(raw: msgspec.Raw) -> bytes:
    try:
        text: str = _plain.decode(raw)
        return base64.b64decode(text, validate=True)
    except (msgspec.DecodeError, binascii.Error, ValueError):
        raise Wrong(["payload is not base64"]) from None

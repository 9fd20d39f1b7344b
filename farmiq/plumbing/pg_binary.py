"""Pure: values in PostgreSQL's binary form, for COPY and for arrays of a thousand.

psycopg converts each value through a call in Python; on the hot path that costs more than reading
the message did. A field is its length and its bytes; a row is their number and the fields.
"""

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID

from msgspec import UnsetType

NULL = b"\xff\xff\xff\xff"
_COPY_BEGIN = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_COPY_END = b"\xff\xff"
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_JSONB_VERSION = b"\x01"

_instant = struct.Struct(">iq").pack
_float8 = struct.Struct(">id").pack
_int4 = struct.Struct(">ii").pack
_length = struct.Struct(">i").pack
_count = struct.Struct(">h").pack
_UUID_LENGTH = _length(16)
_TRUE, _FALSE = b"\x00\x00\x00\x01\x01", b"\x00\x00\x00\x01\x00"


# The same few names come again and again, together.
@lru_cache(maxsize=4096)
def names(*values: str | UnsetType | None) -> bytes:
    """Texts that are likely to come again, for columns that follow each other."""
    return b"".join([text(value) if isinstance(value, str) else NULL for value in values])


def text(value: str) -> bytes:
    data = value.encode()
    return _length(len(data)) + data


def bytea(value: bytes) -> bytes:
    return _length(len(value)) + value


def jsonb(value: bytes) -> bytes:
    return _length(len(value) + 1) + _JSONB_VERSION + value


def uuid(value: UUID) -> bytes:
    return _UUID_LENGTH + value.bytes


def timestamptz(value: datetime) -> bytes:
    since = value - _EPOCH
    return _instant(8, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def float8(value: float) -> bytes:
    return _float8(8, value)


def int4(value: int) -> bytes:
    return _int4(4, value)


def boolean(value: bool) -> bytes:  # noqa: FBT001 - a value, not an option
    return _TRUE if value else _FALSE


def copied(rows: Iterable[Sequence[bytes]], *, columns: int) -> bytes:
    """What `copy … from stdin (format binary)` reads: rows of so many columns each."""
    count = _count(columns)
    body = b"".join([count + b"".join(fields) for fields in rows])
    return _COPY_BEGIN + body + _COPY_END


def array(element: int, fields: Sequence[bytes]) -> bytes:
    """An array of one dimension; `element` is the oid of the fields' type."""
    head = struct.pack(">iiiii", 1, 0, element, len(fields), 1)
    return head + b"".join(fields)

"""Pure: a list of cameras as CSV, read whole: the cameras, or every problem with its line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from farmiq import roster
from farmiq.cloud.camera import mac
from farmiq.roster import Problem, Unusable

_Text = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$",
    ),
]
_Metres = Annotated[float, Meta(ge=-1_000_000, le=1_000_000)]
# The columns of an import file; the first three are needed.
_TYPES: Mapping[str, Any] = {
    "tenant_id": _Text,
    "mac": Annotated[str, Meta(max_length=32)],
    "device_name": _Text,
    "site_name": _Text,
    "wake_schedule_cron": Annotated[str, Meta(min_length=9, max_length=200)],
    "dialect": Annotated[str, Meta(pattern="^(standard|esp32cam)$")],
    "slot_index": Annotated[int, Meta(ge=1, le=1_000_000)],
    "x_position": _Metres,
    "y_position": _Metres,
    "firmware": _Text,
}
COLUMNS = tuple(_TYPES)
NEEDED = COLUMNS[:3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """`mac` is twelve hexadecimal digits in upper case."""

    tenant_id: str
    mac: str
    device_name: str
    site_name: str | None = None
    wake_schedule_cron: str | None = None
    dialect: str = "standard"
    slot_index: int | None = None
    x_position: float | None = None
    y_position: float | None = None
    firmware: str | None = None


def read(text: str) -> list[tuple[int, Camera]]:
    """(line, camera) of every row. Raises Unusable."""
    rows, problems = roster.rows(text, columns=COLUMNS, needed=NEEDED, of="camera")
    cameras: list[tuple[int, Camera]] = []
    for line, cells in rows:
        values, wrong = _values(cells)
        problems += [Problem(line, *each) for each in wrong]
        if not wrong:
            cameras.append((line, Camera(**values)))
    problems += twice(cameras)
    if problems:
        raise Unusable(problems)
    return cameras


def twice(cameras: Sequence[tuple[int, Camera]]) -> list[Problem]:
    """One company registers an address, and a name, once."""
    found: list[Problem] = []
    first: dict[tuple[str, ...], int] = {}
    for line, camera in cameras:
        for field, value in (("mac", camera.mac), ("device_name", camera.device_name.lower())):
            before = first.setdefault((camera.tenant_id, field, value), line)
            if before != line:
                found.append(Problem(line, field, f"stands in line {before} already"))
    return found


def _values(cells: Mapping[str, str]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    values: dict[str, Any] = {}
    wrong = [(name, "is missing") for name in NEEDED if not cells[name]]
    for name, cell in cells.items():
        if not cell:
            continue
        try:
            values[name] = msgspec.convert(cell, _TYPES[name], strict=False)
            if name == "mac":
                values[name] = mac.normal(cell)
        except msgspec.ValidationError as error:
            wrong.append((name, f"{cell[:40]!r} is not possible: {error}"))
        except ValueError as error:
            wrong.append((name, f"{cell[:40]!r} {error}"))
    return values, wrong

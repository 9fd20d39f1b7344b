"""The worked examples of docs/integrate/figures.md: what was sent, and what it must come to."""

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from tests.support.recount import MasterData

PAGE = Path(__file__).parents[2] / "docs/integrate/figures.md"
TENANT, FARM, ZONE = "t-001", "f-001", "Europe/Berlin"
SAFE_TO_SELL_FROM = {"chicks": date(2026, 4, 6)}
_EXAMPLE = re.compile(
    r"^- `(?P<batch>\w+) (?P<on>\d{4}-\d\d-\d\d) (?P<kind>\w+)(?P<difference> difference)? "
    r"= (?P<terms>[-+*/(). \d]+) = (?P<result>-?[\d.]+) (?P<unit>\S+)`$",
    re.MULTILINE,
)
_ROW = re.compile(r"^\|(?P<cells>.*)\|$")


@dataclass(frozen=True)
class Example:
    """A figure as the page computes it, and the result that it prints."""

    batch_id: str
    on: date
    kind: str
    is_difference: bool
    value: float
    printed: float
    unit: str


def examples() -> list[Example]:
    return [
        Example(
            batch_id=found["batch"],
            on=date.fromisoformat(found["on"]),
            kind=found["kind"],
            is_difference=bool(found["difference"]),
            value=_calculate(ast.parse(found["terms"].strip(), mode="eval").body),
            printed=float(found["result"]),
            unit=found["unit"],
        )
        for found in _EXAMPLE.finditer(PAGE.read_text())
    ]


def master_data(tenant_id: str = TENANT) -> MasterData:
    batches, standard, _ = _tables()
    return MasterData(
        farms=[{"tenant_id": tenant_id, "farm_id": FARM, "name": "Example", "timezone": ZONE}],
        batches=[
            {
                **row,
                "tenant_id": tenant_id,
                "farm_id": FARM,
                "breed": row["breed"] or None,
                "sex": "mixed",
                "placed_count": int(row["placed_count"]),
                "placed_on": date.fromisoformat(row["placed_on"]),
                "age_at_placing_days": int(row["age_at_placing_days"]),
                "closed_on": None,
            }
            for row in batches
        ],
        standards=[
            {
                **{name: float(value) for name, value in row.items()},
                "tenant_id": tenant_id,
                "species": "broiler",
                "breed": "example",
                "sex": "mixed",
                "age_days": int(row["age_days"]),
                "source": "docs/integrate/figures.md",
            }
            for row in standard
        ],
    )


def events(tenant_id: str = TENANT) -> list[dict[str, Any]]:
    """What was sent, as it is on the bus."""
    _, _, sent = _tables()
    return [event for row in sent for event in _events(tenant_id, row)]


def _events(tenant_id: str, row: dict[str, str]) -> list[dict[str, Any]]:
    at = datetime.fromisoformat(row["at"]).replace(tzinfo=ZoneInfo(ZONE)).astimezone(UTC)
    value, unit = float(row["value"]), row["unit"] or None
    event: dict[str, Any] = {
        "event_id": _id(tenant_id, row["id"]),
        "tenant_id": tenant_id,
        "farm_id": FARM,
        "barn_id": row["barn_id"],
        "device_id": "device-1",
        "session_id": None,
        "occurred_at": at,
        "trace_id": row["id"],
    }
    what, _, detail = row["what"].partition(" ")
    if what == "weighing":
        return _weighing(event, value)
    if what == "estimate":
        session_id = _id(tenant_id, detail)
        return [{**event, "session_id": session_id, **estimate(event["event_id"], value)}]
    if what == "reading":
        payload: dict[str, Any] = {"metric_type": detail, "metric_value": value, "unit": unit}
        return [{**event, "event_type": "telemetry.ingested", "payload": payload}]
    if what == "intake":
        payload = {"source": "MANUAL", "quantity_kg": value}
        if row["replaces"]:
            payload["replaces"] = str(_id(tenant_id, row["replaces"]))
        return [{**event, "event_type": "feed.intake.recorded", "payload": payload}]
    payload = {
        "record_id": row["id"],
        "record_type": what.removesuffix(","),
        "value": value,
        "unit": unit,
        "recorded_by_ref": "anna",
        "recorded_at": at.isoformat().replace("+00:00", "Z"),
    }
    if what == "treatment,":
        payload |= {"product": "P", "withdrawal_days": int(detail.split()[0])}
    return [{**event, "event_type": "barn.record.created", "payload": payload}]


def _weighing(event: dict[str, Any], weight_kg: float) -> list[dict[str, Any]]:
    session_id = event["event_id"]
    payloads: dict[str, dict[str, Any]] = {
        "created": {"status": "created", "batch_id": None, "initial_weight_kg": None},
        "finalized": {
            "status": "finalized",
            "final_weight_kg": weight_kg,
            "image_count": 0,
            "inference_result_id": None,
        },
    }
    return [
        {
            **event,
            "event_id": uuid5(session_id, name),
            "session_id": session_id,
            "event_type": f"weighvision.session.{name}",
            "payload": payload,
        }
        for name, payload in payloads.items()
    ]


def estimate(event_id: UUID, weight_kg: float) -> dict[str, Any]:
    """What vision makes of a session."""
    payload = {
        "inference_result_id": event_id, "predicted_weight_kg": weight_kg, "confidence": 0.9,
        "model_version": "m-1",
    }  # fmt: skip
    return {"event_type": "inference.completed", "payload": payload}


def _id(tenant_id: str, name: str) -> UUID:
    return uuid5(UUID(int=18), f"{tenant_id}/{name}")


def _tables() -> list[list[dict[str, str]]]:
    """The first tables of the page: batches, the standard, what was sent."""
    tables: list[list[list[str]]] = [[]]
    for line in PAGE.read_text().splitlines():
        if row := _ROW.match(line):
            tables[-1].append([cell.strip() for cell in row["cells"].split("|")])
        elif tables[-1]:
            tables.append([])
    return [
        [dict(zip(table[0], cells, strict=True)) for cells in table[2:]] for table in tables[:3]
    ]


def _calculate(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.BinOp(left=left, op=sign, right=right):
            return float(_SIGNS[type(sign)](_calculate(left), _calculate(right)))
    raise ValueError(f"{ast.dump(node)} is no arithmetic")


_SIGNS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}

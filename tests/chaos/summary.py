"""Pure: fault rounds folded into a line per kind."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any


def fault_lines(faults: Iterable[Mapping[str, Any]]) -> list[str]:
    by_kind: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for fault in faults:
        by_kind[str(fault["kind"])].append(fault)
    return [_line(kind, rounds) for kind, rounds in sorted(by_kind.items())]


def _line(kind: str, rounds: list[Mapping[str, Any]]) -> str:
    def total(name: str) -> int:
        return sum(int(each[name]) for each in rounds)

    slowest = max(float(each["recovery_s"]) for each in rounds)
    return (
        f"{kind:<36} rounds {len(rounds)}  events {total('events'):>5}  lost {total('lost')}  "
        f"twice {total('twice')}  slowest recovery {slowest:.1f} s"
    )

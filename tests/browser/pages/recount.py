"""Every figure of a page, counted again by SQL that knows nothing of the page."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import psycopg
import pytest

# A query with the figure's data-key as %(key)s, or a function of the key and the page's address;
# several rows where one name and key stand for several lines of a chart. A chart may say what it
# is of behind its name: `edge.hour_waiting|barn-1.line` is `edge.hour_waiting.line` with
# %(of)s = barn-1.
Counted = str | Callable[[Any, str, str], Iterable[Any]]


# Where the values of a chart stand: each value is counted again with it as its key.
AXIS = "chart.x"
# The page of the design system shows parts with made-up figures, of nobody's data.
SAMPLES = "design."


class Recount:
    def __init__(
        self,
        connection: Any,
        *known: Mapping[str, Counted],
        otherwise: Callable[[str], Counted] | None = None,
    ) -> None:
        self._connection, self._otherwise = connection, otherwise
        self._known = {name: counted for names in known for name, counted in names.items()}

    def wrong(self, figures: Iterable[tuple[str, str, str]], address: str) -> list[str]:
        """What the page shows and the tables do not say."""
        problems = []
        for name, key, value in {tuple(figure) for figure in figures}:
            if name == AXIS or name.startswith(SAMPLES):
                continue
            try:
                counted = self._count(name, key, address)
            except psycopg.Error as error:
                problems.append(f"cannot count {name} again: {error}")
                continue
            if counted is None:
                problems.append(f"nobody knows how to count {name!r} again (key {key!r})")
                continue
            if not any(float(value) == pytest.approx(one, rel=1e-6, abs=1e-9) for one in counted):
                problems.append(f"shows {name}({key}) = {value}, SQL counts {counted[:5]}")
        return sorted(set(problems))

    def _count(self, named: str, key: str, address: str) -> list[float] | None:
        base, bar, rest = named.partition("|")
        of, _dot, role = rest.rpartition(".")
        counted = self._known.get(f"{base}.{role}" if bar else named)
        if counted is None and self._otherwise is not None:
            counted = self._otherwise(named)
        if counted is None:
            return None
        if callable(counted):
            found = counted(self._connection, key, address)
        else:
            values = {"key": key, "of": of}
            found = (
                row[0] for row in self._connection.execute(counted.encode(), values).fetchall()
            )
        return [float(one) for one in found if one is not None]

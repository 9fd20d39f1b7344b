"""Requests of every kind at a live API, made from its OpenAPI document by Schemathesis."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.support.until import until

# The share of good answers below which a route was not looked at, only knocked at.
LEAST_GOOD = 0.2


@dataclass(frozen=True)
class Known:
    """Parts of a request with which an operation does what it is there for; the rest is drawn."""

    path: dict[str, Any] | None = None
    query: dict[str, Any] | None = None
    bodies: tuple[Any, ...] = ()
    # Done before each request: what the last one used up is there again.
    prepare: Callable[[], None] | None = None


# Its token is signed for the very request: none that is drawn is let in (tests of the edges do so).
SIGNED = {"POST /api/v1/edges/rotate"}


@dataclass
class Tally:
    """What an operation answered, and what was wrong with that."""

    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> float:
        return sum(n for status, n in self.statuses.items() if status < 300) / (
            self.statuses.total() or 1
        )


@dataclass(frozen=True)
class Site:
    """A live API: where, who calls which operation, and what is known there, by `POST /path`."""

    document: dict[str, Any]
    url: str
    headers: Mapping[str, Mapping[str, str]]
    known: Mapping[str, Known]

    def ask(self, *, examples: int, at: int) -> dict[str, Tally]:
        """So many requests per operation, the same for the same `at`."""
        from tests.support import drawn_requests  # noqa: PLC0415

        return drawn_requests.ask(self, examples=examples, at=at)


@contextmanager
def running(
    site: str, document: dict[str, Any], url: str, environment: Mapping[str, str], folder: Path
) -> Iterator[None]:
    """The services of a site in a process of their own; whoever asks needs this one."""
    with (folder / f"{site}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "farmiq", "run", site],
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )

    def ready() -> bool:
        assert process.poll() is None, Path(log.name).read_text()
        try:
            return client.get("/readyz").status_code == 200 and all(
                client.get(path).status_code != 404 for path in document["paths"]
            )
        except httpx2.HTTPError:
            return False

    try:
        with httpx2.Client(base_url=url, timeout=30) as client:
            asyncio.run(until(ready, within_s=150))
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def assert_sound(found: Mapping[str, Tally]) -> None:
    wrong = [f"{name}: {why}" for name, tally in found.items() for why in tally.wrong]
    assert not wrong, "\n".join(wrong[:20])
    barren = {
        name: dict(each.statuses)
        for name, each in found.items()
        if each.good < LEAST_GOOD and name not in SIGNED
    }
    assert not barren, barren

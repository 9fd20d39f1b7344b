"""How full the disks are, what that means, and what is removed in which order (C-42)."""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

State = Literal["fine", "warn", "shed"]


@dataclass(frozen=True, slots=True)
class Usage:
    total_bytes: int
    free_bytes: int

    @property
    def percent(self) -> float:
        return 100 * (1 - self.free_bytes / self.total_bytes) if self.total_bytes else 100.0


def read_usage(path: str) -> Usage:
    """Measure the disk of this path. Raises OSError."""
    usage = shutil.disk_usage(path)
    # Free for us: a file system reserves some blocks for root.
    return Usage(usage.used + usage.free, usage.free)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """`shed` below `warn` means: warn when shedding."""

    warn_percent: float
    shed_percent: float


@dataclass(frozen=True, slots=True)
class Fullness:
    """`path` is the fullest disk's."""

    state: State
    path: str
    percent: float


def assess(usage: Mapping[str, Usage], thresholds: Thresholds) -> Fullness:
    """Return how full the fullest disk is."""
    path = max(usage, key=lambda name: usage[name].percent)
    percent = usage[path].percent
    state: State = "fine"
    if percent >= thresholds.shed_percent:
        state = "shed"
    elif percent >= thresholds.warn_percent:
        state = "warn"
    return Fullness(state, path, percent)


def next_to_shed(state: State, order: Iterable[str], done: Iterable[str]) -> str | None:
    """Return the first name that was not tried yet, if the disk is too full."""
    if state != "shed":
        return None
    tried = set(done)
    return next((name for name in order if name not in tried), None)


def paths(setting: str) -> tuple[str, ...]:
    return tuple(path for text in setting.split(",") if (path := text.strip())) or ("/",)

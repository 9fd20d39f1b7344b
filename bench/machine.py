"""What this machine is, and what its processes have used: CPU by process tree, from /proc."""

import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from farmiq import config

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PARENT, _OWN, _CHILDREN = 1, slice(11, 13), slice(13, 15)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, its descendants, and those of them that have ended."""
    table = _table()
    family = {pid}
    while True:
        grown = family | {one for one, fields in table.items() if int(fields[_PARENT]) in family}
        if grown == family:
            break
        family = grown
    ticks = sum(
        _ticks(table[one], _OWN) + _ticks(table[one], _CHILDREN) for one in family & {*table}
    )
    return ticks * _TICK_S


def description() -> dict[str, Any]:
    memory_kb = int(_line("/proc/meminfo", "MemTotal").split()[0])
    return {
        "cpu": _line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory_kb / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        "flush_ms": _flush_ms(),
    }


def _flush_ms() -> float:
    """How long the disk below the state directory takes to keep a page for certain."""
    took = []
    folder = config.state_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(100):
            os.write(file.fileno(), bytes(8192))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return round(statistics.median(took) * 1000, 2)


def _table() -> dict[int, list[str]]:
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                table[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
    return table


def _ticks(fields: list[str], which: slice) -> int:
    return sum(int(each) for each in fields[which])


def _line(file: str, name: str) -> str:
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return "unknown"

"""The asserts of test files are rewritten before workers start, each file once.

In a fresh checkout every worker would rewrite all of them, at the same time as the others: four
times twenty seconds of a core.
"""

import os
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

TESTS = Path(__file__).parents[1]
PROCESSES = 2
# Fewer are done sooner by the workers themselves.
MANY = 40


def start(config: pytest.Config) -> list[int]:
    """Rewrite what was changed since, beside what this process does next; pids to wait for."""
    if sys.dont_write_bytecode or not getattr(config.option, "numprocesses", None):
        return []
    stale = [file for file in sorted(TESTS.rglob("test_*.py")) if not _is_rewritten(file)]
    if len(stale) < MANY:
        return []
    return [_forked(config, stale[number::PROCESSES]) for number in range(PROCESSES)]


def wait(pids: list[int]) -> None:
    for pid in pids:
        os.waitpid(pid, 0)


def _forked(config: pytest.Config, files: list[Path]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            for file in files:
                source_hash, code = rewrite._rewrite_test(file, config)
                _kept(file).parent.mkdir(exist_ok=True)
                state = config.stash[rewrite.assertstate_key]
                rewrite._write_pyc(state, code, source_hash, _kept(file))
        finally:
            os._exit(0)
    return pid


def _is_rewritten(file: Path) -> bool:
    return rewrite._read_pyc(file, _kept(file)) is not None


def _kept(file: Path) -> Path:
    return rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"

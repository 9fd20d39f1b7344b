"""Stacks for one test each: stopped by pid and deleted afterwards, whatever happened."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from farmiq.lab import stack


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield from _folder(tmp_path / "stacks" / "one")


@pytest.fixture
def second_root(tmp_path: Path) -> Iterator[Path]:
    yield from _folder(tmp_path / "stacks" / "two")


def _folder(root: Path) -> Iterator[Path]:
    yield root
    stack.stop(root)
    stack.remove(root)

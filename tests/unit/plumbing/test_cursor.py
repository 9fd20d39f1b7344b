"""Which messages are committed together, and which one is isolated."""

import pytest

from farmiq.plumbing.messaging import cursor
from farmiq.plumbing.messaging.cursor import CursorMovedError


class Table:
    """What was stored, in one list for each transaction; `bad` messages break theirs."""

    def __init__(self, count: int, bad: set[int]) -> None:
        self.count, self._bad = count, bad
        self.commits: list[list[int]] = []
        self.isolated: list[int] = []

    async def commit(self, part: slice) -> int:
        numbers = list(range(self.count))[part]
        if self._bad.intersection(numbers):
            raise ValueError("bad")
        self.commits.append(numbers)
        return len(numbers)

    async def isolate(self, index: int, _error: Exception) -> int:
        self.isolated.append(index)
        return 0


@pytest.mark.parametrize("bad", [set(), {0}, {6}, {2, 3}, set(range(7))])
async def test_bisecting_isolates_bad_messages_and_commits_the_others_in_order(
    bad: set[int],
) -> None:
    table = Table(7, bad)
    outcomes = await cursor.commit_bisecting(7, table.commit, table.isolate)
    assert sum(outcomes) == 7 - len(bad)
    assert table.isolated == sorted(bad)
    assert [number for part in table.commits for number in part] == sorted(set(range(7)) - bad)


async def test_bisecting_ends_when_another_gateway_reads() -> None:
    table = Table(2, set())

    async def moved(_part: slice) -> int:
        raise CursorMovedError

    with pytest.raises(CursorMovedError):
        await cursor.commit_bisecting(2, moved, table.isolate)
    assert table.isolated == []


async def test_bisecting_no_message_raises_what_the_commit_raises() -> None:
    async def fail(_part: slice) -> int:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        await cursor.commit_bisecting(0, fail, Table(0, set()).isolate)

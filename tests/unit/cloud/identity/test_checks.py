"""The order in which passwords are checked, with a check that ends when the test says so."""

import asyncio
import threading

import pytest

from farmiq.cloud.identity import passwords
from farmiq.cloud.identity.checks import Checks, TooBusyError
from tests.support.until import until


class Slow:
    """Checks wait until they are let go, one by one; `done` is their order."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._go = threading.Semaphore(0)

    def matches(self, _hash: str | None, password: str) -> bool:
        self.started.append(password)
        self._go.acquire(timeout=60)
        return True

    def let_go(self, count: int = 1) -> None:
        self._go.release(count)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    made = Slow()
    monkeypatch.setattr(passwords, "matches", made.matches)
    return made


async def check(made: Checks, name: str, *, lane: str, known: bool = False) -> bool:
    async with made.slot(lane, known=known):
        return await made.matches(None, name)


def ask(made: Checks, name: str, *, lane: str, known: bool = False) -> "asyncio.Task[bool]":
    return asyncio.create_task(check(made, name, lane=lane, known=known))


async def test_lanes_take_turns_and_known_browsers_go_first(slow: Slow) -> None:
    made = Checks(workers=1)
    asked = [ask(made, "flood 0", lane="flood")]
    await until(lambda: slow.started == ["flood 0"])
    asked += [ask(made, f"flood {number}", lane="flood") for number in (1, 2, 3)]
    asked += [
        ask(made, "honest", lane="honest"),
        ask(made, "known", lane="browser", known=True),
    ]
    await asyncio.sleep(0)
    slow.let_go(6)
    await asyncio.gather(*asked)

    assert slow.started == ["flood 0", "known", "flood 1", "honest", "flood 2", "flood 3"]


async def test_lane_that_is_full_is_refused_at_once(slow: Slow) -> None:
    made = Checks(workers=1, max_waiting_per_key=2)
    waiting = [ask(made, str(number), lane="flood") for number in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(TooBusyError):
        await check(made, "one more", lane="flood")
    slow.let_go(3)
    assert await asyncio.gather(*waiting) == [True] * 3


async def test_full_queue_gives_the_place_of_the_longest_lane_to_another_network(
    slow: Slow,
) -> None:
    made = Checks(workers=1, max_waiting=4)
    flood = [ask(made, f"flood {number}", lane="flood") for number in range(5)]
    await asyncio.sleep(0)
    honest = ask(made, "honest", lane="honest")
    with pytest.raises(TooBusyError):
        await flood[-1]
    slow.let_go(5)

    assert await asyncio.gather(honest, *flood[:-1]) == [True] * 5


async def test_full_queue_of_equal_lanes_refuses_the_newest(slow: Slow) -> None:
    made = Checks(workers=1, max_waiting=2)
    waiting = [ask(made, str(number), lane=str(number)) for number in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(TooBusyError):
        await check(made, "one more", lane="another")
    known = ask(made, "known", lane="browser", known=True)
    await asyncio.sleep(0)
    slow.let_go(4)

    assert await asyncio.gather(known, *waiting) == [True] * 4


async def test_cancelled_check_passes_its_turn_on(slow: Slow) -> None:
    made = Checks(workers=1)
    first, second, third = (ask(made, name, lane=name) for name in ("1", "2", "3"))
    await asyncio.sleep(0)
    second.cancel()
    slow.let_go(2)

    assert await asyncio.gather(*[first, third]) == [True] * 2
    assert slow.started == ["1", "3"]
    assert made._running == 0


async def test_no_more_checks_run_at_once_than_there_are_workers(slow: Slow) -> None:
    made = Checks(workers=2)
    asked = [ask(made, str(number), lane=str(number)) for number in range(5)]
    await until(lambda: len(slow.started) == 2)
    slow.let_go(5)
    await asyncio.gather(*asked)

    assert len(slow.started) == 5

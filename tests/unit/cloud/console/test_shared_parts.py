"""Many people of a company look at one page: it is computed once, and never too old."""

import asyncio

from farmiq.cloud.console.shared_parts import Part, SharedParts
from farmiq.ui import live


class Farm:
    """What a page is made from; `made` is how often it was."""

    def __init__(self) -> None:
        self.hub = live.Hub()
        self.hub.hear(True)
        self.now_s = 100.0
        self.parts = SharedParts(self.hub, clock=lambda: self.now_s)
        self.state, self.made, self.lasts_s = "old", 0, 1.0
        self.open = asyncio.Event()
        self.open.set()

    async def make(self) -> Part:
        self.made += 1
        seen = self.state
        await self.open.wait()
        return Part(seen.encode(), b"", self.lasts_s)

    async def look(self, company: str = "a", address: str = "/today") -> str:
        return (await self.parts.get(company, address, self.make)).plain.decode()


async def test_part_is_computed_once_for_all_who_ask_together() -> None:
    farm = Farm()
    assert await asyncio.gather(*(farm.look() for _ in range(50))) == ["old"] * 50
    assert farm.made == 1


async def test_part_of_another_company_address_or_second_is_computed_anew() -> None:
    farm = Farm()
    await farm.look("a")
    await farm.look("b")
    await farm.look("a", "/readings")
    assert farm.made == 3
    farm.now_s += 1.1
    await farm.look("a")
    assert farm.made == 4


async def test_whoever_asks_after_a_change_never_gets_what_was_before() -> None:
    """Also while the old one is still being computed."""
    farm = Farm()
    farm.open.clear()
    before = asyncio.create_task(farm.look())
    await asyncio.sleep(0)
    farm.state = "new"
    farm.hub.changed("a")
    after = [asyncio.create_task(farm.look()) for _ in range(10)]
    await asyncio.sleep(0)
    farm.open.set()
    assert await before == "old"
    assert await asyncio.gather(*after) == ["new"] * 10
    assert farm.made == 2


async def test_part_is_not_shared_past_the_time_at_which_it_changes_by_itself() -> None:
    farm = Farm()
    farm.lasts_s = 0.2
    await farm.look()
    farm.now_s += 0.3
    await farm.look()
    assert farm.made == 2


async def test_nothing_is_shared_while_changes_are_not_heard() -> None:
    farm = Farm()
    farm.hub.hear(False)
    await farm.look()
    await farm.look()
    assert farm.made == 2


async def test_person_who_leaves_does_not_take_the_answer_from_others() -> None:
    farm = Farm()
    farm.open.clear()
    leaving = asyncio.create_task(farm.look())
    await asyncio.sleep(0)
    staying = asyncio.create_task(farm.look())
    await asyncio.sleep(0)
    leaving.cancel()
    farm.open.set()
    assert await staying == "old"

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import psycopg
import pytest

from farmiq.ui import live


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE_S", 0.01)
    monkeypatch.setattr(live, "BEAT_S", 0.05)


async def somebody() -> str | None:
    return "anna@example.com"


def opened(
    hub: live.Hub,
    *,
    company_id: str = "a",
    lasts_s: float = 60,
    signed_in: Callable[[], Awaitable[str | None]] = somebody,
) -> AsyncIterator[bytes]:
    return live.stream(
        hub, company_id=company_id, sign_in=b"s", lasts_s=lasts_s, signed_in=signed_in
    )


async def test_a_stream_begins_with_changed_and_then_beats() -> None:
    stream = opened(live.Hub(listening=True))
    assert [await anext(stream) for _ in range(3)] == [live.CHANGED, live.BEAT, live.BEAT]


async def test_only_the_company_that_changed_hears_of_it() -> None:
    hub = live.Hub(listening=True)
    ours, theirs = opened(hub, company_id="a"), opened(hub, company_id="b")
    await anext(ours), await anext(theirs)
    hub.changed("a")
    assert await anext(ours) == live.CHANGED
    assert await anext(theirs) == live.BEAT


async def test_many_changes_are_one_message() -> None:
    hub = live.Hub(listening=True)
    stream = opened(hub)
    await anext(stream)
    for _ in range(100):
        hub.changed("a")
    assert [await anext(stream) for _ in range(2)] == [live.CHANGED, live.BEAT]


async def test_stream_is_deaf_until_the_hub_listens_again() -> None:
    hub = live.Hub(listening=True)
    stream = opened(hub)
    await anext(stream)
    hub.hear(listening=False)
    assert [await anext(stream) for _ in range(2)] == [live.DEAF, live.DEAF]
    hub.hear(listening=True)
    assert await anext(stream) == live.CHANGED


async def test_a_stream_ends_at_once_when_the_server_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "PAUSE_S", 60)
    monkeypatch.setattr(live, "BEAT_S", 60)
    hub = live.Hub(listening=True)
    stream = opened(hub)
    await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    hub.close()
    async with asyncio.timeout(60):
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_a_stream_ends_with_the_sign_in() -> None:
    async with asyncio.timeout(60):
        heard = [message async for message in opened(live.Hub(listening=True), lasts_s=0.5)]
    assert heard


async def test_a_stream_ends_at_a_beat_after_somebody_signed_out() -> None:
    answers = iter(["anna@example.com", psycopg.OperationalError(), None])

    async def signed_in() -> str | None:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with asyncio.timeout(60):
        heard = [message async for message in opened(live.Hub(listening=True), signed_in=signed_in)]
    assert heard == [live.CHANGED, live.BEAT, live.BEAT]


async def test_one_sign_in_has_only_so_many_streams() -> None:
    hub = live.Hub(listening=True)
    streams = [opened(hub) for _ in range(live.MAX_PER_SIGN_IN)]
    for stream in streams:
        assert not hub.is_full(b"s")
        await anext(stream)
    assert hub.is_full(b"s")
    assert not hub.is_full(b"another")
    hub.close()
    for stream in streams:
        assert [message async for message in stream] == []
    assert not hub.is_full(b"s")

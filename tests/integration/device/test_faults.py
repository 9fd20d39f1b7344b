"""The agent and an edge that is away, silent, refusing, restored or killed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from farmiq.device import service
from farmiq.device.buffer import store
from farmiq.device.buffer.database import FILE, TakenError
from farmiq.device.uplink import commands
from farmiq.device.uplink.rules import RateLimiter
from farmiq.messages import topics
from farmiq.plumbing import ids
from tests.integration.device.conftest import Edge
from tests.integration.device.running import Running
from tests.support import station
from tests.support.until import until


async def fill(agent: Running, sessions: int, *, weights: int = 8) -> int:
    for _ in range(sessions):
        await station.weighing(agent.book, weights=weights, pictures=0)
    return sessions * (weights + 2)


async def _broker_killed(
    edge: Edge, tasks: asyncio.TaskGroup, folder: Path, *, sessions: int
) -> None:
    """The broker dies with events under way, twice; what arrives is everything, each once."""
    agent = Running()
    await agent.begin(tasks, folder, edge)
    count = await fill(agent, sessions)
    for share in (0.2, 0.6):
        await until(lambda: len(edge.gateway.distinct()) > count * share, within_s=count)  # noqa: B023
        await asyncio.to_thread(edge.broker.kill, "mqtt-edge")
        await asyncio.to_thread(edge.broker.restart, "mqtt-edge")
    await until(lambda: len(edge.gateway.distinct()) == count, within_s=count)
    await agent.until_stored(count)
    numbers = [each.body["seq"] for each in edge.gateway.distinct().values()]
    assert sorted(numbers) == list(range(1, count + 1))


@pytest.mark.req("WV-18", "WV-25", "WV-27")
async def test_broker_is_killed_with_events_under_way(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    await _broker_killed(edge, tasks, tmp_path, sessions=12)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.req("WV-18", "WV-25", "WV-27")
async def test_broker_is_killed_with_two_thousand_events_under_way(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    await _broker_killed(edge, tasks, tmp_path, sessions=200)


@pytest.mark.req("WV-16", "WV-24", "WV-23")
async def test_backlog_leaves_in_order_and_never_more_than_twenty_in_a_second(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it leaves: on a busy machine the arrivals of two seconds may fall into one."""
    left: list[float] = []
    sent = RateLimiter.sent

    def noted(own: RateLimiter, at: float) -> None:
        left.append(at)
        sent(own, at)

    monkeypatch.setattr(RateLimiter, "sent", noted)
    book = await station.recorder(tmp_path)
    for _ in range(10):
        await station.weighing(book, weights=6, pictures=0)
    await book.buffer.close()
    agent = Running()
    await agent.begin(tasks, tmp_path, edge)
    await agent.until_stored(80)
    assert len(left) >= 80
    assert max(sum(at <= each < at + 1 for each in left) for at in left) <= 20
    by_session: dict[str | None, list[int]] = {}
    for each in edge.gateway.arrived:
        by_session.setdefault(each.session_id, []).append(each.body["seq"])
    assert all(numbers == sorted(numbers) for numbers in by_session.values())


@pytest.mark.req("WV-25", "WV-27", "WV-30")
async def test_without_a_receipt_nothing_is_stored_and_the_same_bytes_come_again(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    edge.gateway.silent = True
    agent = Running()
    await agent.begin(tasks, tmp_path, edge, AGENT_RECEIPT_SECONDS=0.5)
    await station.weighing(agent.book, pictures=0)
    await until(lambda: len(edge.gateway.arrived) >= 8 and len(edge.gateway.distinct()) == 4)
    assert (await agent.counts())["stored"] == 0
    edge.gateway.silent = False
    await agent.until_stored(4)


async def test_edge_without_receipts_is_served_by_pubacks(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    edge.gateway.silent = True
    agent = Running()
    await agent.begin(tasks, tmp_path, edge, AGENT_ACK_MODE="puback")
    await station.weighing(agent.book)
    await agent.until_stored(5)
    await until(lambda: len(edge.gateway.arrived) == 5)


@pytest.mark.req("WV-31")
async def test_event_that_the_edge_rejects_is_shown_and_can_be_redriven(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    edge.gateway.refuse = lambda each: "odd" if "created" in each.topic else None
    agent = Running()
    await agent.begin(tasks, tmp_path, edge)
    session_id = await station.weighing(agent.book, pictures=0)
    await agent.until_stored(3)
    await agent.until_refused(1)
    ((shown,), counts) = await agent.book.buffer.do(
        lambda tx: (store.sessions_with_problem(tx, limit=9), store.tally(tx))
    )
    assert (shown["session_id"], counts["refused"]) == (str(session_id), 1)
    assert "weighvision.session.created: odd" in shown["problem"]
    await until(lambda: _says(edge, "failed_sessions") == 1)
    assert _says(edge, "alarms") == ["events_refused"]
    edge.gateway.refuse = lambda _: None
    await agent.book.buffer.do(commands.redrive)
    await agent.until_stored(4)
    await until(lambda: _says(edge, "failed_sessions") == 0)


def _says(edge: Edge, name: str) -> Any:
    statuses = edge.gateway.statuses
    return statuses[-1].body["payload"].get(name) if statuses else None


async def test_restored_edge_gets_the_last_day_again_byte_for_byte_and_obeys_once(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    agent = Running()
    await agent.begin(tasks, tmp_path, edge)
    await station.weighing(agent.book)
    await agent.until_stored(5)
    for _ in range(2):
        await edge.gateway.command("edge.restored", {}, command_id="c-1")
    await until(lambda: len(edge.gateway.of("device.command.answered")) == 2)
    await agent.until_stored(7)
    assert len(edge.gateway.arrived) == 12
    answers = [each.body["payload"] for each in edge.gateway.of("device.command.answered")]
    assert answers[0]["message"] == "5 stored events are sent again"
    assert answers[1] == answers[0]
    # Hours that no clock can count do not end the agent: it answers this one and the next.
    await edge.gateway.command("edge.restored", {"hours": 10**400}, command_id="c-3")
    await until(lambda: len(edge.gateway.of("device.command.answered")) == 3)
    await agent.until_stored(8)
    await edge.gateway.command("dance", {}, command_id="c-2")
    await until(
        lambda: (
            edge.gateway.of("device.command.answered")[-1].body["payload"]["command_id"] == "c-2"
        )
    )
    last = edge.gateway.of("device.command.answered")[-1].body["payload"]
    assert last["outcome"] == "failed"


async def test_drain_that_stands_still_is_told_and_its_connection_made_anew(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    edge.gateway.silent = True
    agent = Running()
    await agent.begin(tasks, tmp_path, edge, AGENT_STALLED_SECONDS=1)
    await station.weighing(agent.book, pictures=0)
    await until(lambda: "drain_stalled" in (_says(edge, "alarms") or []))
    assert _says(edge, "state") == "error"
    edge.gateway.silent = False
    await agent.until_stored(4)
    await until(lambda: _says(edge, "alarms") == [])


async def test_status_says_how_scale_and_camera_are(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    agent = Running()
    await agent.begin(tasks, tmp_path, edge)
    agent.book.health.scale_ok = False
    await until(lambda: _says(edge, "state") == "error")
    assert edge.gateway.statuses[-1].body["payload"]["health"]["scale_ok"] is False
    agent.book.health.scale_ok = True
    await until(lambda: _says(edge, "state") == "online")


@pytest.mark.parametrize("what", ["login", "subscription"])
async def test_login_that_is_refused_is_an_alarm(
    edge: Edge,
    tasks: asyncio.TaskGroup,
    tmp_path: Path,
    free_port: Any,
    *,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    agent, port = Running(), free_port()
    if what == "login":
        edge.mqtt_url = edge.mqtt_url.replace("@", "-and-more@")
    else:
        # A topic that a device may not listen to.
        monkeypatch.setattr(topics, "receipts", lambda _: "iot/telemetry/#")
    await agent.begin(tasks, tmp_path, edge, AGENT_STATUS_PORT=port)
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:

        async def said() -> Any:
            try:
                found = (await http.get("/status.json")).json()
            except httpx2.HTTPError:
                return None  # the page is not up yet
            return "login_refused" in found["alarms"] and not found["connected"] and found

        found = await until(said)
    assert ("subscription" in found["alarms"]["login_refused"]["text"]) == (what != "login")
    assert (found["connected"], found["state"]) == (False, "error")


async def test_page_shows_what_is_wrong(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path, free_port: Any
) -> None:
    edge.gateway.refuse = lambda each: "<b>odd</b>" if "created" in each.topic else None
    agent, port = Running(), free_port()
    await agent.begin(tasks, tmp_path, edge, AGENT_STATUS_PORT=port)
    await station.weighing(agent.book, pictures=0)
    await agent.until_stored(3)
    await agent.until_refused(1)
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:

        async def up() -> Any:
            try:
                return (await http.get("/status.json")).json()["connected"]
            except httpx2.HTTPError:
                return None  # the page is not up yet

        await until(up)
        page = await http.get("/")
        said = (await http.get("/status.json")).json()
        assert (await http.get("/else")).status_code == 404
        assert (await http.post("/")).status_code == 405
    assert "&lt;b&gt;odd" in page.text
    assert "<b>odd" not in page.text
    assert said["running"]
    assert said["connected"]
    assert len(said["failed_sessions"]) == 1
    assert said["last_receipt_at"].endswith("Z")


async def test_page_says_that_uploads_are_good_unless_they_are_not(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path, free_port: Any
) -> None:
    edge.media.presign_answers = [(503, {"error": {"code": "BUSY"}})] * 1000
    agent, port = Running(), free_port()
    await agent.begin(tasks, tmp_path, edge, AGENT_STATUS_PORT=port)
    await agent.book.photograph(station.picture(None))
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:

        async def shows(words: str) -> bool:
            try:
                return f"<td>uploads</td><td>{words}</td>" in (await http.get("/")).text
            except httpx2.HTTPError:
                return False  # the page is not up yet

        await until(lambda: shows("not possible: 503 BUSY"))
        edge.media.presign_answers.clear()
        await agent.until_stored(1)
        await until(lambda: shows("good"))
        assert "not possible" not in (await http.get("/")).text


@pytest.mark.req("WV-18", "WV-19", "WV-27")
async def test_outage_of_75_hours_loses_nothing_and_no_picture(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    """A weighing every three hours with a clock that is moved; then broker and store are back."""
    await asyncio.to_thread(edge.broker.kill, "mqtt-edge")
    edge.media.presign_answers = [None] * 100_000
    clock, agent = station.MovedClock(), Running()
    await agent.begin(tasks, tmp_path, edge, clock=clock)
    taken: dict[str, bytes] = {}
    for _ in range(25):
        session_id, first = ids.new(), station.picture(None, at=clock.now())
        await agent.book.open(
            session_id, batch_id=None, initial_weight_kg=None, picture=first, at=clock.now()
        )
        taken[str(first.image_id)] = first.data
        for weight_kg in (90.5, 91.0, 91.5):
            clock.move(2)
            await agent.book.weigh(session_id, weight_kg=weight_kg, at=clock.now())
        await agent.book.close(session_id, final_weight_kg=91.5, at=clock.now())
        clock.move(3 * 3600)
    edge.media.presign_answers.clear()
    await asyncio.to_thread(edge.broker.restart, "mqtt-edge")
    await agent.until_stored(25 * 6)
    assert edge.media.objects == taken
    assert set(edge.gateway.types().values()) == {25, 75}
    assert (await agent.counts())["dropped"] == 0
    first_times = [each.body["ts"] for each in edge.gateway.of("weighvision.session.created")]
    assert first_times == sorted(first_times)


# --- pictures


@pytest.mark.req("WV-31")
async def test_picture_that_is_refused_three_times_has_failed_and_is_not_lost(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    error = {"error": {"code": "VALIDATION_ERROR", "message": "no", "traceId": "t-9"}}
    edge.media.presign_answers = [(400, error)] * 3
    agent = Running()
    await agent.begin(tasks, tmp_path, edge, AGENT_UPLOAD_ATTEMPTS=3)
    await station.weighing(agent.book)
    await agent.until_stored(4)
    assert edge.gateway.types()["weighvision.image.captured"] == 0
    (shown,) = await until(
        lambda: agent.book.buffer.do(lambda tx: store.failed_images(tx, limit=9))
    )
    assert shown["attempts"] == 3
    assert "VALIDATION_ERROR" in shown["problem"]
    await until(lambda: "uploads_failed" in (_says(edge, "alarms") or []))
    await agent.book.buffer.do(commands.redrive)
    await agent.until_stored(5)
    assert len(edge.media.objects) == 1


@pytest.mark.req("WV-30", "WV-31")
async def test_store_that_is_away_or_does_not_know_us_counts_against_no_picture(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    edge.media.presign_answers = [None, (503, {}), (401, {}), None, (429, {})]
    agent = Running()
    await agent.begin(tasks, tmp_path, edge, AGENT_UPLOAD_ATTEMPTS=1)
    await station.weighing(agent.book)
    await agent.until_stored(5)
    assert len(edge.media.objects) == 1


@pytest.mark.req("WV-30")
async def test_picture_that_the_store_does_not_let_in_lets_the_others_pass(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    agent, stranger = Running(), station.picture(None)
    presign = edge.media._presign

    def answer(request: Any) -> Any:
        if str(stranger.image_id) in request.body.decode():
            return 404, {}
        return presign(request)

    edge.media._presign = answer  # type: ignore[method-assign]
    await agent.begin(tasks, tmp_path, edge, AGENT_RECONNECT_SECONDS=40)
    await agent.book.photograph(stranger)
    await until(lambda: edge.media.requests)
    others = [station.picture(None) for _ in range(3)]
    for each in others:
        await agent.book.photograph(each)
    await until(lambda: set(edge.media.objects) == {str(each.image_id) for each in others})
    assert sum(stranger.image_id.hex in _hex(each.body) for each in edge.media.requests) == 1
    (kept,) = await agent.book.buffer.do(
        lambda tx: tx.execute(
            "select attempts from images where image_id = ?", (str(stranger.image_id),)
        ).fetchall()
    )
    assert kept == (0,)


def _hex(body: bytes) -> str:
    return body.decode("latin-1").replace("-", "")


async def test_address_that_has_expired_is_asked_for_anew_for_the_same_picture(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    edge.media.put_answers = [403, 403]
    agent = Running()
    await agent.begin(tasks, tmp_path, edge, AGENT_UPLOAD_ATTEMPTS=1)
    await station.weighing(agent.book)
    await agent.until_stored(5)
    asked = [
        json.loads(each.body)["mediaId"] for each in edge.media.requests if "POST" in each.method
    ]
    assert len(asked) == 3
    assert set(asked) == set(edge.media.objects)


@pytest.mark.req("WV-14")
async def test_lost_upload_response_is_settled_by_a_second_request(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    """The PUT went through, its answer did not: no second object, one event."""
    edge.media.put_answers = [None]
    agent = Running()
    await agent.begin(tasks, tmp_path, edge)
    await station.weighing(agent.book)
    await agent.until_stored(5)
    assert edge.gateway.types()["weighvision.image.captured"] == 1
    assert [each.method for each in edge.media.requests] == ["POST", "PUT", "POST"]


@pytest.mark.req("WV-10", "WV-14")
async def test_weights_wait_for_a_picture_only_so_long(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    edge.media.presign_answers = [(503, {})] * 1000
    agent = Running()
    await agent.begin(tasks, tmp_path, edge, AGENT_PICTURE_PATIENCE_SECONDS=1)
    await station.weighing(agent.book)
    await agent.until_stored(4)
    edge.media.presign_answers.clear()
    await agent.until_stored(5)
    types = [each.body["event_type"].split(".", 1)[1] for each in edge.gateway.arrived]
    assert types[-2:] == ["session.finalized", "image.captured"]


@pytest.mark.req("WV-26", "WV-18")
async def test_pictures_go_up_while_the_broker_is_away(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    await asyncio.to_thread(edge.broker.kill, "mqtt-edge")
    agent = Running()
    await agent.begin(tasks, tmp_path, edge)
    await station.weighing(agent.book)
    await until(lambda: len(edge.media.objects) == 1)
    assert edge.gateway.arrived == []
    await asyncio.to_thread(edge.broker.restart, "mqtt-edge")
    await agent.until_stored(5)


# --- the buffer itself


async def test_damage_that_shows_while_it_runs_is_salvaged_and_the_agent_goes_on(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    """A page of the file rots; the check in the background finds it; what can be read is sent."""
    book = await station.recorder(tmp_path)
    for _ in range(12):
        await station.weighing(book, weights=4, pictures=0)
    await book.buffer.close()
    _rot(tmp_path / FILE)
    agent = Running()
    await agent.begin(tasks, tmp_path, edge)
    await until(lambda: "buffer_salvaged" in (_says(edge, "alarms") or []))
    before = agent.book
    assert [*tmp_path.glob(f"{FILE}.damaged-*")]  # noqa: ASYNC240
    await station.weighing(before, pictures=0)
    await until(lambda: len(edge.gateway.distinct()) >= 72 - 10 + 4, within_s=40)


def _rot(path: Path) -> None:
    raw, page = bytearray(path.read_bytes()), 4096
    of_events = [
        at
        for at in range(page, len(raw), page)
        if raw[at] == 13 and raw[at : at + page].count(b"iot/weighvision/") > 2
    ]
    at = of_events[len(of_events) // 2]
    raw[at + 8 : at + page] = b"\x55" * (page - 8)
    path.write_bytes(raw)


async def test_two_agents_cannot_share_a_buffer(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    await Running().begin(tasks, tmp_path, edge)
    settings = station.settings(tmp_path, mqtt_url=edge.mqtt_url, edge_url=edge.media.url)
    with pytest.raises(TakenError, match="another agent"):
        await service.run(settings, [])

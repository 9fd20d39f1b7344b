"""What looks of the clock find: incomplete sessions, dead letters; rules tried over all that."""

from datetime import datetime, timedelta
from typing import Any

from farmiq.cloud import bus, sink
from farmiq.cloud.alerts import dry_run
from farmiq.cloud.alerts.dry_run import Trial
from farmiq.cloud.alerts.evaluating import found_values
from farmiq.cloud.alerts.evaluating.ruleset import Series, timed_value
from farmiq.cloud.deadletter import store as deadletters
from farmiq.cloud.deadletter.rules import Group
from farmiq.cloud.weighvision import service as weighvision
from farmiq.messages import bus as envelopes
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, ids
from tests.integration.cloud.alerts.conftest import HOUR, MINUTE, Alerts, now

INCOMPLETE = "rule:default.weighing.incomplete|f/1/st-1"
DAY = timedelta(days=1)


class Session:
    """A weigh session of station st-1, and what its edge says of it."""

    def __init__(self, alerts: Alerts, **changes: Any) -> None:
        self.alerts, self.session_id, self.media_id = alerts, ids.new(), ids.new()
        self.at, self.changes = now() - MINUTE, changes

    def event(self, kind: str, payload: dict[str, Any]) -> BusEvent:
        return self.alerts.event(
            f"weighvision.{kind}", self.at, {"station_id": "st-1", **payload},
            session_id=self.session_id, **self.changes,
        )  # fmt: skip

    def begun(self) -> list[BusEvent]:
        created = {"status": "created", "batch_id": None, "initial_weight_kg": None}
        return [
            self.event("session.created", created),
            self.event("weight.recorded", {"weight_kg": 2.0}),
        ]

    def incomplete(self) -> BusEvent:
        missing = {"session_id": self.session_id, "missing": ["image"], "since": self.at}
        return self.event("session.incomplete", missing)

    def ended(self) -> list[BusEvent]:
        final = {
            "status": "finalized", "final_weight_kg": 2.0, "image_count": 1,
            "inference_result_id": None,
        }  # fmt: skip
        return [
            self.event("image.captured", {"media_id": self.media_id}),
            self.event("session.finalized", final),
        ]


async def store(alerts: Alerts, *events: BusEvent) -> None:
    """As cloud-weighvision-service does."""
    bodies = [envelopes.write(event) for event in events]
    assert not await sink.store_events(alerts.pool, bodies, weighvision.SINK)


async def look(alerts: Alerts) -> None:
    await alerts.looks.look_at_sessions()
    await alerts.looks.page()


async def try_rule(alerts: Alerts, **fields: Any) -> Trial:
    rule = await alerts.rule("tried", **{"enabled": False, **fields})
    async with db.transaction(alerts.pool) as tx:
        return await dry_run.try_rule(tx, "t-001", rule, days=7)


async def test_session_that_stays_incomplete_is_an_episode_until_its_parts_come(
    alerts: Alerts,
) -> None:
    one, other = Session(alerts), Session(alerts, tenant_id="t-002")
    await alerts.rule("default.weighing.incomplete", tenant_id="t-002", enabled=False,
                      signal="weighing.incomplete", threshold=0)  # fmt: skip
    await store(alerts, *one.begun(), *other.begun())
    await look(alerts)
    assert alerts.episodes() == []
    await store(alerts, one.incomplete(), one.incomplete(), other.incomplete())
    for _ in range(2):
        await look(alerts)
    assert [row[:2] for row in alerts.episodes()] == [(INCOMPLETE, "active")]
    assert alerts.owner("select farm_id, barn_id, device_id, message from alert_episodes") == [
        ("f", "1", "st-1", "number of incomplete weigh sessions of st-1 in barn 1 above 0: 1")
    ]
    await store(alerts, *one.ended())
    await look(alerts)
    assert alerts.steps() == [(INCOMPLETE, "opened"), (INCOMPLETE, "resolved")]


async def test_incomplete_session_of_more_than_a_week_ago_calls_nobody(alerts: Alerts) -> None:
    old = Session(alerts)
    old.at -= 8 * DAY
    await store(alerts, *old.begun(), old.incomplete())
    await look(alerts)
    assert alerts.episodes() == []


async def test_edge_and_cloud_call_once_about_the_same_incomplete_sessions(alerts: Alerts) -> None:
    one = Session(alerts)
    await store(alerts, *one.begun(), one.incomplete())
    await alerts.take_edge(
        alerts.edge_alert(
            "opened", ids.new(), now(), code="weighvision.session_incomplete", subject="f/1/st-1",
            device_id="st-1",
        )
    )  # fmt: skip
    await alerts.looks.page()
    await look(alerts)
    assert len(alerts.episodes()) == 2
    assert [cause.partition(":")[0] for cause, _ in alerts.steps()] == ["edge"]
    ((held_by,),) = alerts.owner("select held_by from alert_episodes where source = 'rule'")
    assert held_by.startswith("episode:")


async def dead_letters(alerts: Alerts, queue: str, *owners: tuple[str, int, bool]) -> None:
    """What a look of cloud-deadletter-service found: (tenant, how many, of no company)."""
    found = [
        (tenant_id, Group(queue, f"reason {count}", count), of_no_company)
        for tenant_id, count, of_no_company in owners
    ]
    async with db.transaction(alerts.pool) as tx:
        await deadletters.replace_groups(tx, queue, found, whole=True)
    await alerts.looks.look_at_dead_letters()
    await alerts.looks.page()


async def test_dead_letters_of_a_queue_are_an_episode_until_they_are_gone(alerts: Alerts) -> None:
    feed, barn = bus.FEED.dead_letters, bus.BARN.dead_letters
    cause = f"rule:letters|{feed}"
    await alerts.rule("letters", signal="bus.dead_letters", threshold=3, severity="critical")
    await alerts.rule("letters", tenant_id="t-002", signal="bus.dead_letters", threshold=100)
    await dead_letters(alerts, barn, ("t-001", 3, False))
    await dead_letters(alerts, feed, ("t-001", 2, False), ("t-002", 90, False))
    assert alerts.episodes() == []
    # Those of no company count for who is told of them.
    for _ in range(2):
        await dead_letters(
            alerts, feed, ("t-001", 2, False), ("t-001", 5, True), ("t-002", 90, False)
        )
    assert [row[:2] for row in alerts.episodes()] == [(cause, "active")]
    assert alerts.owner("select tenant_id, subject, severity, message from alert_episodes") == [
        ("t-001", feed, "critical", "dead letters of the cloud above 3: 7")
    ]
    await dead_letters(alerts, feed)
    assert alerts.steps() == [(cause, "opened"), (cause, "resolved")]
    tried = await try_rule(alerts, signal="bus.dead_letters", threshold=6)
    assert [(row["subject"], row["worst_value"]) for row in tried.episodes] == [(feed, 7.0)]


async def heartbeats(alerts: Alerts, *minutes_ago: int, quarantine: int = 0) -> None:
    for minutes in minutes_ago:
        alerts.beat(ago=minutes * MINUTE)
        alerts.owner("update edge_heartbeats set quarantine = %s", quarantine)
        await alerts.looks.look_at_edges()


async def test_rule_on_an_edge_is_tried_over_what_was_found(alerts: Alerts) -> None:
    await heartbeats(alerts, *range(60, 45, -1))
    await heartbeats(alerts, *range(45, 35, -1), quarantine=3)
    # It is silent for twenty minutes, and all is well again.
    await heartbeats(alerts, *range(15, 0, -1))
    spans = "select value from alert_values where signal = %s order by begin_at"
    assert alerts.owner(spans, "edge.quarantine") == [(0.0,), (3.0,), (0.0,)]
    assert alerts.owner(spans, "edge.heard") == [(1.0,), (1.0,)]
    full = await try_rule(alerts, signal="edge.quarantine", threshold=0, for_s=300)
    assert (full.series_count, len(full.episodes), full.is_whole) == (1, 1, True)
    (held,) = full.episodes
    assert held["worst_value"] == 3
    assert full.values_from is not None
    assert round((held["opened_at"] - full.values_from) / MINUTE) == 20
    assert held["resolved_at"] is not None
    longer = await try_rule(alerts, signal="edge.quarantine", threshold=0, for_s=1200)
    assert longer.episodes == []
    silent = await try_rule(
        alerts, signal="edge.heard", condition="absent", threshold=None, for_s=600
    )
    assert [row["resolved_at"] is None for row in silent.episodes] == [False]
    # No rule looked at it: it was kept all the same.
    waiting = await try_rule(alerts, signal="edge.waiting", threshold=-1)
    assert len(waiting.episodes) == 1


async def test_rules_on_feed_sessions_and_cameras_are_tried_over_what_was_found(
    alerts: Alerts,
) -> None:
    camera = f"camera:{ids.new()}"
    for signal, subject, values, every in (
        ("feed.days_left", "barn:f/1", [5.0, 4.0, 1.5, 1.4, 6.0], 10 * MINUTE),
        ("feed.days_left", "barn:f/2", [1.0], 10 * MINUTE),
        ("weighing.incomplete", "f/1/st-1", [0.0, 2.0, 2.0, 0.0], MINUTE),
        ("camera.battery_v", camera, [3.9, 3.3], 6 * HOUR),
    ):
        await found_at_looks(alerts, signal, subject, values, every=every)
    feed = await try_rule(
        alerts, signal="feed.days_left", condition="below", threshold=2, barn_id="1"
    )
    assert [(row["subject"], row["worst_value"]) for row in feed.episodes] == [("barn:f/1", 1.4)]
    assert feed.value_count == 5
    sessions = await try_rule(alerts, signal="weighing.incomplete", threshold=1)
    assert [row["resolved_at"] is None for row in sessions.episodes] == [False]
    battery = await try_rule(alerts, signal="camera.battery_v", condition="below", threshold=3.4)
    assert [row["subject"] for row in battery.episodes] == [camera]
    nothing = await try_rule(alerts, signal="camera.completeness", condition="below", threshold=80)
    assert (nothing.series_count, nothing.values_from, nothing.episodes) == (0, None, [])


async def found_at_looks(
    alerts: Alerts, signal: str, subject: str, values: list[float], *, every: timedelta
) -> None:
    """What looks found, the last one now."""
    series = Series("t-001", signal, subject)
    first: datetime = now() - (len(values) - 1) * every
    for number, value in enumerate(values):
        async with db.transaction(alerts.pool) as tx:
            await found_values.store(tx, [timed_value(series, first + number * every, value)])

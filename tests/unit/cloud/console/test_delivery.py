"""What the pages of delivery say, without a database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from farmiq.cloud import bus
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.dead_letters import view as letters
from farmiq.cloud.console.delivery import view as delivery
from farmiq.cloud.console.delivery.view import Edge, Facts, Heartbeat, Hour, Queue, Waiting

NOW = datetime(2026, 11, 18, 6, 30, tzinfo=UTC)
COMPANY = Company(
    company_id=UUID(int=1), name="Hill", tenant_id="t", timezone="UTC", email="a@b", role="admin"
)
WELL = Heartbeat(
    received_at=NOW - timedelta(seconds=20),
    clock_offset_s=0.2,
    versions={"farmiq": "0.1.0"},
    waiting=0,
    oldest_s=0.0,
    dead_letters=0,
    disk_percent=40.0,
    open_alerts=0,
    quarantine=0,
    losses=0,
    farms=("f",),
    alerts_missing=0,
)
GOOD = Edge(edge_id="good", state="heard", good_keys=1, heartbeat=WELL)
NOTHING = Facts(edges=(), dead_letters=0, conflicts=0, rejected=(), rejected_total=0, queues=())


def said(*edges: Edge, dead_letters: int = 0) -> list[str]:
    facts = replace(NOTHING, edges=edges, dead_letters=dead_letters)
    return [each.text for each in delivery.view(COMPANY, facts, now=NOW).headline]


def test_headline_without_problems_is_empty() -> None:
    view = delivery.view(COMPANY, replace(NOTHING, edges=(GOOD,)), now=NOW)
    assert list(view.headline) == []
    assert view.title == "Delivery"
    assert [row.tone for row in view.rows] == ["good"]


def test_headline_names_the_edge_that_is_silent_longest_and_counts_dead_letters() -> None:
    heard_at = NOW - timedelta(hours=3, minutes=1)
    silent = replace(
        GOOD, edge_id="farm-2", state="silent", heartbeat=replace(WELL, received_at=heard_at)
    )
    later = replace(
        silent, edge_id="farm-1", heartbeat=replace(WELL, received_at=NOW - timedelta(minutes=9))
    )
    assert said(silent, dead_letters=12) == [
        "Edge farm-2 is silent for 3 h.",
        "12 dead letters wait.",
    ]
    assert said(GOOD, later, silent) == ["2 edges are silent, farm-2 for 3 h."]
    assert said(replace(GOOD, state="never heard", heartbeat=None)) == ["1 edge was never heard."]


def test_headline_names_what_is_stuck_in_the_cloud() -> None:
    hours_ago = NOW - timedelta(hours=30)
    counted_at = NOW - timedelta(hours=3)
    facts = replace(
        NOTHING,
        edges=(GOOD,),
        waiting=(
            Waiting(station="edges", count=7, oldest_at=hours_ago),
            Waiting(station="entries", count=400, oldest_at=hours_ago, late=390),
            Waiting(station="messages", count=90, oldest_at=hours_ago, late=1),
        ),
        rejected_total=700,
        queues=(
            Queue("farmiq.x.ingest.queue", 3, 0, 10, counted_at),
            Queue("farmiq.y.ingest.queue", 3, 1, 10, counted_at),
        ),
    )
    view = delivery.view(COMPANY, facts, now=NOW)
    assert [finding.text for finding in view.headline] == [
        "390 entries wait for the bus for more than 15 min.",
        "1 message to people waits for more than 15 min.",
        "700 messages of cameras wait in quarantine.",
        "1 queue of the bus needs attention.",
        "The queues of the bus were last counted 3 h ago.",
    ]
    assert [finding.value for finding in view.headline] == [390, 1, 700, 1, 3 * 3600]
    assert view.title == "(5) Delivery"


def test_edge_with_an_old_loss_is_well_until_there_is_a_new_one() -> None:
    lossy = replace(GOOD, heartbeat=replace(WELL, losses=3))
    assert delivery.edge_row(lossy, now=NOW).word == "arrives"
    row = delivery.edge_row(replace(lossy, has_new_losses=True), now=NOW)
    assert (row.tone, [problem.value for problem in row.problems]) == ("bad", [3])
    assert row.problems[0].text == (
        "Messages were lost lately, 3 in all: the list of losses at the edge says why."
    )


def test_revoked_edge_is_no_problem() -> None:
    revoked = replace(GOOD, state="silent", good_keys=0, heartbeat=replace(WELL, losses=3))
    assert said(revoked) == []
    assert delivery.edge_row(revoked, now=NOW).word == "revoked"


def test_problems_of_an_edge_are_whole_sentences_with_their_figures() -> None:
    ill = replace(
        WELL, waiting=5, oldest_s=3700.0, dead_letters=1, quarantine=2, losses=3,
        clock_offset_s=-130.0, disk_percent=92.0, alerts_missing=1,
    )  # fmt: skip
    row = delivery.edge_row(replace(GOOD, heartbeat=ill, has_new_losses=True), now=NOW)
    assert [(each.name, each.value) for each in row.problems] == [
        ("edge.losses", 3),
        ("edge.dead_letters", 1),
        ("edge.oldest_s", 3700.0),
        ("edge.quarantine", 2),
        ("edge.clock_offset_s", -130.0),
        ("edge.disk_percent", 92.0),
        ("edge.alerts_missing", 1),
    ]
    texts = [each.text for each in row.problems]
    assert "Its clock is 2 min behind." in texts
    assert "1 event was refused by the cloud and waits at the edge." in texts
    assert row.tone == "bad"
    # Events that came a moment ago are on their way.
    moving = replace(WELL, waiting=900, oldest_s=12.0)
    assert delivery.edge_problems(replace(GOOD, heartbeat=moving), now=NOW) == []


def test_hours_of_an_edge_have_gaps_where_nothing_was_heard() -> None:
    hour = Hour(NOW.replace(minute=0), 9, 1, 60, 4, 2.0)
    facts = delivery.EdgeFacts(edge=GOOD, hours=(hour,), actions=(), episodes=())
    view = delivery.edge_view(COMPANY, facts, now=NOW)
    assert len(view.waiting) == delivery.HISTORY_HOURS
    assert view.waiting[-2:] == [(hour.hour - timedelta(hours=1), None), (hour.hour, 4)]
    assert view.arrived[-1] == (hour.hour, 9, 1)


def test_queue_says_what_is_wrong_with_it() -> None:
    work = Queue("farmiq.x.ingest.queue", 3, 1, 10, NOW)
    assert (work.tone, work.word) == ("muted", "")
    assert replace(work, consumers=0).word == "nobody reads it"
    assert replace(work, messages=6).word == "more than half full"
    assert replace(work, queue="farmiq.x.dlq.queue", consumers=0).word == "wait for a person"


ORDER = {
    "action": "redrive",
    "queue": bus.FEED.dead_letters,
    "reason": "no such lot",
    "which": "all",
    "rate_per_s": "10",
    "max_letters": "500",
}


def test_order_of_a_form_is_read() -> None:
    wish, errors = letters.read_order(ORDER)
    assert errors == {}
    assert wish
    assert (wish.action, wish.dry_run, wish.rate_per_s, wish.max_letters) == (
        "redrive", False, 10, 500,
    )  # fmt: skip
    some, _ = letters.read_order({**ORDER, "which": "some", "letter_3": "e-1", "action": "try"})
    assert some
    assert (some.event_ids, some.dry_run) == (("e-1",), True)


def test_order_that_is_not_valid_names_the_field() -> None:
    wrong = {
        "which": {"which": "some"},
        "note": {"action": "discard", "note": "  "},
        "action": {"action": "explode"},
        "rate_per_s": {"rate_per_s": "1e9"},
        "max_letters": {"max_letters": "0"},
    }
    for field, change in wrong.items():
        wish, errors = letters.read_order({**ORDER, **change})
        assert wish is None
        assert set(errors) == {field}
    for change in ({"queue": "somebody.elses"}, {"reason": ""}, {"reason": "x" * 201}):
        assert set(letters.read_order({**ORDER, **change})[1]) == {"action"}
    many = {f"letter_{n}": f"e-{n}" for n in range(21)}
    assert set(letters.read_order({**ORDER, "which": "some", **many})[1]) == {"which"}
    assert set(letters.read_order({})[1]) == {"action"}


def test_outcome_of_a_letter_follows_its_event() -> None:
    written = [
        {"event_id": "a", "event_type": "t", "outcome": "redriven"},
        {"event_id": "b", "event_type": "t", "outcome": "redriven"},
        {"event_id": "c", "event_type": "t", "outcome": "redriven"},
        {"event_id": "d", "event_type": "t", "outcome": "failed", "why": "its queue is full"},
        {"event_id": "a", "event_type": "t", "outcome": "would redrive"},
    ]
    found = letters.outcomes(written, stored={"a": NOW}, dead={"b": "again"})
    assert [(each.word, each.tone) for each in found] == [
        ("stored", "good"),
        ("died again", "bad"),
        ("sent again", "info"),
        ("failed", "bad"),
        ("would be sent again", "info"),
    ]

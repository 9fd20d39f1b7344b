"""Receipts by device: each hears of its own messages, and of nobody else's."""

from uuid import UUID

from farmiq.edge.arrival import Arrival, accept
from farmiq.edge.ingress.receipts import by_sender
from farmiq.edge.ingress.store import Outcome, Rejected
from farmiq.messages.topics import Place
from tests.unit.messages import examples
from tests.unit.messages.examples import AT, PLACE, TOPIC

OTHER_TOPIC = TOPIC.replace("d-010", "d-020")
OTHER = Place("t-001", "f-001", "b-001", "d-020")


def arrival(number: int, *, device_id: str = "d-010") -> Arrival:
    raw = examples.envelope(event_id=str(UUID(int=number)), device_id=device_id)
    return accept(TOPIC.replace("d-010", device_id), raw, now=AT)


def refused(number: int, topic: str = TOPIC, *, why: str = "odd") -> Rejected:
    return Rejected(topic, examples.envelope(event_id=str(UUID(int=number))), [why, "and more"])


def test_by_sender_groups_ids_by_device() -> None:
    outcome = Outcome(
        stored=(arrival(1), arrival(2, device_id="d-020"), arrival(3)),
        rejected=(refused(4), refused(5, OTHER_TOPIC)),
    )

    assert by_sender(outcome) == {
        PLACE: ((UUID(int=1), UUID(int=3)), {UUID(int=4): "odd; and more"}),
        OTHER: ((UUID(int=2),), {UUID(int=5): "odd; and more"}),
    }


def test_by_sender_of_a_device_with_rejected_messages_only() -> None:
    assert by_sender(Outcome(rejected=(refused(4),))) == {
        PLACE: ((), {UUID(int=4): "odd; and more"})
    }


def test_by_sender_leaves_out_messages_without_sender_or_id() -> None:
    lost = (Rejected("iot/odd", examples.envelope(), ["x"]), Rejected(TOPIC, b"\xff", ["x"]))

    assert by_sender(Outcome(rejected=lost)) == {}


def test_by_sender_of_a_station_is_the_device_at_it() -> None:
    """Whatever the body says: it is not believed (C-91)."""
    topic = (
        f"iot/weighvision/t-001/f-001/b-001/s-1/session/{UUID(int=9)}/weighvision.session.created"
    )
    outcome = Outcome(rejected=(refused(4, topic),))

    assert by_sender(outcome) == {}
    assert by_sender(outcome, lambda where: OTHER if where.station_id == "s-1" else None) == {
        OTHER: ((), {UUID(int=4): "odd; and more"})
    }


def test_a_reason_is_cut_to_a_length_that_a_device_can_take() -> None:
    ((_, told),) = by_sender(Outcome(rejected=(refused(4, why="x" * 9000),))).values()

    assert len(told[UUID(int=4)]) == 500


def test_outcomes_add_up() -> None:
    whole = Outcome((arrival(1),), 1, ()) + Outcome((arrival(2),), 0, (refused(3),))

    assert (len(whole.stored), whole.new_count, len(whole.rejected)) == (2, 1, 1)

"""Phase 1 as a pure machine: the documented order, giving up with a reason, and any story."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.device.capture import stable, weighing
from farmiq.device.capture.stable import Arrived, Crowded, GaveUp, Left, Occupied, Settled
from farmiq.device.capture.weighing import (
    Action,
    Begin,
    Cancel,
    Event,
    Finish,
    NoPicture,
    NotStored,
    PictureTaken,
    Rules,
    StorePicture,
    TakePicture,
    TimePassed,
    Weigh,
    Weighing,
)
from farmiq.plumbing import ids


def play(*events: Event, rules: Rules | None = None, every_s: float = 1.0) -> list[Action]:
    state = Weighing()
    done: list[Action] = []
    for number, event in enumerate(events):
        state, actions = weighing.step(state, event, number * every_s, rules or Rules())
        done += actions
    return done


@pytest.mark.req("WV-01", "WV-05", "WV-10", "WV-12")
def test_animal_is_weighed_in_the_documented_order() -> None:
    assert play(
        Arrived(),
        Settled(60.0),
        PictureTaken(),
        Settled(60.2, again=True),
        PictureTaken(),
        Left(9.0),
    ) == [
        TakePicture(),
        Begin(60.0, pictured=True),
        Weigh(60.0),
        Weigh(60.2),
        TakePicture(),
        StorePicture(),
        Finish(60.2),
    ]


def test_session_ends_when_it_has_what_it_needs_and_the_rest_is_ignored() -> None:
    rules = Rules(weights=2, pictures=1)
    done = play(
        Arrived(),
        Settled(60.0),
        PictureTaken(),
        Settled(60.2, again=True),
        Settled(60.3, again=True),
        Crowded(60.0, 120.0),
        Left(30.0),
        rules=rules,
    )
    assert done[-1] == Finish(60.2)
    assert sum(isinstance(each, Weigh) for each in done) == 2


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ((Arrived(), Left(5.0)), "before its weight was stable"),
        ((Arrived(), GaveUp("no stable weight within 60 s")), "no stable weight"),
        ((Arrived(), Settled(60.0), Left(5.0)), "before there was a picture"),
        ((Arrived(), Settled(60.0), Crowded(60.0, 120.5)), "from 60 kg to 120.5 kg"),
        ((Arrived(), Settled(60.0), PictureTaken(), Crowded(60.0, None)), "to overload"),
        (
            (Arrived(), Settled(60.0), *[NoPicture("it answers 503")] * 3),
            "no picture: it answers 503",
        ),
    ],
)
def test_weighing_that_is_given_up_is_cancelled_with_reason_and_weight(
    events: tuple[Event, ...], reason: str
) -> None:
    done = play(*events)
    assert isinstance(done[-1], Cancel)
    assert reason in done[-1].reason
    assert sum(isinstance(each, Begin) for each in done) == 1
    if any(isinstance(each, Settled) for each in events):
        assert Weigh(60.0) in done


def test_animal_that_only_passes_is_counted_and_makes_no_session() -> None:
    state, actions = weighing.step(Weighing(phase="settling"), Left(1.0), 1.0, Rules())
    assert actions == ()
    assert state.passed == 1


def test_camera_that_fails_once_is_asked_again() -> None:
    done = play(Arrived(), Settled(60.0), NoPicture("busy"), PictureTaken(), Left(5.0))
    assert done == [
        TakePicture(),
        TakePicture(),
        Begin(60.0, pictured=True),
        Weigh(60.0),
        Finish(60.0),
    ]


def test_cable_that_falls_silent_ends_a_session_that_has_its_weight() -> None:
    done = play(Arrived(), Settled(60.0), PictureTaken(), GaveUp("the scale was silent"))
    assert done[-1] == Finish(60.0)


def test_animal_that_stays_for_ever_is_weighed_once() -> None:
    done = play(Arrived(), Settled(60.0), PictureTaken(), *[TimePassed()] * 60, Left(70.0))
    assert [type(each) for each in done] == [TakePicture, Begin, Weigh, Finish]


def test_session_that_the_recorder_rejects_does_not_begin() -> None:
    state, _ = weighing.step(Weighing(phase="open"), NotStored(), 1.0, Rules())
    assert state.phase == "idle"


weights = st.floats(5, 200)
events: st.SearchStrategy[Event] = st.one_of(
    st.just(Arrived()),
    st.builds(Settled, weights, st.booleans()),
    st.builds(Crowded, weights, st.none() | weights),
    st.builds(Left, st.floats(0, 100)),
    st.builds(GaveUp, st.text(max_size=5)),
    st.builds(Occupied, weights),
    st.just(PictureTaken()),
    st.builds(NoPicture, st.text(max_size=5)),
    st.just(NotStored()),
    st.just(TimePassed()),
)


@given(st.lists(events, max_size=60), st.integers(1, 4), st.integers(1, 3))
def test_session_with_any_events_begins_once_and_ends_once(
    story: list[Event], most_weights: int, most_pictures: int
) -> None:
    rules = Rules(weights=most_weights, pictures=most_pictures)
    state, is_open, asked = Weighing(), False, False
    for number, event in enumerate(story):
        if isinstance(event, (PictureTaken, NoPicture)) and not asked:
            continue  # nobody brings a picture that was not asked for
        asked = asked and not isinstance(event, (PictureTaken, NoPicture))
        state, actions = weighing.step(state, event, float(number), rules)
        for action in actions:
            match action:
                case Begin():
                    assert not is_open
                    is_open = True
                case Weigh() | StorePicture():
                    assert is_open
                case Finish() | Cancel():
                    assert is_open
                    is_open = False
                case TakePicture():
                    assert not asked
                    asked = True
        if isinstance(event, NotStored):
            is_open = False
        assert is_open == (state.phase == "open")
        if state.phase == "idle":
            asked = False  # whoever drives it forgets the picture


@given(
    st.floats(0, 1e6), st.floats(0.1, 3600), st.lists(st.floats(0, 1e4), min_size=2, max_size=20)
)
@pytest.mark.req("WV-06")
def test_scheduled_slots_that_were_missed_are_not_made_up(
    began: float, every_s: float, moments: list[float]
) -> None:
    for passed in moments:
        now = began + passed
        at = weighing.next_slot(began, every_s, now)
        assert 0 <= at - now <= every_s * (1 + 1e-6) + 1e-6


@pytest.mark.req("WV-15")
def test_scheduled_picture_joins_a_session_or_weighs_or_is_loose() -> None:
    session_id = ids.new()
    assert weighing.placement(session_id, 60.0, with_weight=True) == "join"
    assert weighing.placement(session_id, None, with_weight=False) == "join"
    assert weighing.placement(None, 60.0, with_weight=True) == "weigh"
    assert weighing.placement(None, 60.0, with_weight=False) == "loose"
    assert weighing.placement(None, None, with_weight=True) == "loose"


def test_step_is_larger_than_the_tolerance() -> None:
    assert stable.Limits(present_kg=0.5, tolerance_kg=0.5).step_kg == 2.0

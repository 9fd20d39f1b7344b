"""Pure: one animal at a time (WV-10), and when a scheduled picture is due (WV-06).

(weighing, event, now) → (weighing, actions)

    idle ─Arrived─> settling ─Settled: TakePicture─> reference ─PictureTaken: Begin, Weigh─> open ─┐
     ▲                  │                                │                                     │
     └──────────────────┴─ Left, GaveUp, Crowded ────────┴─ Cancel ── or, complete: Finish ────┘

The reference picture is requested in the moment in which the weight settles. If the animal leaves
before it is there, the session is cancelled, with the weight in it if there was one, so nothing
that was measured is lost. An animal that only passes makes no event: it is counted. A picture that
comes after its weighing is over belongs to no animal: the driver discards it.
"""

from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

from farmiq.device.capture import stable

Phase = Literal["idle", "settling", "reference", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A session is complete with so many weights and pictures, or when the animal leaves."""

    weights: int = 3
    pictures: int = 2
    picture_tries: int = 3
    session_s: float = 30.0
    passes_s: float = 2.0


@dataclass(frozen=True, slots=True)
class PictureTaken:
    """The requested picture is there."""


@dataclass(frozen=True, slots=True)
class NoPicture:
    reason: str


@dataclass(frozen=True, slots=True)
class NotStored:
    """The recorder rejected the session: there is none."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing happened."""


Event = stable.Effect | PictureTaken | NoPicture | NotStored | TimePassed


@dataclass(frozen=True, slots=True)
class TakePicture:
    pass


@dataclass(frozen=True, slots=True)
class Begin:
    """A session with this weight; with the picture that was just taken, or without."""

    weight_kg: float | None
    pictured: bool


@dataclass(frozen=True, slots=True)
class Weigh:
    weight_kg: float


@dataclass(frozen=True, slots=True)
class StorePicture:
    """The picture that was just taken belongs to the session."""


@dataclass(frozen=True, slots=True)
class Finish:
    weight_kg: float


@dataclass(frozen=True, slots=True)
class Cancel:
    reason: str


Action = TakePicture | Begin | Weigh | StorePicture | Finish | Cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """`passed` counts animals that left before they could be weighed."""

    phase: Phase = "idle"
    since: float = 0.0
    weight_kg: float = 0.0
    weights: int = 0
    pictures: int = 0
    tries: int = 0
    picture_requested: bool = False
    passed: int = 0


Step = tuple[Weighing, tuple[Action, ...]]


def step(weighing: Weighing, event: Event, now: float, rules: Rules) -> Step:
    if isinstance(event, (PictureTaken, NoPicture)):
        weighing = replace(weighing, picture_requested=False)
    if isinstance(event, NotStored):
        return _over(weighing), ()
    match weighing.phase:
        case "idle":
            return _idle(weighing, event, now)
        case "settling":
            return _settling(weighing, event, now, rules)
        case "reference":
            return _reference(weighing, event, now, rules)
        case "open":
            return _open(weighing, event, now, rules)


def _idle(weighing: Weighing, event: Event, now: float) -> Step:
    if isinstance(event, stable.Arrived):
        return replace(weighing, phase="settling", since=now, weights=0, pictures=0, tries=0), ()
    return weighing, ()


def _settling(weighing: Weighing, event: Event, now: float, rules: Rules) -> Step:
    match event:
        case stable.Settled():
            met = replace(weighing, phase="reference", since=now, weight_kg=event.weight_kg)
            return _request_picture(met)
        case stable.Left() if event.after_s < rules.passes_s:
            return replace(_over(weighing), passed=weighing.passed + 1), ()
        case stable.Left():
            return _give_up(weighing, "the animal left before its weight was stable")
        case stable.GaveUp():
            return _give_up(weighing, event.reason)
        case _:
            return weighing, ()


def _reference(weighing: Weighing, event: Event, now: float, rules: Rules) -> Step:
    match event:
        case PictureTaken():
            started = replace(weighing, phase="open", since=now, weights=1, pictures=1)
            kg = weighing.weight_kg
            return _if_complete(started, (Begin(kg, pictured=True), Weigh(kg)), rules)
        case NoPicture():
            if weighing.tries < rules.picture_tries:
                return _request_picture(weighing)
            return _give_up(weighing, f"no picture: {event.reason}")
        case stable.Settled():
            # The picture will be later, and so is the weight.
            return replace(weighing, weight_kg=event.weight_kg), ()
        case stable.Left() | stable.Crowded() | stable.GaveUp():
            return _give_up(weighing, _reason(event))
        case _:
            return weighing, ()


def _open(weighing: Weighing, event: Event, now: float, rules: Rules) -> Step:
    match event:
        case stable.Settled():
            kg = event.weight_kg
            weighed = replace(weighing, weights=weighing.weights + 1, weight_kg=kg)
            actions: tuple[Action, ...] = (Weigh(kg),)
            if not weighed.picture_requested and weighed.pictures < rules.pictures:
                weighed, request = _request_picture(weighed)
                actions += request
            return _if_complete(weighed, actions, rules)
        case PictureTaken():
            pictured = replace(weighing, pictures=weighing.pictures + 1)
            return _if_complete(pictured, (StorePicture(),), rules)
        case stable.Crowded():
            return _over(weighing), (Cancel(_reason(event)),)
        case stable.Left() | stable.GaveUp():
            # What was weighed before the cable fell silent counts.
            return _finished(weighing, ())
        case _ if now - weighing.since > rules.session_s:
            return _finished(weighing, ())
        case _:
            return weighing, ()


def _request_picture(weighing: Weighing) -> Step:
    return replace(weighing, picture_requested=True, tries=weighing.tries + 1), (TakePicture(),)


def _if_complete(weighing: Weighing, actions: tuple[Action, ...], rules: Rules) -> Step:
    if weighing.weights >= rules.weights and weighing.pictures >= rules.pictures:
        return _finished(weighing, actions)
    return weighing, actions


def _finished(weighing: Weighing, actions: tuple[Action, ...]) -> Step:
    return _over(weighing), (*actions, Finish(weighing.weight_kg))


def _give_up(weighing: Weighing, reason: str) -> Step:
    """Before a session began: it begins and ends at once, so that the edge knows of it."""
    if weighing.phase == "settling":
        return _over(weighing), (Begin(None, pictured=False), Cancel(reason))
    kg = weighing.weight_kg
    return _over(weighing), (Begin(kg, pictured=False), Weigh(kg), Cancel(reason))


def _over(weighing: Weighing) -> Weighing:
    return Weighing(passed=weighing.passed)


def _reason(event: stable.Left | stable.Crowded | stable.GaveUp) -> str:
    if isinstance(event, stable.Left):
        return "the animal left before there was a picture"
    if isinstance(event, stable.GaveUp):
        return event.reason
    to = "overload" if event.to_kg is None else f"{event.to_kg:g} kg"
    return (
        f"the weight rose from {event.from_kg:g} kg to {to}: a second animal, or one in two steps"
    )


def placement(
    session_id: UUID | None, steady_kg: float | None, *, with_weight: bool
) -> Literal["join", "weigh", "loose"]:
    """Where a scheduled picture belongs.

    join: to the open session. weigh: to a session of its own with this weight. loose: to none.
    """
    if session_id is not None:
        return "join"
    return "weigh" if with_weight and steady_kg is not None else "loose"


def next_slot(started_at: float, every_s: float, now: float) -> float:
    """The next slot of scheduled pictures after now, on a clock that never jumps (WV-06, WV-15).

    Missed slots are not made up: several pictures of one moment are of no use.
    """
    return started_at + (max(0.0, now - started_at) // every_s + 1) * every_s

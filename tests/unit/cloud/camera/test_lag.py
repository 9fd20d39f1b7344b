"""A gateway knows when it may be behind its cameras: started, hindered, frozen."""

from farmiq.cloud.camera.gateway.lag import FROZEN_S, Lag


class World:
    def __init__(self) -> None:
        self.now, self.hindered, self.waiting, self.taken = 100.0, False, 0, 0
        self.lag = Lag(
            hindered=lambda: self.hindered,
            waiting=lambda: self.waiting,
            taken=lambda: self.taken,
            lasts_s=5.0,
            clock=lambda: self.now,
        )

    def runs(self, seconds: int) -> bool:
        for _ in range(seconds):
            self.now += 1.0
            self.lag.look()
        return self.lag.is_behind()


def test_after_a_start_until_what_waited_is_taken_though_more_waits() -> None:
    world = World()
    assert world.runs(4)
    world.waiting = 3
    assert world.runs(10)
    world.waiting, world.taken = 9, 2
    assert world.runs(1)
    world.taken = 3
    assert not world.runs(1)


def test_what_waited_and_proved_to_be_a_copy_is_not_waited_for() -> None:
    world = World()
    world.waiting = 3
    assert world.runs(6)
    world.waiting = 0
    assert not world.runs(1)


def test_frozen_it_knows_at_once_and_for_a_while() -> None:
    world = World()
    assert not world.runs(5)
    world.now += FROZEN_S + 1
    assert world.lag.is_behind()
    assert world.runs(4)
    assert not world.runs(2)


def test_while_nothing_can_be_taken() -> None:
    world = World()
    assert not world.runs(5)
    world.hindered = True
    assert world.runs(20)
    world.hindered = False
    assert world.runs(4)
    assert not world.runs(1)

"""Recognising processes: a pid alone is never enough."""

import os
import signal

import pytest

from farmiq.lab.stack import processes
from farmiq.lab.stack.processes import Process

LINE = "4242 (a (strange) name) S 17 4242 4242 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 {ticks} 1 1"


def test_a_stat_line_is_read_behind_a_command_with_spaces_and_parentheses() -> None:
    stat = processes.parse_stat(LINE.format(ticks=987))

    assert stat == processes.Stat(state="S", parent=17, threads=1, started_ticks=987)


def test_a_recycled_pid_is_another_process() -> None:
    before = processes.recognise(4242, LINE.format(ticks=987), "boot-1")
    after = processes.recognise(4242, LINE.format(ticks=988), "boot-1")

    assert before is not None
    assert before != after


def test_the_same_ticks_after_a_reboot_are_another_process() -> None:
    before = processes.recognise(4242, LINE.format(ticks=987), "boot-1")

    assert before != processes.recognise(4242, LINE.format(ticks=987), "boot-2")


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_process_that_has_ended_is_none(state: str) -> None:
    assert processes.recognise(4242, LINE.replace(" S ", f" {state} ").format(ticks=1), "b") is None


def test_a_zombie_with_threads_still_running_has_not_ended() -> None:
    line = LINE.replace(" S ", " Z ").replace(" 20 0 1 0 ", " 20 0 3 0 ")

    assert processes.recognise(4242, line.format(ticks=1), "b") is not None


def test_this_program_recognises_itself_and_no_impostor() -> None:
    me = processes.myself()

    assert processes.alive(me)
    assert not processes.alive(Process(pid=os.getpid(), started="another boot:1"))


def test_a_signal_does_not_reach_a_stranger_with_the_same_pid() -> None:
    stranger = Process(pid=os.getpid(), started="another boot:1")

    assert not processes.send(stranger, signal.SIGKILL)

"""Services of one process, seen from outside: one failure ends all, a signal ends all in order."""

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import asyncio, sys
from farmiq.plumbing import log
from farmiq.plumbing.runtime import run

log.configure("info")

async def steady(name):
    try:
        print("up", name, flush=True)
        await asyncio.Event().wait()
    finally:
        print("down", name, flush=True)

async def failing():
    await asyncio.sleep(0)
    raise ValueError("broken")

async def ending():
    await asyncio.sleep(0)

async def deaf():
    # Loses the first cancellation, as libraries sometimes do.
    try:
        await steady("deaf")
    except asyncio.CancelledError:
        await asyncio.Event().wait()

if sys.argv[1] == "deaf":
    services = {"deaf": deaf()}
else:
    services = {"a": steady("a"), "b": steady("b")}
if sys.argv[1] == "failing":
    services["bad"] = failing()
if sys.argv[1] == "ending":
    services["bad"] = ending()
sys.exit(asyncio.run(run.together(services)))
"""


def start(what: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, what],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def logged(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("what", "why"), [("failing", "ValueError('broken')"), ("ending", "bad ended by itself")]
)
def test_service_that_ends_by_itself_ends_all_with_exit_code_1(what: str, why: str) -> None:
    with start(what) as process:
        out, err = process.communicate(timeout=120)

    assert process.returncode == 1
    assert out.split("\n")[:4] == ["up a", "up b", "down a", "down b"]
    (line,) = logged(err)
    assert line["event"] == "run.failed"
    assert why in line["error"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_in_order_with_0(number: signal.Signals) -> None:
    with start("steady") as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in "ab"] == ["up a\n", "up b\n"]
        process.send_signal(number)
        out, err = process.communicate(timeout=120)

    assert process.returncode == 0
    assert out == "down a\ndown b\n"
    assert [line["event"] for line in logged(err)] == ["run.stopped"]


def test_a_cancellation_that_got_lost_is_repeated() -> None:
    with start("deaf") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up deaf\n"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)

    assert process.returncode == 0
    assert [line["event"] for line in logged(err)] == ["run.stopped"]

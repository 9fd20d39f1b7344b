"""Checks of what a process stands on: all at once, with one deadline, and not too often."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping

# A check returns what is wrong in a sentence, or None.
Check = Callable[[], Awaitable[str | None] | str | None]

CHECK_WITHIN_S = 3.0
# What an engine answered to a check counts for so long.
ANSWER_HOLDS_S = 1.0


class CheckRuns:
    """The checks that run now, or have ended a moment ago."""

    def __init__(self) -> None:
        self._runs: dict[Check, asyncio.Task[str | None]] = {}

    async def answers(self, checks: Mapping[str, Check]) -> dict[str, str]:
        """All at once and with one deadline: none adds to the others, nor to the time it takes.

        What is late is cancelled but not waited for: to give up a question to a database that is
        frozen takes longer than to ask it. Until it has ended it is not asked again, and what it
        answered holds for a moment: whoever asks often does not make us ask the engines as often.
        """
        answers = {name: self._start(check) for name, check in checks.items()}
        tasks = [answer for answer in answers.values() if isinstance(answer, asyncio.Task)]
        if tasks:
            await asyncio.wait(tasks, timeout=CHECK_WITHIN_S)
        for task in tasks:
            # Cancelled twice, it would not even get to tell the database.
            if not task.done() and not task.cancelling():
                task.cancel()
        texts = {
            name: _result(answer) if isinstance(answer, asyncio.Task) else answer
            for name, answer in answers.items()
        }
        return {name: text for name, text in texts.items() if text}

    def _start(self, check: Check) -> "asyncio.Task[str | None] | str | None":
        """The question that is open or was answered just now, a new one, or an answer at once."""
        if check in self._runs:
            return self._runs[check]
        try:
            answer = check()
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs into the answer
            return _broken(error)
        if not inspect.isawaitable(answer):
            return answer
        task = self._runs[check] = asyncio.create_task(_answer(answer))
        task.add_done_callback(lambda _: self._drop_later(check))
        return task

    def _drop_later(self, check: Check) -> None:
        asyncio.get_running_loop().call_later(ANSWER_HOLDS_S, self._runs.pop, check, None)


async def _answer(check: Awaitable[str | None]) -> str | None:
    """A check that breaks is itself what is wrong; /readyz must name it, not fail."""
    try:
        return await check
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs into the answer
        return _broken(error)


def _broken(error: Exception) -> str:
    return f"the check failed: {error!r}"


def _result(task: "asyncio.Task[str | None]") -> str | None:
    if not task.done() or task.cancelled():
        return f"the check did not end within {CHECK_WITHIN_S:g} s"
    return task.result()

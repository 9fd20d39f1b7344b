"""Commands: what the edge tells the station to do, done once, answered by an event (D-53)."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec

from farmiq.device import store
from farmiq.device.buffer import Buffer
from farmiq.device.store import Tx
from farmiq.device.writing import Writer
from farmiq.messages import device, topics
from farmiq.plumbing import log

NAME = "iot-weighvision-agent"
MOST_REMEMBERED = 1000
RESTORED_HOURS = 24.0
MAX_RESTORED_HOURS = 876_000.0

Answer = tuple[Literal["applied", "failed"], str]


@dataclass
class Commands:
    """`done` is called after each: there may be something to send."""

    buffer: Buffer
    writer: Writer
    done: Callable[[], None]

    async def obey(self, where: topics.CommandTopic, said: msgspec.Raw) -> None:
        """Effect, memory and answer are one transaction, so a repeat finds the answer."""
        try:
            command = msgspec.json.decode(said, type=device.DeviceCommand)
        except (msgspec.MsgspecError, ValueError) as error:
            log.get(NAME).warning("command.odd", reason=str(error)[:200])
            return
        now = self.buffer.now()

        def work(tx: Tx) -> Answer | None:
            answer = self._again(tx, command.command_id)
            if answer is None:
                if isinstance(command.expires_at, datetime) and command.expires_at < now:
                    return None
                answer = self._do(tx, where.command, command.args)
                text = msgspec.json.encode(answer).decode()
                store.remember_command(tx, command.command_id, text, most=MOST_REMEMBERED)
            self._answer(tx, command.command_id, answer, now)
            return answer

        outcome = await self.buffer.do(work)
        log.get(NAME).info(
            "command.obeyed", name=where.command, status=outcome[0] if outcome else "expired"
        )
        self.done()

    def _again(self, tx: Tx, command_id: str) -> Answer | None:
        given = store.answer_given(tx, command_id)
        return None if given is None else msgspec.json.decode(given, type=Answer)

    def _do(self, tx: Tx, name: str, args: dict[str, Any]) -> Answer:
        if name == "ping":
            return "applied", "pong"
        if name == "edge.restored":
            return self._restored(tx, args)
        if name == "redrive":
            return "applied", redriven(tx)
        return "failed", f"this station does not know {name!r}: ping, edge.restored, redrive"

    def _restored(self, tx: Tx, args: dict[str, Any]) -> Answer:
        """The edge lost what it had stored: what we still have of it goes out again (C-43)."""
        hours = args.get("hours", RESTORED_HOURS)
        if isinstance(hours, bool) or not isinstance(hours, (int, float)) or not hours > 0:
            return "failed", "hours is not a number above 0"
        hours = min(hours, MAX_RESTORED_HOURS)
        again = store.send_stored_again(tx, since_s=self.buffer.now_s() - hours * 3600)
        return "applied", f"{again} stored events are sent again"

    def _answer(self, tx: Tx, command_id: str, answer: Answer, now: datetime) -> None:
        self.writer.emit(
            tx,
            device.DeviceCommandAnswered(
                command_id=command_id, outcome=answer[0], message=answer[1]
            ),
            event_type=device.COMMAND_ANSWERED,
            at=now,
            now_s=self.buffer.now_s(),
        )


def redriven(tx: Tx) -> str:
    """What failed or was refused is tried again, from no attempts."""
    events, images = store.redrive_events(tx), store.redrive_images(tx)
    store.clear_problems(tx)
    return f"{events} events and {images} pictures are tried again"

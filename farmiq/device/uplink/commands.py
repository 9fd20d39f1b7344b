"""Commands of the edge: executed once, answered by an event (D-53)."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec

from farmiq.device.buffer import store
from farmiq.device.buffer.database import Buffer
from farmiq.device.buffer.store import Tx
from farmiq.device.buffer.writer import Writer
from farmiq.messages import device, topics
from farmiq.plumbing import log

NAME = "iot-weighvision-agent"
MAX_REMEMBERED = 1000
RESTORED_HOURS = 24.0
MAX_RESTORED_HOURS = 876_000.0

Answer = tuple[Literal["applied", "failed"], str]


@dataclass
class Commands:
    """`on_commit` is called after each: there may be something to send."""

    buffer: Buffer
    writer: Writer
    on_commit: Callable[[], None]

    async def handle(self, topic: topics.CommandTopic, payload: msgspec.Raw) -> None:
        """Effect, memory and answer are one transaction, so a repeat finds the answer."""
        try:
            command = msgspec.json.decode(payload, type=device.DeviceCommand)
        except (msgspec.MsgspecError, ValueError) as error:
            log.get(NAME).warning("command.odd", reason=str(error)[:200])
            return
        now = self.buffer.now()

        def work(tx: Tx) -> Answer | None:
            known = store.command_answer(tx, command.command_id)
            if known is not None:
                answer: Answer = msgspec.json.decode(known, type=Answer)
            elif isinstance(command.expires_at, datetime) and command.expires_at < now:
                return None
            else:
                answer = self._execute(tx, topic.command, command.args)
                text = msgspec.json.encode(answer).decode()
                store.add_command(tx, command.command_id, text, limit=MAX_REMEMBERED)
            outcome, message = answer
            self.writer.emit(
                tx,
                device.DeviceCommandAnswered(
                    command_id=command.command_id, outcome=outcome, message=message
                ),
                at=now,
            )
            return answer

        answer = await self.buffer.do(work)
        log.get(NAME).info(
            "command.obeyed", name=topic.command, status=answer[0] if answer else "expired"
        )
        self.on_commit()

    def _execute(self, tx: Tx, name: str, args: dict[str, Any]) -> Answer:
        match name:
            case "ping":
                return "applied", "pong"
            case "edge.restored":
                return self._send_stored_again(tx, args.get("hours", RESTORED_HOURS))
            case "redrive":
                return "applied", redrive(tx)
        return "failed", f"this station does not know {name!r}: ping, edge.restored, redrive"

    def _send_stored_again(self, tx: Tx, hours: Any) -> Answer:
        """The edge lost what it had stored: what we still have of it goes out again (C-43)."""
        if isinstance(hours, bool) or not isinstance(hours, (int, float)) or not hours > 0:
            return "failed", "hours is not a number above 0"
        since_s = self.buffer.now_s() - min(hours, MAX_RESTORED_HOURS) * 3600
        return (
            "applied",
            f"{store.send_stored_again(tx, since_s=since_s)} stored events are sent again",
        )


def redrive(tx: Tx) -> str:
    """Try again what failed or was rejected; returns what was done in words."""
    events, images = store.redrive(tx)
    return f"{events} events and {images} pictures are tried again"

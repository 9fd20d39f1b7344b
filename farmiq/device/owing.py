"""What a full disk did not take of a session that is open: tried again until it does.

capture --> [owing] --> notebook;  upkeep pays

A weight and an end happened when they happened: they are written later, with the time they had. In
the order of the session, so that no weight comes behind its end. Only the memory holds them until
then: who pulls the plug meanwhile finds the session without its end (notebook.cancel_left_open).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

from farmiq.device.refusals import Full, Refused
from farmiq.plumbing import log

Write = Callable[[], Awaitable[None]]


@dataclass
class Owing:
    """New sessions need room, so there are never more of them here than scales."""

    _owed: dict[UUID, list[Write]] = field(default_factory=dict)

    async def keep(self, session_id: UUID, write: Write) -> None:
        """Now if it goes; else later, behind what is owed already of this session."""
        if session_id in self._owed:
            self._owed[session_id].append(write)
            return
        try:
            await write()
        except Full:
            self._owed[session_id] = [write]
            log.get("iot-weighvision-agent").warning("session.owed", session_id=str(session_id))
        except Refused:
            return  # it cannot be an event; the notebook has said why

    async def pay(self) -> int:
        """Write what the disk takes by now; how many sessions are whole by it."""
        paid = 0
        for session_id, writes in [*self._owed.items()]:
            if not await _written(writes):
                break
            del self._owed[session_id]
            paid += 1
            log.get("iot-weighvision-agent").info("session.paid", session_id=str(session_id))
        return paid


async def _written(writes: list[Write]) -> bool:
    """False if the disk is still full. Others may append while we wait."""
    while writes:
        try:
            await writes[0]()
        except Full:
            return False
        except Refused:
            pass  # as above
        del writes[0]
    return True

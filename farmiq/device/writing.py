"""What is written into the buffer, in the caller's transaction: events, drops, ends of sessions.

capture --> sessions, weights, images --> [writing] --> events, ledger
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from farmiq import crash
from farmiq.device import dropping, minting, store
from farmiq.device.minting import Identity, Payload
from farmiq.device.store import Tx
from farmiq.messages import device, weighvision
from farmiq.plumbing import ids

_LATEST = math.inf
_PORTION = 500


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the buffer; read once, when the agent starts."""

    events: int
    age_s: float
    stored_s: float
    patience_s: float
    picture_bytes: int
    disk_reserve_bytes: int
    most_weight_kg: float


@dataclass(frozen=True, slots=True)
class Writer:
    """A run of the agent, as the events that it makes name it."""

    who: Identity
    boot_id: str
    limits: Limits

    def emit(
        self,
        tx: Tx,
        payload: Payload,
        *,
        event_type: str,
        at: datetime,
        now_s: float,
        trace_id: str | None = None,
        session_id: str | None = None,
    ) -> int:
        """Make an event and keep it; returns its seq. What is full gives way first."""
        self.give_way(tx, need=1)
        event_id, seq = ids.new(), store.next_seq(tx)
        session = store.session(tx, session_id) if session_id else None
        minted = minting.mint(
            self.who,
            payload,
            event_type=event_type,
            event_id=event_id,
            trace_id=trace_id or str(event_id),
            session_id=UUID(session_id) if session_id else None,
            at=at,
            seq=seq,
            boot_id=self.boot_id,
        )
        order_us = minting.order_us(at, previous_us=session["order_us"] if session else None)
        if session is not None:
            store.set_session(tx, session["session_id"], order_us=order_us)
        store.add_event(
            tx,
            {
                "seq": seq,
                "event_id": str(event_id),
                "event_type": event_type,
                "session_id": session_id,
                "rank": dropping.rank(event_type, in_session=session_id is not None),
                "order_us": order_us,
                "topic": minted.topic,
                "raw": minted.raw,
                "kept_s": now_s,
            },
        )
        return seq

    # --- sessions

    def settle_session(self, tx: Tx, session_id: str, *, now_s: float) -> bool:
        """Make the events that may be made by now; False if pictures are still waited for."""
        session = store.session(tx, session_id)
        if session is None or session["settled"]:
            return True
        waited_for = store.awaited_image(
            tx, session_id, boot_id=self.boot_id, kept_after_s=now_s - self.limits.patience_s
        )
        if waited_for:
            return False
        for weight_kg, weighed_at in store.take_weights(tx, session_id):
            self._emit_weight(tx, session_id, weight_kg, weighed_at, now_s=now_s)
        if session["state"] == "open":
            return False
        self._emit_end(tx, session_id, now_s=now_s)
        return True

    def _emit_weight(
        self, tx: Tx, session_id: str, weight_kg: float, weighed_at: str, *, now_s: float
    ) -> None:
        session = store.session(tx, session_id)
        assert session is not None  # noqa: S101 - of this transaction
        first, last = session["first_weight_seq"], session["last_weight_seq"]
        if last is not None and last != first:
            store.set_rank(tx, last, dropping.MIDDLE_WEIGHT)
        seq = self.emit(
            tx,
            weighvision.WeightRecorded(weight_kg=weight_kg),
            event_type=weighvision.WEIGHT_RECORDED,
            at=datetime.fromisoformat(weighed_at),
            now_s=now_s,
            trace_id=session["trace_id"],
            session_id=session_id,
        )
        store.set_session(
            tx, session_id, first_weight_seq=seq if first is None else first, last_weight_seq=seq
        )

    def _emit_end(self, tx: Tx, session_id: str, *, now_s: float) -> None:
        session = store.session(tx, session_id)
        assert session is not None  # noqa: S101 - of this transaction
        payload: Payload
        if session["state"] == "closed":
            payload = weighvision.SessionFinalizedByDevice(
                image_count=session["images"], final_weight_kg=session["final_weight_kg"]
            )
            event_type = weighvision.SESSION_FINALIZED
        else:
            payload = weighvision.SessionCancelledByDevice(reason=session["reason"])
            event_type = weighvision.SESSION_CANCELLED
        self.emit(
            tx,
            payload,
            event_type=event_type,
            at=datetime.fromisoformat(session["ended_at"]),
            now_s=now_s,
            trace_id=session["trace_id"],
            session_id=session_id,
        )
        store.set_session(tx, session_id, settled=1, ended_s=now_s)

    # --- pictures

    def uploaded(self, tx: Tx, image: store.Image, *, now_s: float) -> None:
        """Its event is made when its bytes are in the store, never before (WV-14)."""
        if store.image(tx, image.image_id) is None:
            return
        captured_at = datetime.fromisoformat(image.captured_at)
        self.emit(
            tx,
            weighvision.ImageCaptured(
                media_id=UUID(image.image_id),
                content_type=image.content_type,  # type: ignore[arg-type] # validated when kept
                size_bytes=image.size_bytes,
                sha256=image.sha256,
            ),
            event_type=weighvision.IMAGE_CAPTURED,
            at=captured_at,
            now_s=now_s,
            trace_id=image.trace_id,
            session_id=image.session_id,
        )
        store.remove_image(tx, image.image_id)
        if image.session_id is not None:
            self.settle_session(tx, image.session_id, now_s=now_s)

    # --- letting go

    def give_way(self, tx: Tx, *, need: int) -> dropping.Room:
        """Delete what C-31 allows until `need` more events fit; the rest is the room's `short`."""
        room = self.room(tx, need=need)
        if room.stored:
            store.forget_settled(tx, "stored", before_s=_LATEST, most=room.stored)
        if room.refused:
            store.forget_settled(tx, "refused", before_s=_LATEST, most=room.refused)
        if room.dropped:
            store.note_drops(tx, store.drop_untried(tx, most=room.dropped), reason="overflow")
            crash.here("agent.in_dropping")
        return room

    def room(self, tx: Tx, *, need: int) -> dropping.Room:
        counts = store.tally(tx)
        load = dropping.Load(
            events=sum(counts[state] for state in store.EVENT_STATES),
            limit=self.limits.events,
            stored=counts["stored"],
            refused=counts["refused"],
            droppable=0,
        )
        room = dropping.make_room(load, need=need)
        if room.short:
            load = dropping.Load(
                **{
                    **{name: getattr(load, name) for name in dropping.Load.__slots__},
                    "droppable": store.droppable(tx, most=room.short),
                }
            )
            room = dropping.make_room(load, need=need)
        return room

    def drop_loose_picture(self, tx: Tx) -> str | None:
        """The picture that goes when pictures take too much of the disk; it gets a line and a seq.

        It never was an event, so its number is drawn now: a gap that the ledger explains.
        """
        found = store.image_to_drop(tx)
        if found is None:
            return None
        image_id, session_id, _ = found
        store.remove_image(tx, image_id)
        store.note_drops(tx, [(store.next_seq(tx), dropping.LOOSE_PICTURE)], reason="picture_bytes")
        if session_id is not None:
            store.set_session(tx, session_id, problem="a picture that had failed was dropped")
        return image_id

    def tell_drops(self, tx: Tx, *, now: datetime, now_s: float) -> int:
        """Make the events of the loss ledger (C-83); done when there is somebody to tell."""
        lines = store.untold_drops(tx)
        for line in lines:
            # First, because making the event may itself drop one: that begins a new line.
            store.told(tx, line["id"])
            self.emit(
                tx,
                device.DeviceBufferDropped(
                    event_class=line["class"],
                    count=line["count"],
                    first_seq=line["first_seq"],
                    last_seq=line["last_seq"],
                    reason=line["reason"],
                ),
                event_type=device.BUFFER_DROPPED,
                at=now.astimezone(UTC),
                now_s=now_s,
            )
        return len(lines)

    def compact(self, tx: Tx, *, now_s: float) -> dict[str, int]:
        """A portion of what is over: stored for a day, refused for a week, expired, sessions."""
        limits = self.limits
        stored = store.forget_settled(tx, "stored", before_s=now_s - limits.stored_s, most=_PORTION)
        crash.here("agent.in_compact")
        week_ago_s = now_s - 7 * max(limits.stored_s, 86_400)
        refused = store.forget_settled(tx, "refused", before_s=week_ago_s, most=_PORTION)
        aged = store.drop_aged(tx, kept_before_s=now_s - limits.age_s, most=_PORTION)
        store.note_drops(tx, aged, reason="no receipt in time")
        sessions = store.forget_sessions(
            tx,
            ended_before_s=now_s - limits.stored_s,
            problem_before_s=week_ago_s,
            most=_PORTION,
        )
        return {"stored": stored, "refused": refused, "aged": len(aged), "sessions": sessions}

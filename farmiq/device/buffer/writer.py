"""Write into the buffer in the caller's transaction: events, ends of sessions, drops.

capture --> sessions, weights, images --> [writer] --> events, ledger
"""

import math
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from farmiq import crash
from farmiq.device.buffer import rules, store
from farmiq.device.buffer.database import Buffer
from farmiq.device.buffer.rules import Identity, Room
from farmiq.device.buffer.store import Tx
from farmiq.messages import catalogue, device, weighvision
from farmiq.plumbing import ids

_PORTION = 500
_EVENT_TYPES = {kind.payload: name for name, kind in catalogue.MQTT.items()}


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the buffer; read once, when the agent starts."""

    events: int
    age_s: float
    stored_s: float
    patience_s: float
    picture_bytes: int
    disk_reserve_bytes: int
    max_weight_kg: float


@dataclass(frozen=True, slots=True)
class Writer:
    identity: Identity
    buffer: Buffer
    limits: Limits

    def emit(
        self,
        tx: Tx,
        payload: msgspec.Struct,
        *,
        at: datetime,
        trace_id: str | None = None,
        session_id: str | None = None,
    ) -> int:
        """Make an event and store it; returns its seq. A full buffer makes room first."""
        self.make_room(tx, need=1)
        event_type = _EVENT_TYPES[type(payload)]
        event_id, seq = ids.new(), store.next_seq(tx)
        session = store.session(tx, session_id) if session_id else None
        raw = rules.encode(
            self.identity,
            payload,
            event_type=event_type,
            event_id=event_id,
            trace_id=trace_id or str(event_id),
            at=at,
            seq=seq,
            boot_id=self.buffer.boot_id,
        )
        order_us = rules.order_us(at, previous_us=session["order_us"] if session else None)
        if session is not None:
            store.set_session(tx, session["session_id"], order_us=order_us)
        store.insert(
            tx,
            "events",
            seq=seq,
            event_id=str(event_id),
            event_type=event_type,
            session_id=session_id,
            rank=rules.rank(event_type, in_session=session_id is not None),
            order_us=order_us,
            topic=rules.topic(self.identity, event_type, UUID(session_id) if session_id else None),
            raw=raw,
            state="waiting",
            kept_s=self.buffer.now_s(),
        )
        return seq

    # --- sessions

    def settle_session(self, tx: Tx, session_id: str) -> bool:
        """Make the events that may be made by now; False while pictures are awaited."""
        session = store.session(tx, session_id)
        if session is None or session["settled"]:
            return True
        now_s = self.buffer.now_s()
        patient_since_s = now_s - self.limits.patience_s
        if store.is_image_awaited(
            tx, session_id, boot_id=self.buffer.boot_id, stored_after_s=patient_since_s
        ):
            return False
        first, last = session["first_weight_seq"], session["last_weight_seq"]
        for weight_kg, weighed_at in store.take_weights(tx, session_id):
            if last is not None and last != first:
                store.set_rank(tx, last, rules.MIDDLE_WEIGHT)
            last = self.emit(
                tx,
                weighvision.WeightRecorded(weight_kg=weight_kg),
                at=datetime.fromisoformat(weighed_at),
                trace_id=session["trace_id"],
                session_id=session_id,
            )
            first = last if first is None else first
            store.set_session(tx, session_id, first_weight_seq=first, last_weight_seq=last)
        if session["state"] == "open":
            return False
        payload: msgspec.Struct
        if session["state"] == "closed":
            payload = weighvision.SessionFinalizedByDevice(
                image_count=session["images"], final_weight_kg=session["final_weight_kg"]
            )
        else:
            payload = weighvision.SessionCancelledByDevice(reason=session["reason"])
        self.emit(
            tx,
            payload,
            at=datetime.fromisoformat(session["ended_at"]),
            trace_id=session["trace_id"],
            session_id=session_id,
        )
        store.set_session(tx, session_id, settled=1, ended_s=now_s)
        return True

    # --- pictures

    def uploaded(self, tx: Tx, image: store.Image) -> None:
        """Make the picture's event when its bytes are in the store, never before (WV-14)."""
        if not store.has_image(tx, image.image_id):
            return
        is_of_empty_scale = store.is_of_empty_scale(tx, image.image_id)
        self.emit(
            tx,
            weighvision.ImageCaptured(
                media_id=UUID(image.image_id),
                content_type=image.content_type,  # type: ignore[arg-type] # checked when recorded
                size_bytes=image.size_bytes,
                sha256=image.sha256,
                purpose=weighvision.EMPTY_SCALE if is_of_empty_scale else msgspec.UNSET,
            ),
            at=datetime.fromisoformat(image.captured_at),
            trace_id=image.trace_id,
            session_id=image.session_id,
        )
        store.remove_image(tx, image.image_id)
        if image.session_id is not None:
            self.settle_session(tx, image.session_id)

    # --- deletion

    def make_room(self, tx: Tx, *, need: int) -> None:
        """Delete what C-31 allows until `need` more events fit, as far as that goes."""
        room = self.room(tx, need=need)
        if room.stored:
            store.purge_settled(tx, "stored", before_s=math.inf, limit=room.stored)
        if room.rejected:
            store.purge_settled(tx, "refused", before_s=math.inf, limit=room.rejected)
        if room.dropped:
            store.note_drops(tx, store.drop_untried(tx, limit=room.dropped), reason="overflow")
            crash.here("agent.in_dropping")

    def room(self, tx: Tx, *, need: int) -> Room:
        counts = store.tally(tx)
        missing = sum(counts[state] for state in store.EVENT_STATES) + need - self.limits.events
        settled = {"stored": counts["stored"], "rejected": counts["refused"]}
        room = rules.make_room(missing, **settled, droppable=0)
        if room.short:
            droppable = store.count_droppable(tx, limit=room.short)
            room = rules.make_room(missing, **settled, droppable=droppable)
        return room

    def drop_loose_picture(self, tx: Tx) -> str | None:
        """Drop a picture when pictures use too much disk; returns its id, None if none may go.

        It never was an event, so its seq is drawn now: a gap that the ledger explains.
        """
        image = store.image_to_drop(tx)
        if image is None:
            return None
        image_id, session_id = image
        store.remove_image(tx, image_id)
        store.note_drops(tx, [(store.next_seq(tx), rules.LOOSE_PICTURE)], reason="picture_bytes")
        if session_id is not None:
            store.set_session(tx, session_id, problem="a picture that had failed was dropped")
        return image_id

    def report_drops(self, tx: Tx) -> int:
        """Make the events of the loss ledger (C-83); called while the broker is connected."""
        lines = store.unreported_drops(tx)
        for line in lines:
            # First, because making the event may itself drop one: that begins a new line.
            store.mark_reported(tx, line["id"])
            self.emit(
                tx,
                device.DeviceBufferDropped(
                    event_class=line["class"],
                    count=line["count"],
                    first_seq=line["first_seq"],
                    last_seq=line["last_seq"],
                    reason=line["reason"],
                ),
                at=self.buffer.now(),
            )
        return len(lines)

    def purge(self, tx: Tx) -> dict[str, int]:
        """Delete a portion: stored for a day, rejected for a week, expired, ended sessions."""
        limits, now_s = self.limits, self.buffer.now_s()
        stored = store.purge_settled(tx, "stored", before_s=now_s - limits.stored_s, limit=_PORTION)
        crash.here("agent.in_compact")
        week_ago_s = now_s - 7 * max(limits.stored_s, 86_400)
        rejected = store.purge_settled(tx, "refused", before_s=week_ago_s, limit=_PORTION)
        expired = store.drop_expired(tx, stored_before_s=now_s - limits.age_s, limit=_PORTION)
        store.note_drops(tx, expired, reason="no receipt in time")
        sessions = store.purge_sessions(
            tx,
            ended_before_s=now_s - limits.stored_s,
            problem_before_s=week_ago_s,
            limit=_PORTION,
        )
        counts = {"stored": stored, "rejected": rejected, "sessions": sessions}
        return {**counts, "expired": len(expired)}

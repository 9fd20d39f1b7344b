"""Crash points: places where a process can be made to die, for tests that prove nothing is lost.

`FARMIQ_CRASH_AT=ingress.after_commit` kills the process with SIGKILL the first time it comes by;
`FARMIQ_CRASH_AT=ingress.after_commit:3` the third time. Unset, a point costs a comparison.
"""

import os
import signal

# Every point there is: what has happened when it is reached, and what has not.
POINTS = {
    "agent.picture_written": "a picture's bytes are on the disk under a name that nobody knows",
    "agent.picture_renamed": "the picture's file is whole; the buffer does not know of it",
    "agent.before_open_commit": "a session, its event and its picture are written, not committed",
    "agent.after_open_commit": "the session is kept; the capture does not know it yet",
    "agent.before_weigh_commit": "a weight is written, not committed",
    "agent.after_weigh_commit": "the weight is kept; the capture does not know it yet",
    "agent.before_photograph_commit": "the picture is a file and a row, not committed",
    "agent.after_photograph_commit": "the picture is kept; the capture does not know it yet",
    "agent.before_end_commit": "the session's last events are made, not committed",
    "agent.after_end_commit": "the session has ended; the capture does not know it yet",
    "agent.in_dropping": "events gave way and stand in the ledger, not committed",
    "agent.in_compact": "stored events are deleted, not committed",
    "agent.after_take": "events are marked as being sent; no byte has left",
    "agent.after_send": "an event is on its way; nobody has acknowledged it",
    "agent.after_puback": "the broker has the event; that is not written down",
    "agent.before_receipt_commit": "events are marked as stored, not committed",
    "agent.after_receipt_commit": "stored and committed; the broker has no acknowledgement of it",
    "agent.after_presign": "there is an address for a picture; nothing was uploaded",
    "agent.after_put": "the picture is in the store; the buffer does not know that",
    "agent.before_uploaded_commit": "the picture's event is made, not committed",
    "agent.after_uploaded_commit": "the picture's event is kept; its file is still there",
    "ingress.before_commit": "everything written, nothing committed, nothing acknowledged",
    "ingress.after_commit": "committed; the broker has no PUBACK, the device no receipt",
    "ingress.before_receipt": "stored and done with the broker; the device has no receipt",
    "telemetry.in_partition_upkeep": "a month's partition is made and filled, not committed",
    "quarantine.in_redrive": "effects written and rows taken out, nothing committed",
    "alert.before_event": "an alert is open or closed; its event for the cloud is not written",
    "alert.after_event": "an alert and its event are written, not committed",
    "sync.after_claim": "rows are leased; nothing was sent",
    "sync.after_sending": "rows are marked as being on their way; nothing was sent",
    "sync.after_renewal": "a batch takes long, its leases were renewed; no answer yet",
    "sync.before_reap_commit": "what a dead forwarder held is freed, not committed",
    "sync.after_archive": "undelivered rows are in a file; they are still in the outbox too",
    "sync.after_answer": "the cloud has said yes; the rows are still leased",
    "sync.before_settle_commit": "rows are marked as delivered, not committed",
    "context.before_commit": "the cloud's master data is stored at the edge, not committed",
    "context.after_commit": "the cloud's master data is stored; nothing has used it yet",
    "edge_posting.before_commit": "a posting is written and in the outbox, not committed",
    "feed.in_derivation": "intakes, events and state of a silo are written, not committed",
    "alert.before_commit": "rules are evaluated, alerts and mails written, not committed",
    "alert.after_commit": "alerts are committed; no siren sounds and no mail was sent",
    "alert.before_siren": "a siren is noted as on; it was not switched on",
    "alert.after_siren": "a siren was switched; that is not noted",
    "alert.after_mail": "the mail server has a mail; that is not committed",
    "reports.after_draw": "the PDF of a report is drawn; nothing is stored",
    "reports.before_commit": "a report and its mail are written, not committed",
    "reports.after_commit": "a report and its mail are committed; nothing was sent",
    "media.after_look": "an image's bytes were looked at; nothing is written",
    "media.before_stored_commit": "an image is marked as stored and queued, not committed",
    "media.after_stored_commit": "committed as stored; its device knows nothing",
    "media.after_copy_aside": "wrong bytes are copied aside; nothing is written",
    "media.after_aside_commit": "set aside and committed; the wrong bytes lie under the key still",
    "media.after_put": "an image's bytes are in the cloud's bucket; nobody has looked at them",
    "media.before_synced_commit": "the cloud has confirmed an image; noted, not committed",
    "media.before_confirm_commit": "the cloud has looked at an image's bytes; not committed",
    "media.after_confirm_commit": "the cloud has an image, committed; the edge has no answer",
    "media.after_delete": "an object over its time is deleted; its row is there still",
    "vision.after_claim": "a job of inference is claimed; nothing was looked at",
    "vision.after_measure": "images of a session are measured; nothing is written",
    "vision.before_commit": "a result and its event are written, not committed",
    "vision.after_commit": "a result and its event are committed; nothing else was done",
    "vision.after_train": "a model is on disk and in the bucket; no row names it",
    "vision.after_model_objects": "a retired model is gone from the bucket; its row is there",
    "ingestion.after_note": "ids are noted, not committed; nothing is on the bus",
    "ingestion.after_publish": "the bus has confirmed; the ids are not committed",
    "ingestion.after_commit": "committed and on the bus; the edge has no answer",
    "posting.before_commit": "what a person posted is written, not committed",
    "posting.after_publish": "a posted event is on the bus; that is not committed",
    "sink.before_commit": "stored, not committed; not acknowledged to the bus",
    "sink.after_commit": "committed; not acknowledged to the bus",
    "alerts.before_readings_commit": "new readings are evaluated, not committed",
    "alerts.after_readings_commit": "new readings are evaluated and committed, and no longer wait",
    "alerts.before_recheck_commit": "a series is evaluated again, not committed",
    "alerts.before_page_commit": "people are to be called, not committed",
    "alerts.after_page_commit": "the steps to tell people are committed; nothing else was done",
    "analytics.before_pending_commit": "days of events that waited are marked, not committed",
    "analytics.before_publish": "figures are computed and stored, not committed; nobody was told",
    "analytics.after_publish": "the bus has confirmed the figures; they are not committed",
    "analytics.after_commit": "figures of one batch are committed; the next batch is not begun",
    "notification.before_route_commit": "messages of an alert are made, not committed",
    "notification.after_route_commit": "messages of an alert are committed; none is sent",
    "notification.after_claim": "messages are claimed; none is sent",
    "notification.after_send": "a message was sent; that is not committed, so it is sent again",
    "notification.after_sent_commit": "a message was sent, and that is committed",
    "buckets.before_commit": "buckets of readings are recomputed, not committed",
    "buckets.after_commit": "recomputed buckets are committed; no event of them is on the bus",
    "buckets.after_publish": "the bus has the events of buckets; the buckets are still pending",
    "history.after_put": "a file of readings is in the bucket, compared; no row names it",
    "history.after_note": "a file is noted, committed; its readings are in the table too",
    "history.before_drop_commit": "a month whose readings are in files is dropped, not committed",
    "history.after_drop": "a month is dropped, committed; files that nobody noted are there",
    "calendar.before_lock_commit": "days are locked and their alerts opened, not committed",
    "calendar.after_lock_commit": "days are locked, committed; today is not open everywhere",
    "calendar.before_open_commit": "days are open and changes applied, not committed",
    "calendar.after_open_commit": "days are open, committed; no page was notified",
    "calendar.before_pending_commit": "wakes have timed out, not committed",
    "camera.before_commit": "a camera's chunks and the cursor are written, not committed",
    "camera.after_commit": "chunks committed with the cursor; nothing was answered to the camera",
    "camera.after_put": "an image is in the bucket; nobody has read it back",
    "camera.before_complete_commit": "an image is stored and accounted for, not committed",
    "camera.after_complete_commit": "an image is complete; its camera has not heard so",
    "camera.after_ack": "the camera has its answer; that is not stored",
    "observations.after_claim": "somebody says that they look at an image; nothing is looked at",
    "observations.after_put": "an image is judged and its small copy stored; that is not noted",
    "bridge.after_send": "ingestion has the events of wakes; the wakes are still marked as pending",
    "dlq.after_renewal": "a letter is confirmed at the end of its queue; its old place has it too",
    "dlq.after_publish": "redriven letters are confirmed and audited; still among the dead",
    "consume.after_set_aside": "confirmed where it waits next; not acknowledged where it was",
}


class UnknownPointError(Exception):
    """FARMIQ_CRASH_AT names no crash point, or no time at which to die there."""


_armed: str | None = None
_passes_left = 0


def arm(setting: str | None) -> None:
    """Arm one point for this process; None disarms. Raises UnknownPointError."""
    global _armed, _passes_left
    name, _, count = (setting or "").partition(":")
    if name and name not in POINTS:
        raise UnknownPointError(
            f"no crash point is called {name!r}; there are: {', '.join(POINTS)}"
        )
    if count and not (count.isascii() and count.isdigit() and int(count) > 0):
        raise UnknownPointError(
            f"after {name}: comes which time to die there, 1 or more, and not {count!r}"
        )
    _armed, _passes_left = name or None, int(count or 1)


def here(point: str) -> None:
    """The process is at this point; if it is armed for it, this is the end."""
    global _passes_left  # noqa: PLW0603
    if point == _armed:
        _passes_left -= 1
        if _passes_left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

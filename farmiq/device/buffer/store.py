"""SQL of the buffer, one function per statement; each takes the connection of a transaction."""

import sqlite3
from dataclasses import dataclass
from typing import Any, Literal

from farmiq.device.buffer import rules

Tx = sqlite3.Connection

# Lines of the loss ledger that stay after they were reported.
MAX_LEDGER_LINES = 1000

# In `meta`: the ids of the pictures of the empty scale that wait, and of the newest.
_EMPTY_SCALE = "empty_scale"

EVENT_STATES = ("waiting", "sending", "published", "stored", "refused", "failed")


@dataclass(frozen=True, slots=True)
class Sending:
    """An event that is to be sent now."""

    seq: int
    event_id: str
    event_type: str
    topic: str
    raw: bytes
    attempts: int
    stored_s: float


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that waits for its upload."""

    image_id: str
    session_id: str | None
    trace_id: str
    content_type: str
    size_bytes: int
    sha256: str
    captured_at: str
    attempts: int


# --- meta and counts


def meta(tx: Tx, name: str) -> Any:
    return _value(tx, "select value from meta where name = ?", name)


def set_meta(tx: Tx, name: str, value: Any) -> None:
    tx.execute("insert or replace into meta (name, value) values (?, ?)", (name, value))


def next_seq(tx: Tx) -> int:
    seq = int(meta(tx, "last_seq") or 0) + 1
    set_meta(tx, "last_seq", seq)
    return seq


def tally(tx: Tx) -> dict[str, int]:
    return dict(tx.execute("select name, count from tally").fetchall())


def backlog(counts: dict[str, int]) -> int:
    """How many events have no receipt yet, of a tally."""
    return counts["waiting"] + counts["sending"] + counts["published"]


def insert(tx: Tx, table: str, **row: Any) -> None:
    names = ", ".join(row)
    marks = ", ".join(f":{name}" for name in row)
    tx.execute(f"insert into {table} ({names}) values ({marks})", row)  # noqa: S608 - our own names


# --- sessions and weights


def session(tx: Tx, session_id: str) -> dict[str, Any] | None:
    return _row(tx, "select * from sessions where session_id = ?", session_id)


def set_session(tx: Tx, session_id: str, **columns: Any) -> None:
    _update(tx, "sessions", "session_id", session_id, columns)


def unsettled(tx: Tx, *, after: str, limit: int) -> list[str]:
    rows = tx.execute(
        "select session_id from sessions where settled = 0 and session_id > ? "
        "order by session_id limit ?",
        (after, limit),
    )
    return [row[0] for row in rows]


def open_of_other_boots(tx: Tx, boot_id: str, *, limit: int) -> list[str]:
    rows = tx.execute(
        "select session_id from sessions where settled = 0 and state = 'open' and boot_id <> ? "
        "limit ?",
        (boot_id, limit),
    )
    return [row[0] for row in rows]


def count_sessions_with_problem(tx: Tx) -> int:
    return int(_value(tx, "select count(*) from sessions where problem is not null"))


def sessions_with_problem(tx: Tx, *, limit: int) -> list[dict[str, Any]]:
    return _all(
        tx,
        "select session_id, opened_at, state, problem from sessions where problem is not null "
        "order by ended_s desc limit ?",
        limit,
    )


def purge_sessions(tx: Tx, *, ended_before_s: float, problem_before_s: float, limit: int) -> int:
    """Delete those without events and pictures; with a problem they stay longer."""
    return tx.execute(
        """
        delete from sessions where session_id in (
          select session_id from sessions s
          where settled = 1 and ended_s < ? and (problem is null or ended_s < ?)
            and not exists (select 1 from events e where e.session_id = s.session_id)
            and not exists (select 1 from images i where i.session_id = s.session_id)
          order by ended_s limit ?)
        """,
        (ended_before_s, problem_before_s, limit),
    ).rowcount


def take_weights(tx: Tx, session_id: str) -> list[tuple[float, str]]:
    """Remove and return a session's weights that are no events yet, in the order they came."""
    rows = tx.execute(
        "select weight_kg, weighed_at from weights where session_id = ? order by id", (session_id,)
    ).fetchall()
    if rows:
        tx.execute("delete from weights where session_id = ?", (session_id,))
    return rows


def count_weights(tx: Tx, session_id: str) -> int:
    """Those that are no events yet, and those that are."""
    statement = (
        "select (select count(*) from weights where session_id = ?) + (select count(*) "
        "from events where session_id = ? and event_type = 'weighvision.weight.recorded')"
    )
    return int(_value(tx, statement, session_id, session_id))


# --- pictures


def has_image(tx: Tx, image_id: str) -> bool:
    return _value(tx, "select 1 from images where image_id = ?", image_id) is not None


def is_image_awaited(tx: Tx, session_id: str, *, boot_id: str, stored_after_s: float) -> bool:
    """Whether events of this session still wait for one of its pictures."""
    statement = (
        "select 1 from images where session_id = ? and state = 'waiting' and kept_boot = ? "
        "and kept_s > ? limit 1"
    )
    return _value(tx, statement, session_id, boot_id, stored_after_s) is not None


_IMAGE = ", ".join(Image.__slots__)


def next_image(tx: Tx, *, now_s: float, fresh_after_s: float) -> Image | None:
    """The newest if a session waits for it, else the one that waits longest."""
    row = tx.execute(
        f"select {_IMAGE} from images where state = 'waiting' "  # noqa: S608
        "and id = (select max(id) from images) and kept_s > ? and retry_s <= ?",
        (fresh_after_s, now_s),
    ).fetchone()
    row = (
        row
        or tx.execute(
            f"select {_IMAGE} from images where state = 'waiting' and retry_s <= ? "  # noqa: S608
            "order by retry_s, id limit 1",
            (now_s,),
        ).fetchone()
    )
    return None if row is None else Image(*row)


def set_image(tx: Tx, image_id: str, **columns: Any) -> None:
    _update(tx, "images", "image_id", image_id, columns)


def remove_image(tx: Tx, image_id: str) -> None:
    tx.execute("delete from images where image_id = ?", (image_id,))


def note_empty_scale(tx: Tx, image_id: str) -> None:
    """Note that a picture is of the empty scale, and drop the notes of those that were sent."""
    waiting = [other for other in _of_empty_scale(tx) if has_image(tx, other)]
    set_meta(tx, _EMPTY_SCALE, " ".join([*waiting, image_id]))


def is_of_empty_scale(tx: Tx, image_id: str) -> bool:
    return image_id in _of_empty_scale(tx)


def _of_empty_scale(tx: Tx) -> list[str]:
    return str(meta(tx, _EMPTY_SCALE) or "").split()


def failed_images(tx: Tx, *, limit: int) -> list[dict[str, Any]]:
    return _all(
        tx,
        "select image_id, session_id, captured_at, size_bytes, attempts, problem from images "
        "where state = 'failed' order by id limit ?",
        limit,
    )


def image_to_drop(tx: Tx) -> tuple[str, str | None] | None:
    """(image_id, session_id) of the picture that is dropped first when they use too much disk."""
    for where in ("state = 'failed'", "state = 'waiting' and session_id is null"):
        row: tuple[str, str | None] | None = tx.execute(
            f"select image_id, session_id from images where {where} order by id limit 1"  # noqa: S608
        ).fetchone()
        if row is not None:
            return row
    return None


# --- events


def set_rank(tx: Tx, seq: int, rank: int) -> None:
    tx.execute("update events set rank = ? where seq = ?", (rank, seq))


def take(tx: Tx, *, limit: int) -> list[Sending]:
    """The next to send, in order, counted as an attempt before a byte leaves."""
    rows = tx.execute(
        "select seq, event_id, event_type, topic, raw, attempts + 1, kept_s from events "
        "where state = 'waiting' order by order_us, seq limit ?",
        (limit,),
    ).fetchall()
    tx.executemany(
        "update events set state = 'sending', attempts = attempts + 1 where seq = ?",
        [(row[0],) for row in rows],
    )
    return [Sending(*row) for row in rows]


def published(tx: Tx, seqs: list[int]) -> None:
    tx.executemany(
        "update events set state = 'published' where seq = ? and state = 'sending'",
        [(seq,) for seq in seqs],
    )


def settle(tx: Tx, event_id: str, *, state: str, now_s: float, reason: str | None) -> bool:
    """Mark as stored or refused; False if it was so already or is not ours."""
    return bool(
        tx.execute(
            "update events set state = ?, settled_s = ?, reason = ? where event_id = ? "
            "and state in ('waiting', 'sending', 'published')",
            (state, now_s, reason, event_id),
        ).rowcount
    )


def event(tx: Tx, event_id: str) -> dict[str, Any] | None:
    return _row(
        tx,
        "select seq, event_id, event_type, session_id, state, attempts, reason, topic, raw "
        "from events where event_id = ?",
        event_id,
    )


def back_to_waiting(tx: Tx, seqs: list[int] | None = None) -> int:
    """Send again what is in flight: all of it, or these."""
    statement = "update events set state = 'waiting' where state in ('sending', 'published')"
    if seqs is None:
        return tx.execute(statement).rowcount
    return tx.executemany(f"{statement} and seq = ?", [(seq,) for seq in seqs]).rowcount


def send_stored_again(tx: Tx, *, since_s: float) -> int:
    """Events that were stored since then wait again, with the same bytes."""
    return tx.execute(
        "update events set state = 'waiting', settled_s = null "
        "where state = 'stored' and settled_s >= ?",
        (since_s,),
    ).rowcount


def redrive(tx: Tx) -> tuple[int, int]:
    """Try again what failed or was rejected, from no attempts; (events, images)."""
    events = tx.execute(
        "update events set state = 'waiting', attempts = 0, reason = null, settled_s = null "
        "where state in ('refused', 'failed')"
    ).rowcount
    images = tx.execute(
        "update images set state = 'waiting', attempts = 0, retry_s = 0, problem = null "
        "where state = 'failed'"
    ).rowcount
    tx.execute("update sessions set problem = null where problem is not null")
    return events, images


def oldest_waiting(tx: Tx) -> tuple[float, int] | None:
    """(kept_s, order_us) of the next event."""
    row: tuple[float, int] | None = tx.execute(
        "select kept_s, order_us from events where state = 'waiting' order by order_us, seq limit 1"
    ).fetchone()
    return row


def rejected_events(tx: Tx, *, limit: int) -> list[dict[str, Any]]:
    return _all(
        tx,
        "select event_id, event_type, session_id, reason from events where state = 'refused' "
        "order by settled_s desc limit ?",
        limit,
    )


def page(tx: Tx, *, after_seq: int, limit: int, state: str | None = None) -> list[dict[str, Any]]:
    return _all(
        tx,
        "select seq, event_id, event_type, session_id, state, attempts, rank, reason, topic, raw "
        "from events where seq > ? and (? is null or state = ?) order by seq limit ?",
        *(after_seq, state, state, limit),
    )


# --- deletion

_UNTRIED = "state = 'waiting' and attempts = 0 and rank < 9"


def count_droppable(tx: Tx, *, limit: int) -> int:
    statement = f"select count(*) from (select 1 from events where {_UNTRIED} limit ?)"  # noqa: S608
    return int(_value(tx, statement, limit))


def purge_settled(
    tx: Tx, state: Literal["stored", "refused"], *, before_s: float, limit: int
) -> int:
    # A literal, not a parameter: only so does SQLite use the index of this state.
    return tx.execute(
        f"delete from events where seq in (select seq from events where state = '{state}' "  # noqa: S608
        "and settled_s < ? order by settled_s limit ?)",
        (before_s, limit),
    ).rowcount


def drop_untried(tx: Tx, *, limit: int) -> list[tuple[int, int]]:
    """(seq, rank) of the deleted events: the lowest rank first, the oldest first."""
    statement = f"select seq, rank from events where {_UNTRIED} order by rank, seq limit ?"  # noqa: S608
    return _drop(tx, statement, limit)


def drop_expired(tx: Tx, *, stored_before_s: float, limit: int) -> list[tuple[int, int]]:
    """Age alone drops nothing: an event is not critical, and had its chance to be sent."""
    return _drop(
        tx,
        "select seq, rank from events where state = 'waiting' and attempts > 0 and rank < 9 "
        "and kept_s < ? order by kept_s limit ?",
        *(stored_before_s, limit),
    )


def _drop(tx: Tx, statement: str, *values: Any) -> list[tuple[int, int]]:
    rows = tx.execute(statement, values).fetchall()
    tx.executemany("delete from events where seq = ?", [(seq,) for seq, _ in rows])
    return rows


def note_drops(tx: Tx, drops: list[tuple[int, int]], *, reason: str) -> None:
    """Write (seq, rank) to the loss ledger: a line per class and reason until it is reported."""
    for seq, rank in drops:
        tx.execute(
            """
            insert into ledger (class, reason, count, first_seq, last_seq) values (?, ?, 1, ?, ?)
            on conflict (class, reason) where told = 0 do update set count = count + 1,
              first_seq = min(first_seq, excluded.first_seq),
              last_seq = max(last_seq, excluded.last_seq)
            """,
            (rules.CLASSES[rank], reason, seq, seq),
        )
    tx.execute("update tally set count = count + ? where name = 'dropped'", (len(drops),))


def unreported_drops(tx: Tx) -> list[dict[str, Any]]:
    return _all(tx, "select * from ledger where told = 0 order by id")


def mark_reported(tx: Tx, ledger_id: int) -> None:
    tx.execute("update ledger set told = 1 where id = ?", (ledger_id,))
    tx.execute("delete from ledger where told = 1 and id < ?", (ledger_id - MAX_LEDGER_LINES,))


# --- commands


def command_answer(tx: Tx, command_id: str) -> str | None:
    answer: str | None = _value(tx, "select answer from commands where command_id = ?", command_id)
    return answer


def add_command(tx: Tx, command_id: str, answer: str, *, limit: int) -> None:
    tx.execute("insert into commands (command_id, answer) values (?, ?)", (command_id, answer))
    tx.execute("delete from commands where n <= (select max(n) from commands) - ?", (limit,))


def _update(tx: Tx, table: str, key: str, key_value: str, columns: dict[str, Any]) -> None:
    # The names are our own, never from outside.
    changes = ", ".join(f"{name} = :{name}" for name in columns)
    tx.execute(f"update {table} set {changes} where {key} = :{key}", {**columns, key: key_value})  # noqa: S608


def _value(tx: Tx, statement: str, *values: Any) -> Any:
    row = tx.execute(statement, values).fetchone()
    return None if row is None else row[0]


def _row(tx: Tx, statement: str, *values: Any) -> dict[str, Any] | None:
    rows = _all(tx, statement, *values)
    return rows[0] if rows else None


def _all(tx: Tx, statement: str, *values: Any) -> list[dict[str, Any]]:
    cursor = tx.execute(statement, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

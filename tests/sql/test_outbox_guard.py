"""The outbox guards itself: all pairs of states, whoever asks; and what may be deleted."""

import itertools

import psycopg
import pytest

from farmiq.edge.sync import rules
from farmiq.edge.sync.rules import State
from farmiq.plumbing import ids
from tests.conftest import Database

PAIRS = list(itertools.product(rules.STATES, repeat=2))


def insert(connection: psycopg.Connection, status: str) -> None:
    held = status in rules.HELD
    connection.execute(
        """
        insert into sync_outbox (id, tenant_id, event_type, payload_json, status, claimed_by,
          claimed_at, lease_expires_at)
        values (%s, 't', 'telemetry.ingested', '{}', %s, %s, %s, %s)
        """,
        (ids.new(), status, "one" if held else None, "2025-01-01Z" if held else None,
         "2025-01-02Z" if held else None),
    )  # fmt: skip


@pytest.mark.req("OB-01", "OB-02", "OB-03", "OB-04", "OB-05", "OB-06", "OB-07", "OB-08", "OB-09")
@pytest.mark.parametrize("by_hand", [None, "redrive", "discard"])
@pytest.mark.parametrize("owner", [False, True])
def test_all_36_pairs_of_states(edge_db: Database, by_hand: str | None, *, owner: bool) -> None:
    """Exactly the moves of rules.py; the table's owner is no exception."""
    allowed = {pair for pair in PAIRS if _moves(edge_db, *pair, by_hand=by_hand, owner=owner)}
    assert allowed == {pair for pair in PAIRS if rules.may_move(*pair, by_hand=by_hand)}
    assert len(PAIRS) == 36


def _moves(
    database: Database, before: State, after: State, *, by_hand: str | None, owner: bool
) -> bool:
    with psycopg.connect(database.admin_url if owner else database.url) as connection:
        insert(connection, before)
        if by_hand:
            connection.execute("select set_config('farmiq.outbox_by_hand', %s, true)", (by_hand,))
        try:
            connection.execute("update sync_outbox set status = %s", (after,))
        except psycopg.errors.IntegrityConstraintViolation as error:
            return f"{before} → {after} is not a move" not in str(error)
        finally:
            connection.rollback()
    return True


@pytest.mark.req("OB-09")
def test_the_permission_to_redrive_ends_with_its_transaction(edge_db: Database) -> None:
    with psycopg.connect(edge_db.url, autocommit=True) as connection:
        insert(connection, "dlq")
        with connection.transaction():
            connection.execute("select set_config('farmiq.outbox_by_hand', 'redrive', true)")
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            connection.execute("update sync_outbox set status = 'pending'")


def test_a_row_being_sent_keeps_its_holder(edge_db: Database) -> None:
    with psycopg.connect(edge_db.url) as connection:
        insert(connection, "sending")
        connection.execute("update sync_outbox set lease_expires_at = now()")
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            connection.execute("update sync_outbox set claimed_by = 'two'")


@pytest.mark.req("RT-11")
@pytest.mark.parametrize("status", rules.STATES)
@pytest.mark.parametrize("archived", [False, True])
def test_only_what_is_delivered_or_archived_can_be_deleted(
    edge_db: Database, status: State, *, archived: bool
) -> None:
    with psycopg.connect(edge_db.url) as connection:
        insert(connection, status)
        if archived:
            connection.execute(
                "insert into sync_archives (archive_id, file_name, sha256, row_count) "
                "values (%s, 'f', '', 1)",
                (ids.new(),),
            )
            connection.execute(
                "insert into sync_archived select o.tenant_id, o.id, a.archive_id "
                "from sync_outbox o, sync_archives a"
            )
        may = status == "acked" or (archived and status in ("dlq", "failed"))
        try:
            connection.execute("delete from sync_outbox")
        except psycopg.errors.IntegrityConstraintViolation:
            assert not may
        else:
            assert may

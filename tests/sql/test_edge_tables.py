"""The edge's tables as document 003 lists them."""

import psycopg
import pytest

from farmiq.plumbing import ids
from tests.conftest import Database
from tests.sql import catalog


@pytest.mark.req("DB-02")
def test_telemetry_raw_has_the_documented_columns(edge_db: Database) -> None:
    found = catalog.columns(edge_db.url, "telemetry_raw")
    assert found == {
        "id": "uuid",
        "tenant_id": "text",
        "farm_id": "text",
        "barn_id": "text",
        "device_id": "text",
        "occurred_at": "timestamp with time zone",
        "metric_type": "text",
        "metric_value": "double precision",
        "unit": "text",
        "ingested_at": "timestamp with time zone",
        "clock_suspect": "boolean",
    }


@pytest.mark.req("DB-03")
def test_telemetry_raw_has_the_documented_indexes(edge_db: Database) -> None:
    found = set(catalog.indexes(edge_db.url, "telemetry_raw").values())
    assert {"(tenant_id, device_id, occurred_at DESC)", "(tenant_id, occurred_at DESC)"} <= found


@pytest.mark.req("DD-05")
def test_ingress_dedupe_is_unique_by_tenant_and_event(edge_db: Database) -> None:
    found = catalog.indexes(edge_db.url, "ingress_dedupe")
    assert found["ingress_dedupe_tenant_event_key"] == "(tenant_id, event_id)"
    assert found["ingress_dedupe_first_seen_at_idx"] == "(first_seen_at)"


@pytest.mark.req("DB-10")
def test_inference_results_has_the_documented_columns(edge_db: Database) -> None:
    found = catalog.columns(edge_db.url, "inference_results")
    documented = {
        "id": "uuid",
        "tenant_id": "text",
        "farm_id": "text",
        "barn_id": "text",
        "device_id": "text",
        "session_id": "uuid",
        "media_id": "uuid",
        "predicted_weight_kg": "double precision",
        "predicted_size": "double precision",
        "confidence": "double precision",
        "model_version": "text",
        "occurred_at": "timestamp with time zone",
    }
    assert documented.items() <= found.items()
    assert catalog.indexes(edge_db.url, "inference_results")["inference_results_pkey"] == "(id)"


@pytest.mark.req("DB-11")
def test_inference_results_has_the_documented_indexes(edge_db: Database) -> None:
    found = set(catalog.indexes(edge_db.url, "inference_results").values())
    assert {"(tenant_id, session_id)", "(tenant_id, device_id, occurred_at DESC)"} <= found


@pytest.mark.req("DB-12")
def test_sync_outbox_has_the_documented_columns_and_defaults(edge_db: Database) -> None:
    assert catalog.columns(edge_db.url, "sync_outbox") == {
        "id": "uuid",
        "tenant_id": "text",
        "farm_id": "text",
        "barn_id": "text",
        "device_id": "text",
        "session_id": "uuid",
        "event_type": "text",
        "occurred_at": "timestamp with time zone",
        "trace_id": "text",
        "payload_json": "jsonb",
        "payload_size_bytes": "integer",
        "status": "text",
        "priority": "integer",
        "attempt_count": "integer",
        "last_attempt_at": "timestamp with time zone",
        "next_attempt_at": "timestamp with time zone",
        "claimed_by": "text",
        "claimed_at": "timestamp with time zone",
        "lease_expires_at": "timestamp with time zone",
        "last_error_code": "text",
        "last_error_message": "text",
        "failed_at": "timestamp with time zone",
        "dlq_reason": "text",
        "created_at": "timestamp with time zone",
        "updated_at": "timestamp with time zone",
        "clock_suspect": "boolean",
    }
    with psycopg.connect(edge_db.url) as connection:
        row = connection.execute(
            """
            insert into sync_outbox (id, tenant_id, event_type, payload_json)
            values (%s, 't', 'telemetry.ingested', '{}')
            returning status, priority, attempt_count, next_attempt_at = now(),
              created_at = now(), updated_at = now()
            """,
            (ids.new(),),
        ).fetchone()
    assert row == ("pending", 0, 0, True, True, True)


@pytest.mark.req("DB-12")
def test_the_payload_of_an_outbox_row_cannot_be_changed(edge_db: Database) -> None:
    with psycopg.connect(edge_db.url) as connection:
        connection.execute(
            "insert into sync_outbox (id, tenant_id, event_type, payload_json) "
            "values (%s, 't', 'telemetry.ingested', '{\"a\": 1}')",
            (ids.new(),),
        )
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="immutable"):
            connection.execute("update sync_outbox set payload_json = '{\"a\": 2}'")


def test_updated_at_moves_with_every_update(edge_db: Database) -> None:
    with psycopg.connect(edge_db.url) as connection:
        connection.execute(
            "insert into sync_outbox (id, tenant_id, event_type, payload_json, updated_at) "
            "values (%s, 't', 'telemetry.ingested', '{}', '2020-01-01')",
            (ids.new(),),
        )
        row = connection.execute(
            "update sync_outbox set priority = 1 returning updated_at > now() - interval '1 min'"
        ).fetchone()
    assert row == (True,)


@pytest.mark.req("DB-13")
def test_sync_outbox_has_the_documented_indexes(edge_db: Database) -> None:
    found = catalog.indexes(edge_db.url, "sync_outbox")
    assert {
        "(status, next_attempt_at, occurred_at)",
        "(tenant_id, occurred_at DESC)",
        "(tenant_id, id)",
        "(claimed_by, lease_expires_at)",
    } <= set(found.values())


def test_sync_state_has_the_documented_columns(edge_db: Database) -> None:
    assert list(catalog.columns(edge_db.url, "sync_state")) == [
        "tenant_id",
        "last_acked_event_id",
        "last_acked_at",
        "last_sent_batch_id",
        "consecutive_failures",
        "paused_until",
        "last_error_code",
        "last_error_message",
    ]


def test_a_month_made_late_takes_its_rows_out_of_the_default_partition(edge_db: Database) -> None:
    with psycopg.connect(edge_db.url, autocommit=True) as connection:
        for day in ("2031-03-01", "2031-03-31 23:59:59", "2031-04-01"):
            connection.execute(
                """
                insert into telemetry_raw (id, tenant_id, farm_id, barn_id, device_id,
                  occurred_at, metric_type, metric_value, unit)
                values (%s, 't', 'f', 'b', 'd', %s::timestamp at time zone 'UTC', 'm', 1, 'u')
                """,
                (ids.new(), day),
            )
        made = connection.execute("select fn_make_telemetry_month('2031-03-15')").fetchone()
        again = connection.execute("select fn_make_telemetry_month('2031-03-15')").fetchone()
        rows = connection.execute(
            "select tableoid::regclass::text, count(*) from telemetry_raw group by 1 order by 1"
        ).fetchall()
    assert (made, again) == ((True,), (False,))
    assert rows == [("telemetry_raw_2031_03", 2), ("telemetry_raw_default", 1)]


@pytest.mark.req("DB-04")
def test_telemetry_agg_has_the_documented_columns(edge_db: Database) -> None:
    found = catalog.columns(edge_db.url, "telemetry_agg")
    documented = {
        "id": "uuid",
        "tenant_id": "text",
        "device_id": "text",
        "window": "text",
        "bucket_start_at": "timestamp with time zone",
        "bucket_end_at": "timestamp with time zone",
        "metric_type": "text",
        "avg_value": "double precision",
        "min_value": "double precision",
        "max_value": "double precision",
        "count": "bigint",
    }
    assert documented.items() <= found.items()


@pytest.mark.req("DB-05")
def test_telemetry_agg_has_the_documented_index_and_one_row_per_bucket(edge_db: Database) -> None:
    found = catalog.indexes(edge_db.url, "telemetry_agg")
    assert (
        found["telemetry_agg_device_idx"]
        == '(tenant_id, device_id, "window", bucket_start_at DESC)'
    )
    assert (
        found["telemetry_agg_bucket_key"]
        == '(tenant_id, device_id, metric_type, "window", bucket_start_at)'
    )


def test_ids_made_by_the_database_are_version_7_and_in_order_of_time(edge_db: Database) -> None:
    with psycopg.connect(edge_db.url) as connection:
        made = [connection.execute("select fn_uuid_v7()").fetchone() for _ in range(50)]
    found = [row[0] for row in made if row]
    assert {each.version for each in found} == {7}
    assert [each.int >> 80 for each in found] == sorted(each.int >> 80 for each in found)
    assert len(set(found)) == 50


@pytest.mark.req("DB-06")
def test_weight_sessions_has_the_documented_columns_and_statuses(edge_db: Database) -> None:
    found = catalog.columns(edge_db.url, "weight_sessions")
    documented = {
        "id": "uuid",
        "tenant_id": "text",
        "farm_id": "text",
        "barn_id": "text",
        "device_id": "text",
        "batch_id": "text",
        "status": "text",
        "start_at": "timestamp with time zone",
        "end_at": "timestamp with time zone",
        "initial_weight_kg": "double precision",
        "final_weight_kg": "double precision",
    }
    assert documented.items() <= found.items()
    row = "insert into weight_sessions (id, tenant_id, farm_id, barn_id, device_id, station_id, "
    row += "start_at, status) values (%s, 't', 'f', 'b', 'd', 's', now(), %s)"
    with psycopg.connect(edge_db.url) as connection:
        for status in ("created", "finalized", "cancelled"):
            connection.execute(row, (ids.new(), status))
        with pytest.raises(psycopg.errors.CheckViolation, match="weight_sessions_status_known"):
            connection.execute(row, (ids.new(), "INCOMPLETE"))


@pytest.mark.req("DB-07")
def test_weight_sessions_has_the_documented_indexes(edge_db: Database) -> None:
    found = set(catalog.indexes(edge_db.url, "weight_sessions").values())
    assert {
        "(tenant_id, device_id, start_at DESC)",
        "(tenant_id, status, start_at DESC)",
    } <= found

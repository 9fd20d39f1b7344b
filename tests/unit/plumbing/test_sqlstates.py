"""What an error of PostgreSQL means for whoever sent the statement (C-81)."""

import psycopg
import pytest
from psycopg import errors
from psycopg_pool import PoolTimeout

from farmiq.plumbing import db

# Every SQLSTATE that psycopg knows, by its exception.
KNOWN = {
    kind.sqlstate: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, psycopg.Error) and kind.sqlstate
}


@pytest.mark.parametrize(
    ("state", "meaning"),
    [
        ("22003", "data"),
        ("23505", "data"),
        ("54000", "data"),
        ("08006", "retry"),
        ("25P03", "retry"),
        ("40P01", "retry"),
        ("53100", "retry"),
        ("55P03", "retry"),
        ("57P01", "retry"),
        ("25006", "wait"),
        ("28P01", "wait"),
        ("58030", "wait"),
        ("XX001", "wait"),
        ("42501", "refuse"),
        ("42P01", "refuse"),
        ("42703", "refuse"),
        ("42601", "bug"),
        ("25P02", "bug"),
        ("0A000", "bug"),
    ],
)
def test_an_sqlstate_means_what_the_table_says(state: str, meaning: str) -> None:
    assert db.meaning(KNOWN[state]()) == meaning


def test_outage_error_is_one_of_unavailable() -> None:
    for state, kind in KNOWN.items():
        error = kind()
        if db.meaning(error) in {"retry", "wait"}:
            assert isinstance(error, db.UNAVAILABLE), state
        elif db.meaning(error) == "refuse":
            assert not isinstance(error, db.UNAVAILABLE), state


def test_errors_without_an_sqlstate_are_outages_or_bugs() -> None:
    assert db.meaning(PoolTimeout()) == "retry"
    assert db.meaning(psycopg.OperationalError("connection refused")) == "retry"
    assert db.meaning(KeyError()) == "bug"


@pytest.mark.parametrize(
    "error", [OSError(24, "too many open files"), MemoryError(), TimeoutError()]
)
def test_shortage_of_database_resources_counts_against_no_message(error: Exception) -> None:
    assert db.meaning(error) == "retry"
    assert db.is_outage(error)
    assert isinstance(error, db.PASSING)


def test_a_value_that_the_driver_refuses_is_bad_data() -> None:
    error = psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    assert db.is_data_error(error)
    assert not db.is_outage(error)

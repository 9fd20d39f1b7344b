"""Pure: who is told of an edge's alert, and in which words; no tenant sees another's."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from farmiq.edge.alert_events import Row, recipients, shown

AT = datetime(2026, 3, 1, tzinfo=UTC)
ACCEPTED = {"t-1", "t-2", "a:b"}
# Has devices here; the cloud has not accepted this edge for it.
OTHERS = {"t-3"}


def row(kind: str, subject: str, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "alert_id": UUID(int=1), "severity": "warning", "message": f"secret of {subject}",
        "seen_count": 1, "raised_at": AT, "last_seen_at": AT, "closed_at": None, "closed_by": None,
        "whole_edge": False, "reported_to": [], "reported_severity": None,
    }  # fmt: skip
    return Row(**{**values, "kind": kind, "subject": subject, **changes})


@pytest.mark.parametrize(
    ("kind", "subject", "whole_edge", "to"),
    [
        ("media.missing", "t-1/d-1", False, ["t-1"]),
        ("ingress.impostor", "t-2/f/b/d-1", False, ["t-2"]),
        ("sync.dlq", "t-1", False, ["t-1"]),
        ("broker.login", "a%3Ab/d-1", False, ["a:b"]),
        ("disk.full", "disk", True, ["a:b", "t-1", "t-2"]),
        ("disk.full", "t-1", True, ["a:b", "t-1", "t-2"]),
        ("broker.login", "10.0.0.7", False, ["a:b", "t-1", "t-2"]),
        ("ingress.impostor", "made-up/f/b/d", False, ["a:b", "t-1", "t-2"]),
        ("sync.not_let_in", "t-3", False, []),
        ("ingress.impostor", "t-3/f/b/d-1", False, []),
        ("sync.not_let_in", "gone", False, []),
    ],
)
def test_alert_goes_to_its_tenant_or_to_all(
    kind: str, subject: str, to: list[str], *, whole_edge: bool
) -> None:
    assert recipients(row(kind, subject, whole_edge=whole_edge), ACCEPTED, OTHERS) == to


@pytest.mark.parametrize(
    ("subject", "seen"),
    [("t-1/f/b/d-1", "f/b/d-1"), ("t-1/d-1", "d-1"), ("t-1", "t-1"), ("t-1/", "t-1")],
)
def test_tenant_sees_its_own_without_its_name(subject: str, seen: str) -> None:
    assert shown(row("media.missing", subject), "t-1") == (seen, f"secret of {subject}")


def test_words_of_a_stranger_or_another_tenant_stay_at_the_edge() -> None:
    for subject in ("10.0.0.7", "t-2/f/b/d-1", "T-1/d", "\ud800"):
        name, message = shown(row("broker.login", subject), "t-1")
        assert name.startswith("unknown sender ")
        assert (name, message) == shown(row("broker.login", subject, message="x"), "t-2x")
        assert "secret" not in message
        assert subject not in name + message
    assert shown(row("broker.login", "10.0.0.7"), "t-1") != shown(
        row("broker.login", "10.0.0.8"), "t-1"
    )


def test_only_a_higher_severity_is_reported_again() -> None:
    known: Any
    for severity, known, again in (
        ("warning", None, True),
        ("warning", "warning", False),
        ("critical", "warning", True),
        ("warning", "critical", False),
        ("security", "critical", True),
        ("info", "warning", False),
    ):
        assert row("k", "s", severity=severity, reported_severity=known).is_more_urgent is again

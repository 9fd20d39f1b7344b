"""Settings that nobody could mean are refused at the start, by name."""

import pytest

from farmiq.config import EdgeSettings
from farmiq.config.settings import SettingsError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OUTBOX_RETENTION_DAYS", "inf"),
        ("OUTBOX_RETENTION_DAYS", "nan"),
        ("OUTBOX_RETENTION_DAYS", "1e300"),
        ("SYNC_BACKOFF_MAX_SECONDS", "1e12"),
        ("INGRESS_DEDUPE_TTL_HOURS", "1e9"),
        ("SYNC_LEASE_SECONDS", "99999999999999999999"),
        ("SYNC_MAX_ATTEMPTS", "99999999999999999999"),
    ],
)
def test_number_beyond_reason_is_rejected_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is wrong"):
        EdgeSettings.load_some({name: value})


def test_duration_of_a_hundred_years_is_accepted() -> None:
    assert EdgeSettings.load_some({"OUTBOX_RETENTION_DAYS": "36500"}).outbox_retention_days == 36500

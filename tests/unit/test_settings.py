"""Settings that nobody could mean are refused at the start, by name."""

from pathlib import Path
from typing import get_args

import pytest
from pydantic import SecretStr

from farmiq.config import (
    TEMPLATES,
    CloudSettings,
    EdgeSettings,
    Settings,
    SettingsError,
    environment,
)


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


def _secrets(settings: type[Settings]) -> list[str]:
    return [
        variable
        for variable, field in settings.variables().items()
        if SecretStr in (field.annotation, *get_args(field.annotation))
    ]


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_secret_may_come_from_a_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of all secrets end so that the rule holds for them."""
    secrets = _secrets(TEMPLATES[name])
    assert secrets
    for variable in secrets:
        file = tmp_path / variable
        file.write_text(f"secret of {variable}\n")
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv(f"{variable}_FILE", str(file))
    given = environment()
    assert {variable: given[variable] for variable in secrets} == {
        variable: f"secret of {variable}" for variable in secrets
    }


def test_secret_of_a_file_reaches_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "db-url"
    file.write_text("postgresql://a:b@c/d\n")
    monkeypatch.delenv("FARMIQ_CLOUD_DB_URL", raising=False)
    monkeypatch.setenv("FARMIQ_CLOUD_DB_URL_FILE", str(file))
    monkeypatch.setenv("FARMIQ_AMQP_URL", "amqp://a:b@c")
    settings = CloudSettings.load()
    assert settings.db_url.get_secret_value() == "postgresql://a:b@c/d"
    assert "a:b" not in repr(settings)


def test_secret_given_twice_or_not_readable_is_rejected_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARMIQ_AMQP_URL_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("FARMIQ_AMQP_URL", raising=False)
    with pytest.raises(SettingsError, match=r"FARMIQ_AMQP_URL_FILE: .*none cannot be read"):
        environment()
    monkeypatch.setenv("FARMIQ_AMQP_URL", "amqp://a:b@c")
    with pytest.raises(SettingsError, match="both set: remove one"):
        environment()

"""The identity of this edge in the cloud: short tokens, signed with its enrolled key."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from farmiq.config import EdgeSettings
from farmiq.plumbing import log, tokens

_LIFETIME = timedelta(minutes=10)
_RENEW_BEFORE = timedelta(minutes=2)


class Identity:
    """Signs a token per tenant; a token is used until shortly before it expires."""

    def __init__(self, settings: EdgeSettings) -> None:
        """Raises TokenError if the key cannot be read."""
        self._settings = settings
        self._key, self._key_mtime_ns = (
            read_key(settings.edge_key_file),
            _mtime_ns(settings.edge_key_file),
        )
        self._tokens: dict[tuple[str, str | None], tuple[datetime, str]] = {}

    def token(self, tenant_id: str, *, role: str | None = None) -> str:
        now = datetime.now(UTC)
        expires_at, token = self._tokens.get((tenant_id, role), (now, ""))
        if now + _RENEW_BEFORE < expires_at:
            return token
        self._reload_key()
        token = tokens.sign(
            self._key,
            subject=self._settings.edge_cluster_id,
            issuer=self._settings.token_issuer,
            audience=self._settings.token_audience,
            now=now,
            lifetime=_LIFETIME,
            tenants=[tenant_id],
            edge_cluster_id=self._settings.edge_cluster_id,
            **({"role": role} if role else {}),
        )
        self._tokens[tenant_id, role] = now + _LIFETIME, token
        return token

    @property
    def key_id(self) -> str:
        """The id of the key that is in the file now."""
        self._reload_key()
        return str(self._key.get("kid"))

    def clear_tokens(self) -> None:
        """After the cloud rejected a token: the key may be rotated, or the clock was set."""
        self._tokens.clear()

    def _reload_key(self) -> None:
        """`farmiq edge rotate` puts another key into the file while we run."""
        file = self._settings.edge_key_file
        if (mtime_ns := _mtime_ns(file)) == self._key_mtime_ns:
            return
        try:
            self._key, self._key_mtime_ns = read_key(file), mtime_ns
        except tokens.TokenError as error:
            log.get(__name__).error("sync.key_unreadable", error=str(error))


def _mtime_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def read_key(file: Path) -> dict[str, Any]:
    try:
        key: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise tokens.TokenError(
            f"cannot read this edge's key {file}: {error}. Make one with `farmiq edge enroll`."
        ) from error
    return key

"""How an edge becomes known to the cloud: it makes its key here and sends the public part alone."""

import json
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from farmiq.config import EdgeSettings
from farmiq.plumbing import tokens

ENROLL = "/api/v1/edges/enroll"
ROTATE = "/api/v1/edges/rotate"
TIMEOUT_S = 30.0


class EnrolmentError(Exception):
    """It did not work; the text says why and what to do."""


def enroll(
    cloud_url: str,
    code: str,
    key_file: Path,
    *,
    tls: ssl.SSLContext,
    algorithm: str = tokens.ALGORITHM,
) -> dict[str, Any]:
    """Register this edge's key; made if the file is not there. Safe to repeat with the same code.

    Raises EnrolmentError.
    """
    private = _own_key(key_file) or _make(key_file, algorithm)
    body = json.dumps({"code": code, "public_key": tokens.public_part(private)}).encode()
    return _post(cloud_url + ENROLL, body, {}, tls)


def rotate(settings: EdgeSettings, *, overlap_hours: float, tls: ssl.SSLContext) -> dict[str, Any]:
    """Another key in the place of this edge's; running forwarders find it there.

    The new key waits in a file beside until the cloud has it, so it can be repeated at any point.
    The token is signed for this very request: no other token of this edge can replace its key.
    Raises EnrolmentError.
    """
    file = settings.edge_key_file
    old = _own_key(file)
    if old is None:
        raise EnrolmentError(f"there is no key in {file}: enrol this edge first")
    waiting = file.with_name(f"{file.name}.next")
    new = _own_key(waiting) or _make(waiting, tokens.algorithm_of(old))
    body = json.dumps(
        {"public_key": tokens.public_part(new), "overlap_hours": overlap_hours}
    ).encode()
    token = _token(old, settings, request_sha256=tokens.request_digest(ROTATE, body))
    answer = _post(
        settings.cloud_url.rstrip("/") + ROTATE, body, {"Authorization": f"Bearer {token}"}, tls
    )
    waiting.replace(file)
    return answer


def _own_key(file: Path) -> dict[str, Any] | None:
    """The key in the file, or None if there is none yet."""
    try:
        private: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        public = tokens.PublicKey.read(tokens.public_part(private))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, tokens.TokenError) as error:
        raise EnrolmentError(f"cannot use the key in {file}: {error}") from None
    if private.get("kid") != public.key_id:
        raise EnrolmentError(
            f"the key in {file} was made for a file of keys (farmiq keys new): name another file"
        )
    return private


def _make(file: Path, algorithm: str) -> dict[str, Any]:
    private = tokens.new_key(algorithm)
    try:
        tokens.write_private(file, private)
    except OSError as error:
        raise EnrolmentError(f"cannot write the key to {file}: {error.strerror}") from None
    return private


def _token(private: dict[str, Any], settings: EdgeSettings, *, request_sha256: str) -> str:
    return tokens.sign(
        private,
        subject=settings.edge_cluster_id,
        issuer=settings.token_issuer,
        audience=settings.token_audience,
        now=datetime.now(UTC),
        edge_cluster_id=settings.edge_cluster_id,
        request_sha256=request_sha256,
    )


def _post(url: str, body: bytes, headers: dict[str, str], tls: ssl.SSLContext) -> dict[str, Any]:
    sent = {**headers, "Content-Type": "application/json"}
    try:
        answer = httpx2.post(url, content=body, headers=sent, timeout=TIMEOUT_S, verify=tls)
    except httpx2.HTTPError as error:
        raise EnrolmentError(f"{url} was not reached: {error}") from None
    try:
        reply = answer.json()
    except ValueError:
        reply = None
    if answer.is_success and isinstance(reply, dict):
        return reply
    message = reply.get("error", {}).get("message") if isinstance(reply, dict) else None
    raise EnrolmentError(f"the cloud says no ({answer.status_code}): {message or 'not our cloud'}")

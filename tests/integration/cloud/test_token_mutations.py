"""Every way to bend a token, at the batch route of a cloud that knows the edge by enrolment."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import OKPKey

from farmiq.edge.identity import read_key
from farmiq.plumbing import http, tokens
from tests.integration.cloud.conftest import event
from tests.integration.cloud.test_edges import EdgeHost, edge_host

__all__ = ["edge_host"]  # the fixture: a real cloud, its database and its bus

KIDS: dict[str, Any] = {
    "none": None, "number": 5, "list": ["x"], "object": {"a": 1}, "true": True, "empty": "",
    "path": "../../../etc/passwd", "url": "https://evil.example/jwks.json",
    "sql": "' or '1'='1' --", "nul": "a\x00b", "half a character": "\ud800", "long": "k" * 5000,
    "wild": "%", "nearly a thumbprint": "A" * 43,
}  # fmt: skip


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def mutations(edge_host: EdgeHost) -> dict[str, tuple[str, int]]:
    """Token and the status it must get, by name."""
    private = read_key(edge_host.key_file)
    public = tokens.public_part(private)
    good = edge_host.token()
    head, claims, signature = good.split(".")
    now = datetime.now(UTC)
    found = {
        "expired": edge_host.token(now=now - timedelta(hours=2)),
        "not yet valid": edge_host.token(now=now + timedelta(hours=2)),
        "lives too long": edge_host.token(lifetime=timedelta(hours=2)),
        "foreign audience": edge_host.token(audience="somebody-else"),
        "foreign issuer": edge_host.token(issuer="somebody-else"),
        "no signature": f"{head}.{claims}.",
        "cut": good[:-10],
        "two tokens": f"{good}.{good}",
        "another's signature": f"{head}.{claims}.{edge_host.token(subject='x').split('.')[2]}",
        "claims changed": f"{head}.{part({'tenants': ['t-002']})}.{signature}",
        "30 kB": good + "A" * 30_000,
    }
    for spelling in ("none", "None", "NONE", ""):
        found[f"alg {spelling!r}"] = f"{part({'alg': spelling, 'kid': private['kid']})}.{claims}."
    for name, secret in {
        "x": public["x"].encode(),
        "jwk": json.dumps(public).encode(),
        "pem": OKPKey.import_key(public).as_pem(private=False),
    }.items():
        signed = f"{part({'alg': 'HS256', 'kid': private['kid']})}.{claims}"
        digest = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        found[f"HS256 with the public key as {name}"] = f"{signed}.{part(digest)}"
    stranger = tokens.new_key()
    own = {"alg": "Ed25519", "kid": private["kid"], "jwk": tokens.public_part(stranger)}
    found["brings its own key"] = jws.serialize_compact(
        own, base64.urlsafe_b64decode(claims + "=="), OKPKey.import_key(stranger),
        algorithms=["Ed25519"],
    )  # fmt: skip
    for name, kid in KIDS.items():
        found[f"kid {name}"] = f"{part({'alg': 'Ed25519', 'kid': kid})}.{claims}.{signature}"
    return {
        **{name: (token, 401) for name, token in found.items()},
        "foreign tenant": (edge_host.token(tenants=["t-002"]), 403),
        "foreign edge": (edge_host.token(edge_cluster_id="another"), 403),
        "no tenants": (edge_host.token(tenants=None), 403),
        "odd tenants": (edge_host.token(tenants=[5, None, {"t-001": 1}]), 403),
        # Longer than any header may be: refused before there is a route.
        "1 MB": (good + "A" * 1_000_000, 431),
    }


@pytest.mark.req("FB-07", "XC-01")
async def test_every_mutation_of_a_token_gets_the_standard_error(
    edge_host: EdgeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who is still sending a header that is too long may be slow.
    monkeypatch.setattr(http.protocol, "_LINGERS_S", 60.0)
    await edge_host.enroll()
    for name, (token, status) in mutations(edge_host).items():
        answer = await edge_host.post(token, {"events": [event()]})
        assert answer.status_code == status, (name, answer.text)
        error = answer.json()["error"]
        assert error["code"] == http.CODES[status], name
        assert error["message"], name
        assert error["traceId"], name
        assert token[:40] not in answer.text, name
    assert edge_host.site.rows("select count(*) from ingestion_dedupe") == [(0,)]
    assert (await edge_host.post(edge_host.token())).status_code == 202

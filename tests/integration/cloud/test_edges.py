"""Enrolment from the code to the batch, over real HTTP, with the commands that people type."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from fastapi import Request

from farmiq import config
from farmiq.cloud.edges import api as edges
from farmiq.cloud.edges import keyring
from farmiq.cloud.edges import registry as store
from farmiq.cloud.edges import service as registry
from farmiq.cloud.identity.accounts import add_user, open_sign_in
from farmiq.cloud.ingestion import service as ingestion
from farmiq.config import CloudSettings
from farmiq.edge.identity import read_key
from farmiq.edge.sync import enrolment
from farmiq.plumbing import db, http, tokens
from tests.integration.cloud.conftest import CloudSite, event
from tests.support import databases, preloaded
from tests.support.until import until

CLUSTER = "hill-1"


class EdgeHost:
    """A cloud that runs, its administrator, and an edge somewhere with a folder of its own."""

    def __init__(self, site: CloudSite, url: str, folder: Path, client: httpx2.AsyncClient) -> None:
        self.site, self.url, self.folder, self.client = site, url, folder, client
        self.key_file = folder / "edge.jwk"
        self.environment = {
            "FARMIQ_CLOUD_DB_ADMIN_URL": site.database.admin_url,
            "FARMIQ_CLOUD_URL": url,
            "FARMIQ_EDGE_KEY_FILE": str(self.key_file),
            "FARMIQ_EDGE_CLUSTER_ID": CLUSTER,
            "FARMIQ_STATE_DIR": str(folder / "no stack"),
        }

    async def run(self, *words: str, code: int = 0) -> str:
        """A command as people type it; returns what it prints."""
        done = await asyncio.to_thread(
            preloaded.command, *words, environment=config.environment(over=self.environment)
        )
        assert done.returncode == code, f"{words}: {done.stdout} {done.stderr}"
        return done.stdout if code == 0 else done.stdout + done.stderr

    async def invite(self, *tenants: str, hours: float = 24) -> str:
        url = self.site.database.admin_url
        async with await psycopg.AsyncConnection.connect(url) as tx:
            code, _ = await store.invite(
                tx, CLUSTER, tenants or ("t-001",), lasts=timedelta(hours=hours), actor="test"
            )
        return code

    async def enroll(self, code: str | None = None, *, file: Path | None = None) -> dict[str, Any]:
        """What the command does, without another process."""
        used = code or await self.invite()
        tls = self.site.settings.tls.client()
        return await asyncio.to_thread(
            enrolment.enroll, self.url, used, file or self.key_file, tls=tls
        )

    def token(self, private: dict[str, Any] | None = None, **changes: Any) -> str:
        claims: dict[str, Any] = {
            "subject": CLUSTER,
            "issuer": self.site.settings.token_issuer,
            "audience": self.site.settings.token_audience,
            "now": datetime.now(UTC),
            "tenants": ["t-001"],
            "edge_cluster_id": CLUSTER,
        }
        return tokens.sign(private or read_key(self.key_file), **{**claims, **changes})

    async def rotate(
        self, old: dict[str, Any], new: dict[str, Any], *, signed: bytes | None = None, **more: Any
    ) -> Any:
        """A rotation with a token for this request, or for another body that is `signed`."""
        body = json.dumps({"public_key": tokens.public_part(new), **more}).encode()
        proof = tokens.request_digest(edges.ROTATE, body if signed is None else signed)
        token = self.token(old, tenants=[], request_sha256=proof)
        return await self.client.post(
            edges.ROTATE, content=body, headers={"authorization": f"Bearer {token}"}
        )

    async def post(self, token: str, body: Any = None, route: str = ingestion.ROUTE) -> Any:
        return await self.client.post(
            route,
            json={"events": [event()]} if body is None else body,
            headers={"authorization": f"Bearer {token}"},
        )


@pytest.fixture
async def edge_host(
    cloud: CloudSite, tasks: asyncio.TaskGroup, tmp_path: Path
) -> AsyncIterator[EdgeHost]:
    """Without a file of keys: only who enrolled is known."""
    settings = CloudSettings.model_validate(
        {**cloud.settings.model_dump(by_alias=True), "FARMIQ_EDGE_KEYS_FILE": None}
    )
    server = http.HttpServer(title="cloud", version="0")
    for run in (registry.run, ingestion.run):
        tasks.create_task(run(settings, server))
    tasks.create_task(http.serve(server, host="127.0.0.1", port=settings.http_port))
    url = f"http://127.0.0.1:{settings.http_port}"
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:

        async def ready() -> bool:
            try:
                answer = await client.get("/readyz")
            except httpx2.HTTPError:
                return False
            routes = {getattr(route, "path", "") for route in server.app.routes}
            return answer.status_code == 200 and {edges.ROOT, ingestion.ROUTE} <= routes

        await until(ready)
        yield EdgeHost(cloud, url, tmp_path, client)


def refused(answer: httpx2.Response, status: int, why: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == http.CODES[status]
    assert why in error["message"]
    assert error["traceId"]


def moved(site: CloudSite, ahead: timedelta) -> None:
    with databases.connected(site.database.admin_url) as owner:
        owner.execute("insert into test_clock (ahead) values (%s)", (ahead,))


async def test_an_edge_enrols_with_its_code_and_is_let_in_for_its_tenants_only(
    edge_host: EdgeHost,
) -> None:
    words = ("edge", "invite", "--cluster", CLUSTER, "--tenant", "t-001", "--json")
    code = json.loads(await edge_host.run(*words))["code"]
    made = json.loads(await edge_host.run("edge", "enroll", "--code", code, "--json"))
    assert (made["edge_cluster_id"], made["tenants"]) == (CLUSTER, ["t-001"])
    assert made["settings"]["FARMIQ_EDGE_KEY_FILE"] == str(edge_host.key_file)
    assert stat.S_IMODE(edge_host.key_file.stat().st_mode) == 0o600
    assert (await edge_host.post(edge_host.token())).status_code == 202
    foreign = {"events": [event(tenant_id="t-002")]}
    refused(await edge_host.post(edge_host.token(tenants=["t-002"]), foreign), 403, "t-002")
    refused(await edge_host.post(edge_host.token(), foreign), 403, "t-002")
    refused(await edge_host.post(edge_host.token(edge_cluster_id="other")), 403, "other")
    refused(await edge_host.post(edge_host.token(tokens.new_key())), 401, "not registered")
    jwks = (await edge_host.client.get(edges.JWKS)).json()
    assert [key["kid"] for key in jwks["keys"]] == [made["key_id"]]
    assert "d" not in jwks["keys"][0]
    done = json.loads(await edge_host.run("edge", "show", CLUSTER, "--json"))["actions"]
    assert [each["action"] for each in done] == ["enroll", "invite"]


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
async def test_an_rsa_key_enrols_and_an_edwards_key_may_say_eddsa(
    edge_host: EdgeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = await edge_host.invite()
    words = ("edge", "enroll", "--code", code, "--algorithm", "RS256", "--json")
    made = json.loads(await edge_host.run(*words))
    assert (await edge_host.post(edge_host.token())).status_code == 202
    (listed,) = (await edge_host.client.get(edges.JWKS)).json()["keys"]
    assert (listed["kid"], listed["kty"], listed["alg"]) == (made["key_id"], "RSA", "RS256")
    assert json.loads(await edge_host.run("edge", "rotate", "--json"))["key_id"] != made["key_id"]
    assert read_key(edge_host.key_file)["kty"] == "RSA"
    assert (await edge_host.post(edge_host.token())).status_code == 202

    other = edge_host.folder / "other.jwk"
    await edge_host.enroll(file=other)
    with monkeypatch.context() as patch:
        patch.setattr(tokens, "algorithm_of", lambda _: "EdDSA")
        token = edge_host.token(read_key(other))
    assert (await edge_host.post(token)).status_code == 202


async def test_a_code_is_good_once_and_for_one_key(edge_host: EdgeHost) -> None:
    code = await edge_host.invite()
    first = await edge_host.enroll(code.lower())
    # The answer may have got lost: the same key asks again and is told the same.
    assert await edge_host.enroll(code) == first
    other = edge_host.folder / "other.jwk"
    with pytest.raises(enrolment.EnrolmentError, match=r"403.*used already"):
        await edge_host.enroll(code, file=other)
    with pytest.raises(enrolment.EnrolmentError, match=r"403.*nobody made this code"):
        await edge_host.enroll("AAAA", file=other)
    with pytest.raises(enrolment.EnrolmentError, match=r"409.*registered already"):
        await edge_host.enroll()
    assert edge_host.site.rows("select count(*) from edge_keys") == [(1,)]


async def test_a_code_that_is_over_is_refused(edge_host: EdgeHost) -> None:
    code = await edge_host.invite(hours=1)
    moved(edge_host.site, timedelta(hours=1, seconds=1))
    assert "is over" in await edge_host.run("edge", "enroll", "--code", code, code=1)
    assert edge_host.site.rows("select count(*) from edge_keys") == [(0,)]


async def test_nobody_invites_for_a_tenant_that_is_not_there(edge_host: EdgeHost) -> None:
    words = ("edge", "invite", "--cluster", CLUSTER, "--tenant", "nobody")
    assert "farmiq company add" in await edge_host.run(*words, code=1)
    assert "not https" in await edge_host.run(
        "edge", "enroll", "--cloud", "http://cloud.example", "--code", "x", code=2
    )


@pytest.mark.parametrize(
    "body",
    [
        b"", b"no json", b"[]", b"{}", b'{"code": "x"}', b'{"code": 5, "public_key": {}}',
        b'{"code": "x\\u0000", "public_key": {"kty": "OKP", "crv": "Ed25519", "x": "AA"}}',
        json.dumps({"code": "x", "public_key": tokens.new_key()}).encode(),
        json.dumps({"code": "x", "public_key": {"kty": "RSA", "n": "AQAB", "e": "AQAB"}}).encode(),
    ],
)  # fmt: skip
async def test_what_cannot_be_an_enrolment_gets_400(edge_host: EdgeHost, body: bytes) -> None:
    refused(await edge_host.client.post(edges.ENROLL, content=body), 400, "not valid")


async def test_both_keys_are_good_while_they_overlap_and_then_the_new_one_alone(
    edge_host: EdgeHost,
) -> None:
    await edge_host.enroll()
    old = read_key(edge_host.key_file)
    made = json.loads(await edge_host.run("edge", "rotate", "--overlap-hours", "1", "--json"))
    new = read_key(edge_host.key_file)
    assert made["key_id"] == new["kid"] != old["kid"]
    for key in (old, new):
        assert (await edge_host.post(edge_host.token(key))).status_code == 202
    assert stat.S_IMODE(edge_host.key_file.stat().st_mode) == 0o600
    moved(edge_host.site, timedelta(hours=1, seconds=1))
    await until(lambda: _answered(edge_host, edge_host.token(old), 401))
    refused(await edge_host.post(edge_host.token(old)), 401, "replaced")
    assert (await edge_host.post(edge_host.token(new))).status_code == 202


async def test_a_rotation_whose_answer_got_lost_is_repeated_with_the_same_key(
    edge_host: EdgeHost,
) -> None:
    await edge_host.enroll()
    old, new = read_key(edge_host.key_file), tokens.new_key()
    for _ in range(2):
        answer = await edge_host.rotate(old, new)
        assert (answer.status_code, answer.json()["key_id"]) == (200, new["kid"])
    assert edge_host.site.rows("select count(*) from edge_actions where action = 'rotate'") == [
        (1,)
    ]
    refused(await edge_host.rotate(old, old), 409, "send another")


async def test_a_stolen_batch_token_replaces_no_key(edge_host: EdgeHost) -> None:
    await edge_host.enroll(await edge_host.invite("t-001", "t-002"))
    own, theirs = read_key(edge_host.key_file), tokens.new_key()
    taking = {"public_key": tokens.public_part(theirs), "overlap_hours": 0}
    for stolen in (
        edge_host.token(),
        edge_host.token(role="admin"),
        edge_host.token(request_sha256=""),
    ):
        refused(await edge_host.post(stolen, taking, edges.ROTATE), 403, "this very request")
    # A token for a rotation that was read on the way: good for that one key alone.
    signed = json.dumps({"public_key": tokens.public_part(tokens.new_key())}).encode()
    refused(await edge_host.rotate(own, theirs, signed=signed), 403, "this very request")
    assert (await edge_host.post(edge_host.token())).status_code == 202
    assert edge_host.site.rows("select distinct key_id from edge_keys") == [(own["kid"],)]


async def test_a_rotation_keeps_the_tenants_and_is_made_once_from_each_key(
    edge_host: EdgeHost,
) -> None:
    await edge_host.enroll(await edge_host.invite("t-001", "t-002"))
    old, new = read_key(edge_host.key_file), tokens.new_key()
    answer = await edge_host.rotate(old, new, overlap_hours=1)
    assert answer.json()["tenants"] == ["t-001", "t-002"]
    refused(await edge_host.rotate(old, tokens.new_key()), 409, f"replaced by {new['kid']} already")
    noted = "select tenant_id, key_id from edge_actions where action = 'rotate' order by 1"
    assert edge_host.site.rows(noted) == [("t-001", new["kid"]), ("t-002", new["kid"])]


async def test_a_heartbeat_signed_with_a_replaced_key_is_told_so(edge_host: EdgeHost) -> None:
    await edge_host.enroll()
    old, new = read_key(edge_host.key_file), tokens.new_key()
    assert (await edge_host.rotate(old, new, overlap_hours=1)).status_code == 200

    async def told() -> bool:
        answer = await edge_host.post(edge_host.token(old), heartbeat(), edges.HEARTBEAT)
        return bool(answer.status_code == 200 and answer.json()["replaced_by"] == new["kid"])

    await until(told)
    assert (
        await edge_host.post(edge_host.token(new), heartbeat(), edges.HEARTBEAT)
    ).status_code == 204


async def test_a_revoked_key_is_refused_within_seconds_and_another_code_lets_the_edge_in(
    edge_host: EdgeHost,
) -> None:
    await edge_host.enroll()
    assert (await edge_host.post(edge_host.token())).status_code == 202
    assert "revoked" in await edge_host.run("edge", "revoke", CLUSTER)
    await until(lambda: _answered(edge_host, edge_host.token(), 401), within_s=keyring.CACHE_S + 30)
    refused(await edge_host.post(edge_host.token()), 401, "was revoked")
    body = {"public_key": tokens.public_part(tokens.new_key())}
    refused(await edge_host.post(edge_host.token(), body, edges.ROTATE), 401, "was revoked")
    assert (await edge_host.client.get(edges.JWKS)).json() == {"keys": []}
    assert "no good key" in await edge_host.run("edge", "revoke", CLUSTER, code=1)
    edge_host.key_file.unlink()
    await edge_host.enroll()
    assert (await edge_host.post(edge_host.token())).status_code == 202
    assert edge_host.site.rows("select action from edge_actions order by at") == [
        ("invite",), ("enroll",), ("revoke",), ("invite",), ("enroll",),
    ]  # fmt: skip


async def test_an_edge_of_two_tenants_can_lose_one_of_them(edge_host: EdgeHost) -> None:
    await edge_host.enroll(await edge_host.invite("t-001", "t-002"))
    both = {"events": [event(), event(tenant_id="t-002")]}
    token = edge_host.token(tenants=["t-001", "t-002"])
    assert (await edge_host.post(token, both)).status_code == 202
    await edge_host.run("edge", "revoke", CLUSTER, "--tenant", "t-002")
    await until(lambda: _answered(edge_host, token, 403))
    refused(await edge_host.post(token, both), 403, "t-002")
    assert (await edge_host.post(edge_host.token())).status_code == 202


async def test_edge_token_gets_503_while_the_database_is_away(cloud: CloudSite) -> None:
    """While the database is away the edge is told to wait, not that its key is bad."""
    private = tokens.new_key()
    token = tokens.sign(
        private,
        subject=CLUSTER,
        issuer=cloud.settings.token_issuer,
        audience=cloud.settings.token_audience,
        now=datetime.now(UTC),
    )
    server = http.HttpServer(title="test", version="0")
    async with db.pool("postgresql://127.0.0.1:9/x", name="test", timeout_s=0.1) as away:

        async def identify(request: Request) -> None:
            await keyring.Keyring(cloud.settings, away).identify(request)

        server.app.add_api_route("/identify", identify)
        transport = httpx2.ASGITransport(app=server.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://cloud") as client:
            response = await client.get("/identify", headers={"authorization": f"Bearer {token}"})
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")


async def _answered(edge_host: EdgeHost, token: str, status: int) -> bool:
    return bool((await edge_host.post(token)).status_code == status)


def heartbeat(**changes: Any) -> dict[str, Any]:
    return {
        "tenant_id": "t-001",
        "sent_at": datetime.now(UTC).isoformat(),
        "versions": {"farmiq": "1"},
        "waiting": 7,
        "oldest_s": 1.5,
        "dlq": 0,
        "disk_percent": 42.0,
        **changes,
    }


def person(site: CloudSite, tenant: str) -> str:
    with databases.connected(site.database.admin_url) as connection:
        found = connection.execute(
            "select company_id from companies where tenant_id = %s", (tenant,)
        ).fetchone()
        assert found
        email = f"a@{tenant}.farm"
        add_user(connection, email, company_id=found[0], password="long enough 1")
        return open_sign_in(connection, email, lasts=timedelta(hours=1))


async def test_the_last_heartbeat_of_an_edge_is_kept_and_shown_to_its_company(
    edge_host: EdgeHost,
) -> None:
    await edge_host.enroll()
    late = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    for body in (heartbeat(waiting=900), heartbeat(sent_at=late)):
        assert (await edge_host.post(edge_host.token(), body, edges.HEARTBEAT)).status_code == 204
    seen = {}
    for tenant in ("t-001", "t-002"):
        header = {"authorization": f"Bearer {person(edge_host.site, tenant)}"}
        seen[tenant] = (await edge_host.client.get(edges.ROOT, headers=header)).json()["edges"]
    assert seen["t-002"] == []
    (found,) = seen["t-001"]
    assert (found["edge_cluster_id"], found["state"]) == (CLUSTER, "heard")
    assert [key["good"] for key in found["keys"]] == [True]
    assert found["heartbeat"]["waiting"] == 7
    assert -320 < found["heartbeat"]["clock_offset_s"] <= -300
    assert "waiting 7" in await edge_host.run("edge", "ls")
    moved(edge_host.site, timedelta(minutes=4))
    assert "SILENT" in await edge_host.run("edge", "ls", code=3)
    async with db.pool(edge_host.site.database.url, name="test") as pool:
        await registry.watch(pool)
    assert registry.EDGES.labels(state="silent")._value.get() == 1
    refused(await edge_host.client.get(edges.ROOT), 401, "sign in")


async def test_a_heartbeat_is_taken_of_ones_own_tenant_only(edge_host: EdgeHost) -> None:
    await edge_host.enroll()
    refused(
        await edge_host.post(edge_host.token(), heartbeat(tenant_id="t-002"), edges.HEARTBEAT),
        403,
        "t-",
    )
    for odd in (
        {"waiting": -1}, {"disk_percent": 101}, {"sent_at": "0001-01-01T00:00:00+14:00"},
        {"versions": {"x": "y" * 65}}, {"oldest_s": None},
    ):  # fmt: skip
        refused(
            await edge_host.post(edge_host.token(), heartbeat(**odd), edges.HEARTBEAT),
            400,
            "not valid",
        )
    assert edge_host.site.rows("select count(*) from edge_heartbeats") == [(0,)]

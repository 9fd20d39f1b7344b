"""Whatever is asked of the cloud's API is answered as its document says; nothing makes it fail."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.contracts import openapi
from tests import any_request
from tests.any_request import Known
from tests.integration.cloud.conftest import CloudSite, event
from tests.integration.cloud.test_deadletter import PILE, bury
from tests.integration.cloud.test_landing import sample, written

__all__ = ["bury"]  # the fixture: letters where a consumer would have put them


@pytest.fixture
def site(
    cloud: CloudSite, bury: Callable[..., Coroutine[Any, Any, None]], tmp_path: Path
) -> Iterator[any_request.Site]:
    lots = [sample("feed.lot.received") for _ in range(20)]
    asyncio.run(bury(*map(written, lots)))
    with psycopg.connect(cloud.database.admin_url) as connection:
        one = add_company(connection, "t-001", name="One")
        add_user(
            connection, "super@example.com", company_id=one, password="long enough 1",
            role="admin", super_admin=True,
        )  # fmt: skip
        token = open_sign_in(connection, "super@example.com", lasts=timedelta(hours=1))
    settings = cloud.settings
    environment = {
        "FARMIQ_CLOUD_DB_URL": cloud.database.url,
        "FARMIQ_AMQP_URL": settings.amqp_url.get_secret_value(),
        "FARMIQ_EDGE_KEYS_FILE": str(settings.edge_keys_file),
        "FARMIQ_CLOUD_HTTP_PORT": str(settings.http_port),
        "API_ACTIONS_PER_MINUTE": "1000000",
    }
    document, url = openapi.document("cloud"), f"http://127.0.0.1:{settings.http_port}"
    with any_request.running("cloud", document, url, environment, tmp_path):
        yield any_request.Site(document, url, headers(cloud, token), known(lots))


def headers(cloud: CloudSite, token: str) -> dict[str, dict[str, str]]:
    return {
        "edgeToken": {"authorization": f"Bearer {cloud.token()}"},
        "signIn": {"cookie": f"farmiq_sign_in={token}"},
    }


def known(lots: list[dict[str, Any]]) -> dict[str, Known]:
    return {
        "POST /api/v1/ingestion/batch": Known(
            bodies=({"events": [event()]}, {"events": lots, "batchId": "b-1"})
        ),
        "GET /api/v1/dead-letters": Known(query={"queue": PILE}),
        "GET /api/v1/dead-letters/messages": Known(query={"queue": PILE}),
        "POST /api/v1/dead-letters/redrive": Known(bodies=({"queue": PILE, "limit": 1},)),
        "POST /api/v1/dead-letters/discard": Known(bodies=({"event_ids": [lots[0]["event_id"]]},)),
    }


@pytest.mark.req("XC-01")
def test_any_request_is_answered_as_documented(site: any_request.Site) -> None:
    found = site.ask(examples=21, at=1)
    any_request.assert_sound(found)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_requests_are_answered_as_documented(site: any_request.Site) -> None:
    found = site.ask(examples=1000, at=2)
    any_request.assert_sound(found)

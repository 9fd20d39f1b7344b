"""From a registered batch to a weighing that names it: cloud, edge, scale, cloud, API."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from farmiq.messages.topics import Place
from tests.flow.test_weighings import publish
from tests.integration.edge.weighvision.conftest import Weighing, station
from tests.support import devices
from tests.support.farm import PASSWORD, TENANT, Farm, ask
from tests.support.until import until

SCALE = Place(TENANT, "hill-farm", "barn-1", "scale-1")
LATE = Place(TENANT, "hill-farm", "barn-2", "scale-2")
NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
async def farm(two_sites: Farm) -> Farm:
    two_sites.environment["SYNC_CONTEXT_SECONDS"] = "0.5"
    devices.register(
        two_sites.edge_db.admin_url,
        [devices.at(place, kind="station", station_id=station(place)) for place in (SCALE, LATE)],
    )
    for site in ("cloud", "edge"):
        two_sites.start(site)
    await two_sites.until_ready()
    return two_sites


class Admin:
    """A person of the company, over HTTP."""

    def __init__(self, farm: Farm) -> None:
        added = farm.cli(
            "user",
            "add",
            "a@hillside.farm",
            "--tenant",
            TENANT,
            "--role",
            "admin",
            "--password",
            PASSWORD,
            "--json",
        )
        assert added.returncode == 0, added.stdout + added.stderr
        made = farm.cli("user", "token", "a@hillside.farm", "--json")
        assert made.returncode == 0, made.stdout + made.stderr
        self._url = farm.url("cloud") + "/api/v1/"
        self._headers = {"Authorization": f"Bearer {json.loads(made.stdout)['token']}"}

    def put(self, path: str, **values: Any) -> None:
        answer = ask.put(self._url + path, json=values, headers=self._headers)
        assert answer.status_code == 201, answer.text

    def weighings(self) -> dict[str, str | None]:
        """batch_id by session."""
        answer = ask.get(self._url + "weighvision/sessions", headers=self._headers)
        assert answer.status_code == 200, answer.text
        return {row["session_id"]: row["batch_id"] for row in answer.json()["sessions"]}


@pytest.mark.timeout(300)
@pytest.mark.req("RB-28")
async def test_weighing_without_a_batch_is_of_the_one_registered_in_its_barn(farm: Farm) -> None:
    admin = Admin(farm)
    admin.put("farms/hill-farm", name="Hill Farm", timezone="Asia/Bangkok")
    placed = {"farm_id": "hill-farm", "species": "broiler", "placed_count": 9000}
    placed["placed_on"] = str(NOW.date() - timedelta(days=20))
    for barn in ("barn-1", "barn-2"):
        admin.put(f"barns/hill-farm/{barn}", name=barn)
    admin.put("batches/2026-07", barn_id="barn-1", **placed)
    await until(lambda: farm.edge("select batch_id from cloud_batches") == [("2026-07",)])
    # While the cloud is away the edge works on with its copy.
    farm.kill("cloud")
    one, late = (Weighing(place=place, at=NOW - timedelta(minutes=1)) for place in (SCALE, LATE))
    await publish(farm, [one.created(batch_id=None), one.weight(1.2), one.finalized()])
    await publish(farm, [late.created(batch_id=None), late.weight(1.3), late.finalized()])
    stored = "select id::text, batch_id from weight_sessions"
    expected = {str(one.session_id): "2026-07", str(late.session_id): None}
    await until(lambda: dict(farm.edge(stored)) == expected, within_s=60)
    farm.start("cloud")
    await farm.until_ready("cloud")
    await until(lambda: admin.weighings() == expected, within_s=60)
    # Registered only now: the cloud finds it when somebody reads.
    admin.put("batches/2026-08", barn_id="barn-2", **placed)
    assert admin.weighings() == {**expected, str(late.session_id): "2026-08"}
    in_table = farm.cloud("select session_id::text, batch_id from weight_sessions")
    assert dict(in_table) == expected

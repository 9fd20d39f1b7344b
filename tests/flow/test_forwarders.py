"""Several forwarders of one edge share its outbox."""

import signal
from collections.abc import Callable

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.edge.sync.owed import owe_many
from tests.support.farm import TENANT, Farm
from tests.support.until import until

FORWARDER, CLOUD = "edge-sync-forwarder", "cloud-ingestion"
COUNT = 2000


def acked(farm: Farm, name: str) -> int:
    text = httpx2.get(f"{farm.url(name)}/metrics", timeout=30).text
    return sum(
        int(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "farmiq_sync_events_total" and sample.labels["outcome"] == "acked"
    )


@pytest.mark.timeout(300)
@pytest.mark.req("OB-18", "XC-04")
async def test_four_forwarders_deliver_every_event_once_between_them(
    idle_farm: Farm, free_port: Callable[[], int]
) -> None:
    farm = idle_farm
    # No lease ends while a busy machine looks away: what is settled twice was claimed twice.
    farm.environment |= {"SYNC_LEASE_SECONDS": "120", "SYNC_TIMEOUT_SECONDS": "60"}
    farm.start(CLOUD)
    forwarders = [f"forwarder {number}" for number in range(4)]
    for name in forwarders:
        farm.ports[name] = free_port()
        farm.start(FORWARDER, called=name)
    await farm.until_ready()
    # A cloud that answers nobody: each of them has its hands full before one can have sent all.
    farm.running[CLOUD].send_signal(signal.SIGSTOP)
    owe_many(farm.edge_db, COUNT, tenant_id=TENANT)
    claimants = (
        "select count(distinct claimed_by) from sync_outbox where status in ('claimed', 'sending')"
    )
    await until(lambda: farm.edge(claimants) == [(4,)])
    farm.running[CLOUD].send_signal(signal.SIGCONT)
    left = "select count(*) from sync_outbox where status <> 'acked'"
    await until(lambda: farm.edge(left) == [(0,)], within_s=120)
    # `sync.batch` events are the cloud's own and pass no door.
    assert farm.cloud("select count(*) from ingestion_dedupe") == [(COUNT,)]
    assert farm.cloud("select count(*) from event_conflicts") == [(0,)]
    await until(lambda: sum(acked(farm, name) for name in forwarders) == COUNT)
    shares = {name: acked(farm, name) for name in forwarders}
    assert all(shares.values()), shares

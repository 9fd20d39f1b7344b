"""Our NATS client, at a real server."""

from urllib.parse import urlsplit

from farmiq.lab import stack
from farmiq.lab.simulate.link import linked
from farmiq.plumbing.messaging import nats
from tests.support.sockets import open_sockets
from tests.support.until import until


async def test_server_that_reads_nothing_keeps_no_socket_of_ours(broker: stack.Stack) -> None:
    """As one that is frozen: what we wrote stays unsent, and nobody ever hears our goodbye."""
    parts = urlsplit(broker.environment["FARMIQ_EDGE_INGRESS_URL"])
    async with linked(parts.hostname or "", parts.port or 0) as link:
        login = parts.netloc.rpartition("@")[0]
        address = parts._replace(netloc=f"{login}@127.0.0.1:{link.port_here}")
        async with nats.connected(address.geturl()) as server:
            link.delay_s = 3600.0
            sockets = open_sockets()
            for _ in range(64):
                server.publish("iot.ack.t.f.b.d", bytes(256 * 1024))
        await until(lambda: open_sockets() == sockets - 1)

"""Free ports for servers of tests: another worker never picks the same one."""

import os

from farmiq.stack import ports

_SHARES = 16
_given: set[int] = set()


def free_port() -> int:
    """Never in the range of outgoing connections: one of those could take it before the server."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    while True:
        port = ports.single(share=int(worker.removeprefix("gw")) % _SHARES, of=_SHARES)
        if port not in _given:
            _given.add(port)
            return port

"""Free ports for servers of tests: another worker never picks the same one."""

import os
from collections import deque

from farmiq.lab.stack import ports

_SHARES = 8
# Given lately: what was picked may not be listened to yet. Few of a share's 750, so none runs out.
_given: deque[int] = deque(maxlen=200)


def free_port() -> int:
    """Never in the range of outgoing connections: one of those could take it before the server."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    share = int(worker.removeprefix("gw")) % _SHARES
    port = ports.single(share=share, of=_SHARES, but=_given)
    _given.append(port)
    return port

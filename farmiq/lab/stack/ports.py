"""Ports of a stack: one block of neighbouring ports, the same one at every start.

They lie below the range that the kernel gives to outgoing connections. Inside it a client that
keeps reconnecting to a stopped engine may be given the engine's own port and take it.
"""

import contextlib
import random
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

from farmiq.lab.stack.engine import HOST, StackError

BLOCK = 32
LOWEST = 12_000
# Below the blocks: for single ports outside a stack.
SINGLE = range(6_000, LOWEST)
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def blocks(ephemeral_from: int) -> list[int]:
    """Return the first port of every block that may be used."""
    highest = ephemeral_from if ephemeral_from >= LOWEST + 100 * BLOCK else 60_000
    return list(range(LOWEST, highest - BLOCK, BLOCK))


def layout(base: int, names: Collection[str]) -> dict[str, int]:
    """Give each name its port; the first port of the block is the guard's."""
    if len(names) >= BLOCK:
        raise StackError(
            f"{len(names)} ports do not fit into a block of {BLOCK}: raise ports.BLOCK."
        )
    return {name: base + offset for offset, name in enumerate(names, start=1)}


def is_free(port: int) -> bool:
    """Say whether a server could listen there now, as servers do (SO_REUSEADDR)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((HOST, port))
        except OSError:
            return False
    return True


def single(*, share: int = 0, of: int = 1, but: Collection[int] = ()) -> int:
    """A free port outside all blocks; those who pick at the same time take different shares."""
    mine = [port for port in SINGLE if port % of == share and port not in but]
    for port in random.sample(mine, k=len(mine)):
        if is_free(port):
            return port
    raise StackError(
        f"No free port from {SINGLE.start} to {SINGLE.stop} on {HOST}: stop some servers."
    )


@contextlib.contextmanager
def reserved(
    names: Collection[str], needed: Collection[str], *, before: int | None
) -> Iterator[int]:
    """Yield the base of a block whose needed ports are free: the one used before if possible.

    While inside, no other stack on this machine is given the same block.
    """
    candidates = blocks(int(EPHEMERAL.read_text().split()[0]))
    random.shuffle(candidates)
    for base in ([before] if before else []) + candidates:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as guard:
            try:
                guard.bind((HOST, base))
            except OSError:
                continue
            ports = layout(base, names)
            if all(is_free(ports[name]) for name in needed):
                yield base
                return
    raise StackError(
        f"No {BLOCK} neighbouring free ports on {HOST}: stop some servers and start again."
    )

"""Addresses that name the nodes of a cluster: `scheme://login@a:1,b:2,c:3/path`."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

T = TypeVar("T")


def split(url: str) -> list[str]:
    """The address of every node, in the order in which they are written."""
    parts = urlsplit(url)
    login, at, nodes = parts.netloc.rpartition("@")
    return [
        urlunsplit(parts._replace(netloc=f"{login}{at}{node.strip()}")) for node in nodes.split(",")
    ]


async def first(
    url: str,
    connect: Callable[[str], Awaitable[T]],
    *,
    failed: tuple[type[Exception], ...],
    within_s: float,
) -> T:
    """What the first node that answers gives. Raises what the last one raised, or TimeoutError.

    They are asked in an order of chance, so that clients spread over the nodes.
    """
    nodes = split(url)
    passing: tuple[type[Exception], ...] = (*failed, TimeoutError)
    random.shuffle(nodes)
    for node in nodes[:-1]:
        try:
            async with asyncio.timeout(within_s / len(nodes)):
                return await connect(node)
        except passing:
            continue
    async with asyncio.timeout(within_s / len(nodes)):
        return await connect(nodes[-1])

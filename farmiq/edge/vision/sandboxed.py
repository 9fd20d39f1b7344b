"""Asks the worker process of vision (worker.py), which alone loads image libraries."""

import asyncio
from typing import Any

from farmiq.plumbing.sandbox import InputRejectedError, Limits, Result, Sandbox, WorkerGoneError

# Libraries of numbers start as many threads as there are cores, each with memory of its own.
WORKER = Sandbox(
    "farmiq.edge.vision.worker",
    environment={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    wall_s=60.0,
)
LIMITS = Limits(memory_bytes=600 * 2**20, cpu_s=30)


async def call(operation: str, data: bytes, **arguments: Any) -> Result:
    """What the worker makes of the input.

    Raises InputRejectedError, or WorkerGoneError if no worker works at all.
    """
    try:
        return await asyncio.to_thread(WORKER.call, operation, data, limits=LIMITS, **arguments)
    except WorkerGoneError:
        # Two workers ended with it. If a third one answers, it was this input.
        await asyncio.to_thread(WORKER.call, "ping", b"", limits=LIMITS)
        raise InputRejectedError("it ended the worker twice and is set aside") from None

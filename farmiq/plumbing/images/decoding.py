"""Decode pictures in a process of its own (plumbing/sandbox.py); nothing here loads a codec.

caller's thread --one picture--> [decoding] --sandbox--> decoding_worker --> result, or DecodeError
"""

from typing import Any

from farmiq.plumbing import sandbox
from farmiq.plumbing.sandbox import Limits, TooCostlyError

__all__ = ["DecodeError", "Decoded", "DecoderGoneError", "Limits", "TooCostlyError", "decode"]

Decoded = sandbox.Result
DecodeError = sandbox.InputRejectedError
DecoderGoneError = sandbox.WorkerGoneError

DECODER = sandbox.Sandbox("farmiq.plumbing.images.decoding_worker")


def decode(operation: str, data: bytes, *, limits: Limits, **arguments: Any) -> Decoded:
    """Do `operation` of decoding_worker with the picture. A thread's work.

    Raises DecodeError for the picture, DecoderGoneError for what is not its fault.
    """
    return DECODER.call(operation, data, limits=limits, **arguments)

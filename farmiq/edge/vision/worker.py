"""The process that looks at images for edge-vision-inference (plumbing/sandbox.py).

It alone loads OpenCV, onnxruntime and numpy, and ends when nothing is to be done.
"""

from datetime import datetime
from functools import lru_cache
from pathlib import Path

import cv2
import msgspec

from farmiq.farm.vision import estimate, explain, frames, model, monitor, training
from farmiq.farm.vision.estimate import Estimate
from farmiq.farm.vision.explain import Neighbour
from farmiq.farm.vision.features import Measurement
from farmiq.farm.vision.manifest import Manifest, Scope
from farmiq.farm.vision.mask import Image
from farmiq.farm.vision.training import Example, NotEnough
from farmiq.plumbing import sandbox_worker
from farmiq.plumbing.images import pictures
from farmiq.plumbing.sandbox import InputRejectedError
from farmiq.plumbing.sandbox_worker import Made, Operations

# Below everything that takes in what devices send.
NICE = 15


def _ping(_: bytes) -> Made:
    """Whether it works at all, whatever the last input did to it."""
    return {}, b""


def _measure(data: bytes, *, reference_bytes: int) -> Made:
    """One frame; `data` begins with so many bytes of the empty scale's picture."""
    reference = data[:reference_bytes] or None
    measured = frames.measure(data[reference_bytes:], reference=reference)
    return msgspec.to_builtins(measured), b""


def _reference(data: bytes) -> Made:
    return {"problem": frames.problem_of_reference(data)}, b""


def _monitor(data: bytes, *, state_bytes: int) -> Made:
    """One image of a series; `data` begins with so many bytes of what is known of its camera."""
    observed = monitor.monitor(data[state_bytes:], data[:state_bytes] or None)
    facts = msgspec.to_builtins(msgspec.structs.replace(observed, state=None))
    return facts, observed.state or b""


def _estimate(data: bytes, *, folder: str | None) -> Made:
    """The estimate from the measurements of a session's frames, by the model in this folder."""
    measurements = msgspec.json.decode(data, type=list[Measurement])
    try:
        loaded = _load(folder) if folder else None
    except (model.ModelError, OSError) as error:
        raise InputRejectedError(f"the model in {folder} cannot be used: {error}") from None
    return msgspec.to_builtins(estimate.estimate(measurements, loaded)), b""


@lru_cache(maxsize=8)
def _load(folder: str) -> model.Model:
    """A folder is named after its content: it never changes."""
    loaded = model.load(Path(folder))
    if loaded.version != Path(folder).name:
        raise model.ModelError("its files are not those of this version")
    return loaded


class TrainingRequest(msgspec.Struct, frozen=True, kw_only=True):
    examples: list[Example]
    scope: Scope
    cut_off: datetime
    current: Manifest | None
    current_mape: float | None


def _train(data: bytes) -> Made:
    """The files of a new model, and whether it is to be used: `active` or `shadow`."""
    request = msgspec.json.decode(data, type=TrainingRequest)
    trained = training.train(request.examples, scope=request.scope, cut_off=request.cut_off)
    if isinstance(trained, NotEnough):
        raise InputRejectedError(trained.reason)
    decision = training.decide(trained, request.current, current_mape=request.current_mape)
    manifest = msgspec.json.encode(trained.manifest)
    facts = {
        "version": model.version(manifest, trained.head),
        "manifest": manifest.decode(),
        "state": "active" if decision.state == "promoted" else "shadow",
        "reason": decision.reason,
    }
    return facts, trained.head


class Near(msgspec.Struct, frozen=True, kw_only=True):
    """A weighing that the model has learned from; `image` is empty if it is gone."""

    name: str
    weight_kg: float
    distance: float
    image: bytes


class ExplainRequest(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    estimate: Estimate
    manifest: Manifest | None
    image: bytes
    reference: bytes
    weight_kg: float | None
    neighbours: list[Near]


def _explain(data: bytes) -> Made:
    """One picture of an estimate that was made."""
    request = msgspec.msgpack.decode(data, type=ExplainRequest)
    picture = explain.draw(
        frames.look(request.image, reference=request.reference or None),
        request.estimate,
        request.manifest,
        [
            Neighbour(near.name, near.weight_kg, near.distance, _frame(near.image))
            for near in request.neighbours
        ],
        title=request.title,
        weight_kg=request.weight_kg,
    )
    return {}, picture


def _frame(data: bytes) -> Image | None:
    try:
        return frames.decode(data)
    except pictures.UnreadableError:
        return None


OPERATIONS: Operations = {
    "ping": _ping,
    "measure": _measure,
    "reference": _reference,
    "monitor": _monitor,
    "estimate": _estimate,
    "train": _train,
    "explain": _explain,
}

if __name__ == "__main__":
    cv2.setNumThreads(1)
    sandbox_worker.main(OPERATIONS, nice=NICE)

"""A model on disk: manifest.json and head.onnx. Nothing else is ever loaded, no pickle above all.

head.onnx takes `features` [N, F], or `image` [N, 3, H, W] (RGB, 0 to 1), and gives `log_weight`
[N, 1]: the natural logarithm of the weight in kg. It is read from bytes, so that it cannot name
other files.
"""

import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

from farmiq.farm.vision.features import FEATURES
from farmiq.farm.vision.manifest import Manifest

MANIFEST, HEAD = "manifest.json", "head.onnx"
MAX_MANIFEST_BYTES, MAX_HEAD_BYTES = 2**20, 128 * 2**20
OUTPUT = "log_weight"
MAX_LOG_KG = 20.0


class ModelError(Exception):
    """The folder holds no model that can be used; the text says why."""


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """A model before it is written: its manifest and the bytes of head.onnx."""

    manifest: Manifest
    head: bytes

    @property
    def version(self) -> str:
        return version(_encode(self.manifest), self.head)


class Model:
    """A loaded model; one thread, as a barn's box has other work."""

    def __init__(self, manifest: Manifest, head: bytes, *, version: str) -> None:
        self.manifest = manifest
        self.version = version
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(
                head, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001 - whatever the runtime makes of a file
            raise ModelError(f"head.onnx cannot be loaded: {error}"[:300]) from None
        self._check()

    def predict(self, features: Sequence[float]) -> float:
        """The weight in kg; nan where the model gives no number."""
        return math.exp(self._run(np.asarray([features], dtype=np.float32)))

    def predict_image(self, image: NDArray[np.float32]) -> float:
        """The natural logarithm of the weight; `image` is [3, H, W], RGB, 0 to 1."""
        return self._run(image[np.newaxis])

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width that an image must have; None if it takes features."""
        if self.manifest.input == "features":
            return None
        height, width = self._session.get_inputs()[0].shape[2:]
        return int(height), int(width)

    def _run(self, value: NDArray[np.float32]) -> float:
        (answer,) = self._session.run([OUTPUT], {self.manifest.input: value})
        log_kg = float(np.asarray(answer).reshape(-1)[0])
        return min(log_kg, MAX_LOG_KG) if math.isfinite(log_kg) else math.nan

    def _check(self) -> None:
        inputs = [entry.name for entry in self._session.get_inputs()]
        outputs = [entry.name for entry in self._session.get_outputs()]
        if inputs != [self.manifest.input] or OUTPUT not in outputs:
            raise ModelError(
                f"head.onnx takes {inputs} and gives {outputs}; the manifest wants "
                f"[{self.manifest.input!r}] and [{OUTPUT!r}]"
            )
        shape = self._session.get_inputs()[0].shape
        if self.manifest.input == "image" and not (
            len(shape) == len("NCHW") and all(isinstance(side, int) for side in shape[1:])
        ):
            raise ModelError(f"head.onnx takes images of shape {shape}; wanted [N, 3, H, W]")


def of(trained: Trained) -> Model:
    """The model without a folder."""
    return Model(trained.manifest, trained.head, version=trained.version)


def load(folder: Path) -> Model:
    """The model in a folder. Raises ModelError, and OSError where a file is missing."""
    manifest = _read(folder / MANIFEST, MAX_MANIFEST_BYTES)
    head = _read(folder / HEAD, MAX_HEAD_BYTES)
    try:
        parsed = msgspec.json.decode(manifest, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ModelError(f"manifest.json cannot be read: {error}"[:300]) from None
    return Model(parsed, head, version=version(manifest, head))


def save(trained: Trained, folder: Path) -> str:
    """Write manifest.json and head.onnx into a folder, the manifest last; return the version."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ((HEAD, trained.head), (MANIFEST, _encode(trained.manifest))):
        passing = folder / f".{name}"
        with passing.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        passing.replace(folder / name)
    return trained.version


def version(manifest: bytes, head: bytes) -> str:
    """A hash over both files."""
    whole = hashlib.sha256(len(manifest).to_bytes(8, "big") + manifest + head)
    return whole.hexdigest()[:16]


def linear_head(coefficients: Sequence[float], intercept: float) -> bytes:
    """head.onnx of a linear model: log_weight = features · coefficients + intercept."""
    weights = np.asarray(coefficients, dtype=np.float32).reshape(-1, 1)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["features", "weights", "intercept"], [OUTPUT])],
        "log_ridge",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", len(FEATURES)])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["N", 1])],
        [
            onnx.numpy_helper.from_array(weights, "weights"),
            onnx.numpy_helper.from_array(np.array([intercept], dtype=np.float32), "intercept"),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString(deterministic=True))


def _encode(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def _read(path: Path, max_bytes: int) -> bytes:
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ModelError(f"{path.name} is larger than {max_bytes} bytes")
    return content

"""A model on disk: what is written is what is used, and nothing else is loaded."""

import pickle
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from farmiq.farm.vision import estimate, frames, model
from farmiq.farm.vision.features import Measurement
from farmiq.farm.vision.model import ModelError, Trained
from tests.unit.farm.vision import simulated


@pytest.fixture(scope="module")
def trained() -> Trained:
    return simulated.trained(simulated.examples(30, seed=1))


def test_loaded_model_says_what_the_trained_one_said(trained: Trained, tmp_path: Path) -> None:
    version = model.save(trained, tmp_path)
    loaded = model.load(tmp_path)
    features = simulated.examples(1, seed=2)[0].features

    assert loaded.version == version == trained.version
    assert loaded.manifest == trained.manifest
    assert loaded.predict(features) == pytest.approx(model.of(trained).predict(features))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head.onnx", "manifest.json"]


def test_version_changes_with_either_file(trained: Trained, tmp_path: Path) -> None:
    version = model.save(trained, tmp_path)
    manifest = tmp_path / "manifest.json"
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    assert model.load(tmp_path).version != version


@pytest.mark.parametrize("content", [b"", b"\x00" * 99, pickle.dumps({"a": 1})])
@pytest.mark.parametrize("name", ["head.onnx", "manifest.json"])
def test_file_that_is_none_of_ours_is_refused(
    name: str, content: bytes, trained: Trained, tmp_path: Path
) -> None:
    model.save(trained, tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=name):
        model.load(tmp_path)


def test_manifest_beyond_its_limit_is_refused(trained: Trained, tmp_path: Path) -> None:
    model.save(trained, tmp_path)
    (tmp_path / "manifest.json").write_bytes(b" " * (model.MAX_MANIFEST_BYTES + 1))
    with pytest.raises(ModelError, match="larger"):
        model.load(tmp_path)


def image_head(name: str = "image") -> bytes:
    """A network as a user may bring one: the mean of an image is the logarithm of its weight."""
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", [name], ["mean"], axes=[1, 2, 3], keepdims=0),
            helper.make_node("Reshape", ["mean", "shape"], ["log_weight"]),
        ],
        "own",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3, 32, 40])],
        [helper.make_tensor_value_info("log_weight", TensorProto.FLOAT, ["N", 1])],
        [onnx.numpy_helper.from_array(np.array([-1, 1], dtype=np.int64), "shape")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


def test_network_that_takes_images_fits_the_same_slot(trained: Trained, tmp_path: Path) -> None:
    manifest = msgspec.structs.replace(
        trained.manifest, input="image", min_weight_kg=1.0, max_weight_kg=3.0
    )
    model.save(Trained(manifest=manifest, head=image_head()), tmp_path)
    own = model.load(tmp_path)
    grey = np.full((60, 80, 3), 128, np.uint8)
    features = simulated.examples(1, seed=3)[0].features
    frame = Measurement(
        features=features,
        quality=simulated.GOOD,
        problem=None,
        log_weight=frames.log_weight_by_image(grey, own),
    )

    assert own.image_size == (32, 40)
    answer = estimate.estimate([frame], own)
    assert answer.predicted_weight_kg == pytest.approx(np.exp(128 / 255), rel=1e-3)
    without = msgspec.structs.replace(frame, log_weight=None)
    assert estimate.estimate([without], own).reason == "no_prediction"


def test_network_with_other_names_is_refused(trained: Trained, tmp_path: Path) -> None:
    manifest = msgspec.structs.replace(trained.manifest, input="image")
    model.save(Trained(manifest=manifest, head=image_head("picture")), tmp_path)
    with pytest.raises(ModelError, match="picture"):
        model.load(tmp_path)

"""`farmiq vision`: how good weights from images are, and why one was estimated as it was."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farmiq.cli import terminal, vision_models

if TYPE_CHECKING:
    from farmiq.farm.vision.estimate import Estimate
    from farmiq.farm.vision.evaluation import Evaluation, Session
    from farmiq.farm.vision.mask import Image

app = terminal.Group("Weights from images: how good they are, and why.", shared=terminal.JSON)

# These ask the edge's database.
app.command("train", shared=terminal.STACK_AND_JSON)(vision_models.train)
app.command("models", shared=terminal.STACK_AND_JSON)(vision_models.models)
app.command("promote", shared=terminal.STACK_AND_JSON)(vision_models.promote)

ENDINGS = {".jpg", ".jpeg", ".png", ".webp"}
Folder = Annotated[
    Path,
    typer.Argument(
        help="Folders of images, one for each animal; weights.csv with the folder's name in its "
        "first column and weight_kg; reference.jpg of the empty scale, if there is one."
    ),
]
Calibration = Annotated[
    float | None, typer.Option("--mm-per-pixel", min=0.001, max=1000, help="If it is known.")
]


@app.command("evaluate", value_error=2)
def evaluate(folder: Folder, *, mm_per_pixel: Calibration = None) -> int:
    """Say how well each animal is weighed by a model that has learned from the others.

    The error is the mean of |estimate / weight - 1|. The baseline is the mean weight of the others.
    Exit code 3: there are too few animals, or the camera is not better than the baseline.
    """
    from farmiq.farm.vision import evaluation

    result = evaluation.evaluate(_sessions(folder, mm_per_pixel))
    terminal.print_result(_figures(result), *_lines(result))
    is_better = result.mape is not None and result.mape < (result.baseline_mape or 0.0)
    return 0 if is_better else 3


@app.command("explain", value_error=2, shared=terminal.STACK_AND_JSON)
def explain(
    folder: Annotated[
        Path | None, typer.Argument(help="As that of evaluate, for an animal in it.")
    ] = None,
    animal: Annotated[
        str | None, typer.Argument(help="The folder of the animal to explain.")
    ] = None,
    *,
    session: Annotated[
        str | None, typer.Option(help="Instead, a weighing of this edge by its id.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The PNG to write.")] = Path("explain.png"),
    mm_per_pixel: Calibration = None,
) -> int:
    """Write one picture: frame, mask, features, neighbours, estimate with its interval.

    Of a weighing of this edge (--session) it shows the estimate that was made then; of an animal in
    a folder that of a model which has learned from all others. Exit code 3: no estimate.
    """
    if session is not None and folder is None:
        answer = vision_models.explain(session, out)
    elif session is None and folder is not None and animal is not None:
        answer = _explain_animal(folder, animal, out, mm_per_pixel)
    else:
        raise ValueError("name a folder and an animal in it, or a weighing with --session alone")
    kg = answer.predicted_weight_kg
    terminal.print_result(
        {
            "out": out,
            "predicted_weight_kg": kg,
            "confidence": answer.confidence,
            "reason": answer.reason,
        },
        f"{out}: " + (f"no estimate: {answer.reason}" if kg is None else f"{kg:.3f} kg"),
    )
    return 0 if kg is not None else 3


def _explain_animal(folder: Path, animal: str, out: Path, mm_per_pixel: float | None) -> "Estimate":
    from farmiq.farm.vision import estimate, evaluation, frames, model, training
    from farmiq.farm.vision import explain as explaining
    from farmiq.farm.vision.manifest import Scope

    sessions = _sessions(folder, mm_per_pixel)
    session = next((item for item in sessions if item.name == animal), None)
    if session is None:
        raise ValueError(f"weights.csv in {folder} has no {animal!r}")
    others = [
        example
        for item in sessions
        if item.name != animal and (example := evaluation.example(item))
    ]
    trained = training.train(
        others,
        scope=Scope(camera_id="evaluation", species="any"),
        cut_off=session.at,
        mm_per_pixel=mm_per_pixel,
    )
    fitted = None if isinstance(trained, training.NotEnough) else model.of(trained)
    answer = estimate.estimate(session.measurements, fitted)
    neighbours = []
    if fitted is not None and answer.features is not None:
        learned = [(item.session_id, item.weight_kg, item.features) for item in others]
        neighbours = [
            explaining.Neighbour(
                near.name, near.weight_kg, near.distance, _first_frame(folder / near.name)
            )
            for near in explaining.neighbours_of(answer.features, learned, fitted.manifest)
        ]
    images = _images(folder / animal)
    if not images:
        raise ValueError(f"{folder / animal} holds no image")
    picture = explaining.draw(
        frames.look(
            images[0].read_bytes(), reference=_reference(folder), mm_per_pixel=mm_per_pixel
        ),
        answer,
        fitted.manifest if fitted else None,
        neighbours,
        title=f"{animal}, {answer.frames_used} of {answer.frames_total} frames used",
        weight_kg=session.weight_kg,
    )
    out.write_bytes(picture)
    return answer


def _sessions(folder: Path, mm_per_pixel: float | None) -> "list[Session]":
    from datetime import UTC, datetime

    from farmiq.farm.vision import evaluation, frames

    reference = _reference(folder)
    sessions = []
    for name, weight_kg in _weights(folder / "weights.csv"):
        measurements = [
            frames.measure(image.read_bytes(), reference=reference, mm_per_pixel=mm_per_pixel)
            for image in _images(folder / name)
        ]
        sessions.append(
            evaluation.Session(
                name=name,
                group=name,
                at=datetime(2000, 1, 1, tzinfo=UTC),
                weight_kg=weight_kg,
                measurements=measurements,
            )
        )
    if not sessions:
        raise ValueError(f"{folder / 'weights.csv'} names no animal")
    return sessions


def _weights(path: Path) -> list[tuple[str, float]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    try:
        weights = [(next(iter(row.values())).strip(), float(row["weight_kg"])) for row in rows]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(f"{path} needs a column weight_kg with a number in every row") from None
    if bad := [name for name, kg in weights if not 0 < kg < 10_000]:  # noqa: PLR2004
        raise ValueError(f"{path}: the weight of {bad[0]!r} is not one of an animal")
    if odd := [name for name, _ in weights if not name or Path(name).name != name]:
        raise ValueError(f"{path}: {odd[0]!r} is not the name of a folder")
    return weights


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix.lower() in ENDINGS)


def _reference(folder: Path) -> bytes | None:
    result = [path for path in _images(folder) if path.stem == "reference"]
    return result[0].read_bytes() if result else None


def _first_frame(folder: Path) -> "Image | None":
    from farmiq.farm.vision import frames
    from farmiq.plumbing.images import pictures

    for path in _images(folder):
        try:
            return frames.decode(path.read_bytes())
        except pictures.UnreadableError:
            continue
    return None


def _figures(result: "Evaluation") -> dict[str, object]:
    import msgspec

    return {
        name: value for name, value in msgspec.to_builtins(result).items() if name != "predictions"
    } | {
        "animals": [
            {
                "animal": item.name,
                "weight_kg": item.weight_kg,
                "predicted_weight_kg": item.estimate.predicted_weight_kg,
                "low_kg": item.estimate.low_kg,
                "high_kg": item.estimate.high_kg,
                "confidence": item.estimate.confidence,
                "reason": item.estimate.reason,
                "frames_used": item.estimate.frames_used,
            }
            for item in result.predictions
        ]
    }


def _lines(result: "Evaluation") -> list[str]:
    silent = ", ".join(f"{count} {reason}" for reason, count in result.silent.items())
    counts = f"{result.n_sessions}, {result.n_predicted} estimated"
    lines = [f"animals    {counts}; silent: {silent or 'none'}"]
    if result.mape is None:
        return lines
    return [
        *lines,
        f"error      {result.mape:.1%} (MAPE, each left out of the model)",
        f"baseline   {result.baseline_mape:.1%} (the mean of the others)",
        f"coverage   {_percent(result.coverage)} of the weights lie in their 90 % interval",
        f"order      rank correlation {result.rank_correlation:.2f}",
        f"confidence {_percent(result.confidence_right)} where the error was at most 5 %",
        f"           {_percent(result.confidence_wrong)} where it was more",
    ]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"

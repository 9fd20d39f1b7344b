"""Where a farm's life is written down, so that all of its simulators live the same one."""

from collections.abc import Sequence
from datetime import timedelta
from importlib import resources
from pathlib import Path

import msgspec

from farmiq.cloud.farms import kinds
from farmiq.lab.simulate.life.flocks import Life, Standard

CAPACITY, AREA_M2 = 5500, 320.0
TARGET_KG, TARGET_DAYS = 2.6, 38


def read(file: Path) -> Life:
    """Raises ValueError if the file is not one of a farm's life."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Life)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{file} is not the life of a simulated farm: {error}") from error


def write(file: Path, life: Life) -> None:
    """Whole or not at all."""
    draft = file.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(life))
    draft.replace(file)


def standards() -> list[kinds.BreedStandard]:
    """The example standard that is shipped: the birds of every simulated farm are of its breed."""
    text = (
        resources.files("farmiq.cloud.farms")
        .joinpath("example_breed_standard.csv")
        .read_text("utf-8")
    )
    return kinds.read(kinds.BREED_STANDARDS, text)


def standard() -> Standard:
    """The same, as a flock of both sexes lives by it.

    What chicks eat before the first age with a feed conversion follows their growth.
    """
    rows = [row for row in standards() if row.sex == "mixed"]
    weights = tuple(row.weight_kg or 0.0 for row in rows)
    known = next(index for index, row in enumerate(rows) if row.feed_conversion)
    eaten_kg = (rows[known].feed_conversion or 0.0) * weights[known]
    per_gain = eaten_kg / (weights[known] - weights[0])
    return Standard(
        ages=tuple(row.age_days for row in rows),
        weights_kg=weights,
        feed_kg=tuple(
            row.feed_conversion * weight
            if row.feed_conversion
            else per_gain * (weight - weights[0])
            for row, weight in zip(rows, weights, strict=True)
        ),
        mortality_pct=tuple(row.mortality_pct or 0.0 for row in rows),
    )


def masterdata(life: Life) -> list[tuple[kinds.Kind, Sequence[msgspec.Struct]]]:
    """What the cloud has to know of the farm, as a person would import it."""
    breed = standards()
    farm = kinds.Farm(farm_id=life.farm_id, name="Hill Farm", timezone=life.timezone)
    barns = [
        kinds.Barn(
            farm_id=life.farm_id,
            barn_id=flock.barn_id,
            name=flock.barn_id.replace("-", " ").capitalize(),
            capacity=CAPACITY,
            area_m2=AREA_M2,
        )
        for flock in life.flocks
    ]
    batches = [
        kinds.Batch(
            batch_id=flock.batch_id,
            farm_id=life.farm_id,
            barn_id=flock.barn_id,
            species=breed[0].species,
            breed=breed[0].breed,
            placed_count=flock.placed_count,
            placed_on=flock.placed_on,
            age_at_placing_days=0,
            target_weight_kg=TARGET_KG,
            target_on=flock.placed_on + timedelta(days=TARGET_DAYS),
        )
        for flock in life.flocks
    ]
    feed = kinds.FeedProduct(feed_product_id="grower", name="Grower", species=breed[0].species)
    return [
        (kinds.FARMS, [farm]),
        (kinds.BARNS, barns),
        (kinds.BATCHES, batches),
        (kinds.FEED_PRODUCTS, [feed]),
        (kinds.BREED_STANDARDS, breed),
    ]

"""Master data from CSV files: rows become structs, and every bad line is named."""

from datetime import date

import pytest

from farmiq.cloud.farms import kinds
from farmiq.cloud.farms.kinds import BARNS, BATCHES, BREED_STANDARDS, FARMS, METRICS, Kind
from farmiq.roster import Problem, RosterError


def problems(kind: Kind, text: str) -> list[Problem]:
    with pytest.raises(RosterError) as refused:
        kinds.read(kind, text)
    return refused.value.problems


def test_batch_with_empty_cells_takes_the_defaults() -> None:
    parsed = kinds.read(
        BATCHES,
        "batch_id,farm_id,barn_id,species,breed,placed_count,placed_on,target_weight_kg\n"
        "b-7,north,barn-1,broiler,,12000,2026-05-01,2.4\n",
    )
    assert parsed == [
        kinds.Batch(
            batch_id="b-7", farm_id="north", barn_id="barn-1", species="broiler",
            placed_count=12000, placed_on=date(2026, 5, 1), target_weight_kg=2.4,
        )
    ]  # fmt: skip


def test_every_bad_line_is_named_with_its_field() -> None:
    found = problems(
        BATCHES,
        "batch_id,farm_id,barn_id,species,placed_count,placed_on,closed_on,sex\n"
        "good,n,1,broiler,10,2026-05-01,,\n"
        "none,n,1,broiler,0,2026-05-01,,\n"
        "soon,n,1,broiler,10,soon,,\n"
        "back,n,1,broiler,10,2026-05-01,2026-04-30,\n"
        "both,n,1,broiler,10,2026-05-01,,hen\n"
        "good,n,2,broiler,10,2026-05-01,,\n"
        ",n,2,broiler,10,2026-05-01,,\n",
    )
    assert [(problem.line, problem.field) for problem in found] == [
        (3, "placed_count"), (4, "placed_on"), (5, ""), (6, "sex"), (7, "batch_id"),
        (8, "batch_id"),
    ]  # fmt: skip
    assert found[2].reason == "`closed_on` is before `placed_on`"
    assert found[4].reason == "is the batch of line 2 again"
    assert found[5].reason == "is missing"


def test_reasons_are_for_whoever_fills_in_a_spreadsheet() -> None:
    found = problems(
        BATCHES,
        "batch_id;farm_id;barn_id;species;placed_count;placed_on;target_weight_kg;closed_on\r\n"
        "b;n;1;broiler;many;31.05.2026;2,4;soon\r\n",
    )
    assert {problem.field: problem.reason for problem in found} == {
        "placed_count": "is no whole number",
        "placed_on": "is no day such as 2026-05-31",
        "target_weight_kg": "is no number such as 2.4",
        "closed_on": "is no day such as 2026-05-31",
    }


def test_cells_may_be_separated_by_semicolons() -> None:
    text = "farm_id;name;timezone\r\nnorth;Barns, north;Europe/Berlin\r\n"
    (farm,) = kinds.read(FARMS, text)
    assert farm.name == "Barns, north"
    (farm,) = kinds.read(FARMS, "farm_id,name,timezone\nnorth,Barns; north,Europe/Berlin\n")
    assert farm.name == "Barns; north"


def test_line_with_several_problems_has_all_of_them_beside_a_wrong_header() -> None:
    found = problems(
        BATCHES,
        "batch_id,farm_id,barn_id,species,placed_count,placed_on,closed_on,colour\n"
        "a b,n,1,broiler,0,2026-05-01,2026-04-30,red\n"
        "b,n,1,,10,soon,,red\n"
        "c,n\n",
    )
    assert [(problem.line, problem.field) for problem in found] == [
        (1, "colour"), (2, ""), (2, "batch_id"), (2, "placed_count"), (3, "placed_on"),
        (3, "species"), (4, ""),
    ]  # fmt: skip
    assert found[1].reason == "`closed_on` is before `placed_on`"


def test_answer_names_some_problems_and_how_many_more_there_are() -> None:
    lines = "".join(f"f-{number},Farm,nowhere\n" for number in range(300))
    with pytest.raises(RosterError) as refused:
        kinds.read(FARMS, "farm_id,name,timezone\n" + lines)
    shown = refused.value.shown()
    assert (len(shown), shown[-1].reason) == (201, "and 100 more problems")


def test_wrong_column_is_refused_by_name() -> None:
    assert problems(BARNS, "farm_id,barn_id,name,size\nn,1,One,40\n") == [
        Problem(1, "size", "is not a column of a barn")
    ]


def test_farm_needs_a_time_zone_that_exists() -> None:
    assert problems(FARMS, "farm_id,name,timezone\nn,North,Mars/Base\n") == [
        Problem(2, "", "no time zone is called 'Mars/Base'")
    ]


def test_metric_conversions_are_json() -> None:
    header = "metric_type,label,unit,conversions\n"
    fahrenheit = 'temperature,Temperature,C,"{""F"": [0.5556, -17.78]}"\n'
    (metric,) = kinds.read(METRICS, header + fahrenheit)
    assert metric.conversions == {"F": (0.5556, -17.78)}
    found = problems(
        METRICS, header + 'humidity,Humidity,%,percent\nwater,Water,l,"{""ml"": [1]}"\n'
    )
    assert [(problem.line, problem.field) for problem in found] == [
        (2, "conversions"), (3, "conversions"),
    ]  # fmt: skip


@pytest.mark.parametrize("cell", ["nan", "inf", "-1", "1e300"])
def test_numbers_that_no_animal_has_are_refused(cell: str) -> None:
    found = problems(
        BREED_STANDARDS,
        f"species,breed,age_days,weight_kg,source\nbroiler,example,7,{cell},us\n",
    )
    assert [problem.field for problem in found] == ["weight_kg"]

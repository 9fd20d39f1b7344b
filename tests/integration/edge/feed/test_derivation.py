"""Intakes derived from silos' weights, on a real database, in any order of arrival."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from farmiq.cli import app
from farmiq.edge.feed import derivation, settings, silo
from farmiq.edge.feed.silo import Limits, Reading, State
from farmiq.edge.ingress import handlers
from farmiq.messages.topics import Place
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.edge.feed.conftest import rows, said
from tests.support import databases

SILO = Place("t-001", "f-001", "b-001", "d-020")
OTHER = Place("t-001", "f-001", "b-001", "d-010")
BEGIN = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=6)
# Three meals, a refill, one more meal, and a scale that wavers by 3 kg.
LEVELS = [3000.0] * 20 + [2940.0] * 20 + [2880.0] * 20 + [4880.0] * 20 + [4800.0] * 20
TOTAL_KG = 60 + 60 + 80

Message = tuple[str, bytes]


def weight(n: int, value: float, *, unit: str = "kg", at: datetime | None = None) -> Message:
    _, raw = said(
        "telemetry.reading",
        {"value": value, "unit": unit},
        place=SILO,
        event_id=UUID(int=0x0190_0000_0000_7000_8000_0000_0000_0000 + n),
        ts=at or BEGIN + timedelta(minutes=n),
    )
    return "iot/telemetry/t-001/f-001/b-001/d-020/silo.weight", raw


def a_morning() -> list[Message]:
    rng = Random(1)
    return [weight(n, level + rng.uniform(-3, 3)) for n, level in enumerate(LEVELS)]


async def switch_on(database: Database, **changes: Any) -> None:
    given: dict[str, Any] = {"derive_intake": True, "since": BEGIN, **changes}
    await settings.change(database.url, tenant_id=SILO.tenant_id, device_id=SILO.device_id, **given)


def later(database: Database, seconds: float) -> None:
    """Move the clock of the database."""
    with databases.connected(database.admin_url) as connection:
        connection.execute(
            "insert into test_clock (ahead) values (%s) on conflict (only_row) "
            "do update set ahead = test_clock.ahead + excluded.ahead",
            (timedelta(seconds=seconds),),
        )


async def arrive(pool: db.Pool, database: Database, messages: list[Message]) -> None:
    """At the time that the database's moved clock shows."""
    await handlers.commit(pool, messages)
    keys = [json.loads(raw)["event_id"] for _, raw in messages]
    with databases.connected(database.admin_url) as connection:
        connection.execute(
            "update telemetry_raw set ingested_at = fn_now() where id = any(%s::uuid[])", (keys,)
        )


def expected() -> list[tuple[UUID, float]]:
    """What the pure part makes of the morning, taken in one go and in order."""
    readings = [
        Reading(
            UUID(body["event_id"]),
            datetime.fromisoformat(body["ts"]),
            body["payload"]["value"],
            SILO.farm_id,
            SILO.barn_id,
        )
        for body in (json.loads(raw) for _, raw in a_morning())
    ]
    _, falls = silo.derive(State(), readings, Limits(noise_kg=10, refill_kg=200))
    return [
        (fall.intake_id(tenant_id=SILO.tenant_id, device_id=SILO.device_id), fall.quantity_kg)
        for fall in falls
    ]


def intakes(database: Database) -> list[tuple[Any, ...]]:
    return rows(
        database,
        "select intake_id, quantity_kg, occurred_at, parent_event_id, source, farm_id, barn_id, "
        "device_id from feed_intakes where parent_event_id is not null order by occurred_at",
    )


@pytest.mark.req("FB-02")
async def test_falls_of_weight_become_intakes_that_the_cloud_is_owed(
    pool: db.Pool, edge_db: Database
) -> None:
    await switch_on(edge_db)
    await handlers.commit(pool, a_morning())
    assert (await derivation.derive(pool, settle_s=300)) == {"count": 0}  # it came just now
    later(edge_db, 301)
    await derivation.derive(pool, settle_s=300)
    found = intakes(edge_db)
    assert len(found) == 3
    assert sum(row[1] for row in found) == pytest.approx(TOTAL_KG, abs=10)
    assert {row[4:] for row in found} == {("SILO_AUTO", "f-001", "b-001", "d-020")}
    owed = rows(
        edge_db,
        "select id, event_type, payload_json from sync_outbox "
        "where event_type = 'feed.intake.recorded' order by occurred_at",
    )
    assert owed == [
        (row[0], "feed.intake.recorded", {"source": "SILO_AUTO", "quantity_kg": row[1]})
        for row in found
    ]


@pytest.mark.parametrize("order", ["as they were", "newest first", "shuffled", "shuffled too"])
async def test_any_order_of_arrival_and_any_rounds_give_the_same_intakes(
    pool: db.Pool, edge_db: Database, order: str
) -> None:
    """A backlog comes in pieces, some of it twice, with a round after each piece.

    One that is shuffled as a whole arrives within the settling time; one in order, even if it is
    the wrong one, takes as long as it likes.
    """
    await switch_on(edge_db)
    rng, in_order = Random(order), a_morning()
    messages = [each for each in in_order for _ in range(rng.choice((1, 1, 2)))]
    if order == "newest first":
        messages.reverse()
    elif order != "as they were":
        rng.shuffle(messages)
    pause_s = 290 / len(messages) if "shuffled" in order else 200
    while messages:
        size = rng.randint(1, 30)
        await arrive(pool, edge_db, messages[:size])
        messages = messages[size:]
        later(edge_db, rng.uniform(0, pause_s))
        await derivation.derive(pool, settle_s=300)
    later(edge_db, 400)
    await derivation.derive(pool, settle_s=300)
    found = [(str(row[0]), row[1]) for row in intakes(edge_db)]
    assert found == [(str(key), quantity) for key, quantity in expected()]


async def test_a_round_in_small_portions_is_the_same(
    pool: db.Pool, edge_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derivation, "MAX_READINGS", 7)
    await switch_on(edge_db)
    await handlers.commit(pool, a_morning())
    assert await derivation.derive(pool, settle_s=0) == {"count": 3}
    assert await derivation.derive(pool, settle_s=0) == {"count": 0}


async def test_a_silo_that_is_not_asked_for_gives_none(pool: db.Pool, edge_db: Database) -> None:
    await handlers.commit(pool, a_morning())
    await derivation.derive(pool, settle_s=0)
    await switch_on(edge_db, derive_intake=False)
    await derivation.derive(pool, settle_s=0)
    assert intakes(edge_db) == []


async def test_a_silo_registered_for_it_is_derived_from_unless_its_settings_say_no(
    pool: db.Pool, edge_db: Database
) -> None:
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute(
            "update devices set derive_intake = true, created_at = %s "
            "where tenant_id = %s and device_id = %s",
            (BEGIN, SILO.tenant_id, SILO.device_id),
        )
    await handlers.commit(pool, a_morning())
    later(edge_db, 301)
    await switch_on(edge_db, derive_intake=False)
    await derivation.derive(pool, settle_s=300)
    assert intakes(edge_db) == []
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute("delete from silo_settings")
    await derivation.derive(pool, settle_s=300)
    assert [row[:2] for row in intakes(edge_db)] == expected()


async def test_suspect_clocks_and_unknown_units_are_left_out(
    pool: db.Pool, edge_db: Database
) -> None:
    await switch_on(edge_db, since=BEGIN - timedelta(days=9000))
    odd = [weight(900 + n, 10.0, at=BEGIN - timedelta(days=30, minutes=n)) for n in range(5)]
    odd += [weight(950 + n, 10.0, at=BEGIN + timedelta(days=300, minutes=n)) for n in range(5)]
    odd += [weight(970 + n, 10.0, unit="%", at=BEGIN + timedelta(minutes=n)) for n in range(5)]
    await handlers.commit(pool, [*odd, *a_morning()])
    await derivation.derive(pool, settle_s=0)
    assert len(intakes(edge_db)) == 3
    assert rows(edge_db, "select count(*) from telemetry_raw where clock_suspect") == [(10,)]


async def test_tonnes_are_weighed_as_kilograms(pool: db.Pool, edge_db: Database) -> None:
    await switch_on(edge_db)
    levels = [3.0] * 3 + [2.9] * 3
    await handlers.commit(pool, [weight(n, level, unit="t") for n, level in enumerate(levels)])
    await derivation.derive(pool, settle_s=0)
    assert [row[1] for row in intakes(edge_db)] == [100.0]


@pytest.mark.parametrize(
    ("unit", "absurd"), [("t", [1.7e308] * 5), ("kg", [1.7e308] * 3 + [-1.7e308] * 4)]
)
async def test_absurd_weights_take_no_part_and_are_said(
    pool: db.Pool, edge_db: Database, unit: str, absurd: list[float]
) -> None:
    await switch_on(edge_db)
    odd = [
        weight(500 + n, value, unit=unit, at=BEGIN + timedelta(minutes=10, seconds=n + 1))
        for n, value in enumerate(absurd)
    ]
    await handlers.commit(pool, odd)
    assert await derivation.derive(pool, settle_s=0) == {"count": 0}
    await handlers.commit(pool, [*a_morning()[11:], weight(700, 0.0, at=BEGIN)])
    await derivation.derive(pool, settle_s=0)
    assert sum(row[1] for row in intakes(edge_db)) == pytest.approx(TOTAL_KG, abs=10)
    assert rows(edge_db, "select kind, subject, seen_count from alerts") == [
        ("feed.weight_absurd", "t-001/d-020", len(absurd))
    ]
    assert rows(edge_db, "select count(*) from telemetry_raw where abs(metric_value) > 1e9") == [
        (len(absurd),)
    ]


async def test_a_silo_that_cannot_be_derived_from_leaves_the_others_alone(
    pool: db.Pool, edge_db: Database
) -> None:
    await switch_on(edge_db)
    await settings.change(
        edge_db.url, tenant_id=OTHER.tenant_id, device_id=OTHER.device_id, derive_intake=True
    )
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute(
            "insert into silo_states (tenant_id, device_id, state) values (%s, %s, '[]')",
            (OTHER.tenant_id, OTHER.device_id),
        )
    await handlers.commit(pool, a_morning())
    assert await derivation.derive(pool, settle_s=0) == {"count": 3}
    ((kind, subject, message),) = rows(edge_db, "select kind, subject, message from alerts")
    assert (kind, subject) == ("feed.derivation_failed", "t-001/d-010")
    assert "farmiq silo set t-001 d-010" in message


async def test_a_device_that_dispenses_itself_is_not_counted_twice(
    pool: db.Pool, edge_db: Database
) -> None:
    await switch_on(edge_db)
    told = said("feed.dispensed", {"quantity_kg": 60}, place=SILO, ts=BEGIN + timedelta(minutes=19))
    await handlers.commit(pool, [*a_morning(), told])
    await derivation.derive(pool, settle_s=0)
    assert rows(edge_db, "select quantity_kg from feed_intakes") == [(60.0,)]
    assert rows(edge_db, "select kind, subject, seen_count from alerts") == [
        ("feed.derivation_off", "t-001/d-020", 3)
    ]


@pytest.mark.req("FB-01", "FB-02")
async def test_a_first_word_tells_of_the_falls_before_it(pool: db.Pool, edge_db: Database) -> None:
    """A feeder that tells at the end of its round."""
    await switch_on(edge_db)
    told = said("feed.dispensed", {"quantity_kg": 200}, place=SILO, ts=BEGIN + timedelta(hours=2))
    await handlers.commit(pool, [*a_morning(), told])
    await derivation.derive(pool, settle_s=0)
    assert rows(edge_db, "select quantity_kg from feed_intakes") == [(200.0,)]


async def test_a_device_that_tells_seldom_is_derived_from_when_it_is_switched_on_anew(
    pool: db.Pool, edge_db: Database
) -> None:
    await switch_on(edge_db, since=BEGIN - timedelta(days=10))
    await handlers.commit(
        pool, [said("feed.dispensed", {"quantity_kg": 200}, place=SILO), *a_morning()]
    )
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("update feed_intakes set occurred_at = occurred_at - interval '3 days'")
    await derivation.derive(pool, settle_s=0)
    assert intakes(edge_db) == []
    await switch_on(edge_db, derive_intake=False, since=None)
    await switch_on(edge_db)
    await derivation.derive(pool, settle_s=0)
    assert len(intakes(edge_db)) == 3


async def test_a_first_word_that_comes_too_late_is_said_to_be_counted_twice_once(
    pool: db.Pool, edge_db: Database
) -> None:
    await switch_on(edge_db)
    await handlers.commit(pool, a_morning())
    await derivation.derive(pool, settle_s=0)
    told = said("feed.dispensed", {"quantity_kg": 200}, place=SILO, ts=BEGIN + timedelta(hours=2))
    await handlers.commit(pool, [told])
    for _ in range(2):
        await derivation.derive(pool, settle_s=0)
    ((kind, seen, message),) = rows(edge_db, "select kind, seen_count, message from alerts")
    assert (kind, seen) == ("feed.counted_twice", 3)
    assert "3 intakes of 199" in message
    assert len(intakes(edge_db)) == 3


async def test_another_device_that_dispenses_does_not_matter(
    pool: db.Pool, edge_db: Database
) -> None:
    await switch_on(edge_db)
    await handlers.commit(
        pool, [*a_morning(), said("feed.dispensed", {"quantity_kg": 60}, ts=BEGIN, place=OTHER)]
    )
    await derivation.derive(pool, settle_s=0)
    assert len(intakes(edge_db)) == 3


async def test_two_at_once_do_not_double(pool: db.Pool, edge_db: Database) -> None:
    await switch_on(edge_db)
    await handlers.commit(pool, a_morning())
    await asyncio.gather(*(derivation.derive(pool, settle_s=0) for _ in range(4)))
    assert len(intakes(edge_db)) == 3
    assert rows(
        edge_db, "select count(*) from sync_outbox where event_type = 'feed.intake.recorded'"
    ) == [(3,)]


async def test_a_state_that_was_lost_doubles_nothing(pool: db.Pool, edge_db: Database) -> None:
    """The ids come from the readings: the same again is known."""
    await switch_on(edge_db)
    await handlers.commit(pool, a_morning())
    await derivation.derive(pool, settle_s=0)
    before = intakes(edge_db)
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute("delete from silo_states")
    assert await derivation.derive(pool, settle_s=0) == {"count": 0}
    assert intakes(edge_db) == before


_PROGRAM = """
import asyncio, sys
from farmiq import crash
from farmiq.edge.feed import derivation
from farmiq.plumbing import db

async def main():
    derivation.MAX_READINGS = 10
    async with db.pool(sys.argv[1], name="victim") as pool:
        await derivation.derive(pool, settle_s=0)

crash.arm(sys.argv[2])
asyncio.run(main())
"""


async def test_death_in_the_derivation_doubles_and_loses_nothing(
    pool: db.Pool, edge_db: Database
) -> None:
    await switch_on(edge_db)
    await handlers.commit(pool, a_morning())
    for portion in (1, 2, 3, 1, 4, 1):
        died = subprocess.run(  # noqa: ASYNC221 - nothing else is to happen meanwhile
            [sys.executable, "-c", _PROGRAM, edge_db.url, f"feed.in_derivation:{portion}"],
            check=False,
            env={**os.environ},
        )
        assert died.returncode == -signal.SIGKILL
    await derivation.derive(pool, settle_s=0)
    after = intakes(edge_db)
    assert sum(row[1] for row in after) == pytest.approx(TOTAL_KG, abs=10)
    owed = rows(
        edge_db,
        "select id from sync_outbox where event_type = 'feed.intake.recorded' order by occurred_at",
    )
    assert [row[0] for row in after] == [row[0] for row in owed]
    assert len(after) == 3


class TestCommand:
    """`farmiq silo`."""

    def run(self, database: Database, *arguments: str) -> Any:
        return CliRunner().invoke(
            app, ["silo", *arguments], env={"FARMIQ_EDGE_DB_URL": database.url}
        )

    def test_a_silo_is_set_and_listed(self, edge_db: Database) -> None:
        assert "nothing" in self.run(edge_db, "ls").stdout
        made = self.run(edge_db, "set", "t-1", "d-1", "--derive", "--noise-kg", "25")
        assert made.exit_code == 0, made.output
        assert "noise 25 kg, refill 200 kg" in made.stdout
        kept = self.run(edge_db, "set", "t-1", "d-1", "--refill-kg", "500")
        assert "noise 25 kg, refill 500 kg  derives since" in kept.stdout
        assert "does not derive" in self.run(edge_db, "set", "t-1", "d-1", "--no-derive").stdout
        assert '"noise_kg": 25.0' in self.run(edge_db, "ls", "--json").stdout
        assert rows(edge_db, "select distinct action, subject from audit_log") == [
            ("silo.set", "t-1/d-1")
        ]

    @pytest.mark.parametrize(
        "options",
        [
            ("--noise-kg", "0"), ("--noise-kg", "-1"), ("--refill-kg", "5"), ("--noise-kg", "300"),
            ("--refill-kg", "inf"), ("--noise-kg", "nan"),
        ],
    )  # fmt: skip
    def test_limits_that_cannot_be_are_refused(
        self, edge_db: Database, options: tuple[str, ...]
    ) -> None:
        answer = self.run(edge_db, "set", "t-1", "d-1", *options)
        assert answer.exit_code == 2
        assert "refill_kg not less than noise_kg" in answer.stderr
        assert rows(edge_db, "select count(*) from silo_settings") == [(0,)]

    def test_a_device_that_is_not_registered_is_refused(self, edge_db: Database) -> None:
        for option in ("--derive", "--no-derive"):
            answer = self.run(edge_db, "set", "t-1", "nosuch", option)
            assert answer.exit_code == 1
            assert "no device 'nosuch' of tenant 't-1' is known" in answer.stderr
        assert rows(edge_db, "select count(*) from silo_settings") == [(0,)]
        with databases.connected(edge_db.admin_url) as owner:
            owner.execute("insert into silo_settings values ('t-1', 'nosuch', true)")
        assert self.run(edge_db, "set", "t-1", "nosuch", "--no-derive").exit_code == 0

    def test_a_silo_registered_for_it_is_listed(self, edge_db: Database) -> None:
        with databases.connected(edge_db.admin_url) as owner:
            owner.execute(
                "update devices set derive_intake = true where (tenant_id, device_id) = (%s, %s)",
                ("t-1", "d-1"),
            )
        listed = "t-1/d-1  noise 10 kg, refill 200 kg  derives since"
        assert listed in self.run(edge_db, "ls").stdout
        self.run(edge_db, "set", "t-1", "d-1", "--no-derive")
        assert self.run(edge_db, "ls").stdout.count("t-1/d-1") == 1

    def test_an_odd_name_is_refused(self, edge_db: Database) -> None:
        assert self.run(edge_db, "set", "t/1", "d-1", "--derive").exit_code == 2

    async def test_what_was_counted_cannot_be_counted_again(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await switch_on(edge_db)
        await handlers.commit(pool, a_morning())
        await derivation.derive(pool, settle_s=0)
        with pytest.raises(ValueError, match="would count them twice"):
            await switch_on(edge_db, since=BEGIN + timedelta(minutes=5))
        await switch_on(edge_db, derive_intake=False, since=None)
        await switch_on(edge_db, since=None)
        assert await derivation.derive(pool, settle_s=0) == {"count": 0}
        assert len(intakes(edge_db)) == 3

"""The rules that ship with the product: useful without configuration, each with its reason.

A row of alert_rules with the same rule_id replaces one, also to switch it off. Thresholds are where
people who keep these animals begin to act, not where animals are merely uncomfortable: a rule that
pages every summer day is switched off and then misses the day that matters. Rules with species need
a batch in the barn, so an empty barn that is heated, washed or without feed pages nobody. Deadly
heat, ventilation and power need none: where nobody registers batches animals die all the same, and
a barn that is empty is not told from one whose batch is not registered. A company that registers
its batches may give these species too, by a rule with the same id.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from farmiq.messages.alerts import AlertRule

POULTRY = ["broiler", "chicken", "duck", "layer", "turkey"]
PIGS = ["pig"]
CATTLE = ["cattle", "dairy", "beef", "calf"]
ANIMALS = [*POULTRY, *PIGS, *CATTLE]
MINUTE, HOUR, DAY = 60, 3600, 86400


def _rule(name: str, signal: str, condition: str, severity: str, **fields: Any) -> AlertRule:
    return msgspec.convert(
        {
            "rule_id": f"default.{name}",
            "signal": signal,
            "condition": condition,
            "severity": severity,
            **fields,
        },
        AlertRule,
    )


def _temperature(
    name: str, condition: str, threshold: float, minutes: int, severity: str, **fields: Any
) -> AlertRule:
    """A rule on the temperature with 1 °C of hysteresis."""
    return _rule(
        name,
        "telemetry.temperature",
        condition,
        severity,
        threshold=threshold,
        clear=threshold - 1 if condition == "above" else threshold + 1,
        for_s=minutes * MINUTE,
        **fields,
    )


_HEAT = (
    # Whatever lives there: no farm animal stands 38 °C for long, and brooding is at most 35. It
    # needs no batch, so it holds before anything is registered.
    _temperature("heat.any", "above", 38, 5, "critical"),
    # Feathered birds pant from about 30 °C; above 35 a barn loses birds within hours.
    _temperature("heat.poultry", "above", 32, 20, "warning", species=POULTRY, min_age_days=28),
    _temperature(
        "heat.poultry.deadly", "above", 35, 10, "critical", species=POULTRY, min_age_days=28
    ),
    # Chicks want 32 to 34 °C in the first week, then 2 to 3 °C less each week.
    _temperature("heat.chicks", "above", 36, 15, "warning", species=POULTRY, max_age_days=6),
    _temperature(
        "heat.growing", "above", 34, 15, "warning", species=POULTRY, min_age_days=7, max_age_days=27
    ),
    # Pigs cannot sweat: grown ones stop eating at 27 °C, and from 32 on sows and finishers die.
    _temperature("heat.pigs", "above", 30, 30, "warning", species=PIGS, min_age_days=70),
    _temperature("heat.pigs.deadly", "above", 33, 10, "critical", species=PIGS, min_age_days=70),
    # Piglets and weaners have heated places of up to 32 °C.
    _temperature("heat.piglets", "above", 35, 15, "warning", species=PIGS, max_age_days=69),
    # Cattle give off heat at night; a whole hour is a hot day in a barn without air.
    _temperature("heat.cattle", "above", 33, 60, "warning", species=CATTLE),
)  # fmt: skip
_COLD = (
    # In the first week chicks cannot keep their temperature: below 26 °C they huddle and suffocate.
    _temperature("cold.chicks", "below", 26, 15, "critical", species=POULTRY, max_age_days=6),
    # The second week wants 28 to 30 °C; below 22 the heating has failed.
    _temperature(
        "cold.growing", "below", 22, 20, "warning", species=POULTRY, min_age_days=7, max_age_days=13
    ),
    # The third and fourth week want 22 to 26 °C.
    _temperature(
        "cold.feathering", "below", 16, 30, "warning",
        species=POULTRY, min_age_days=14, max_age_days=27,
    ),
    # Feathered birds stand cold, but drinkers freeze and feed conversion falls.
    _temperature("cold.poultry", "below", 8, 60, "warning", species=POULTRY, min_age_days=28),
    # The room of piglets and weaners; their creep is warmer than the sensor in the aisle.
    _temperature("cold.piglets", "below", 16, 30, "warning", species=PIGS, max_age_days=69),
    _temperature("cold.pigs", "below", 8, 60, "warning", species=PIGS, min_age_days=70),
)  # fmt: skip
_AIR = (
    # A closed barn warms by 4 °C in half an hour when its fans stand still, long before a limit.
    _rule(
        "heat.rise", "telemetry.temperature", "rises", "critical",
        threshold=4, clear=2, window_s=30 * MINUTE, for_s=2 * MINUTE, species=ANIMALS,
    ),
    # Minimum ventilation runs fans by a timer, some seconds of every five minutes: only ten
    # minutes without any are a failure. `ventilation` is 0 when no fan runs, else 1 or per cent.
    _rule(
        "ventilation.stopped", "telemetry.ventilation", "below", "critical",
        threshold=0.5, for_s=10 * MINUTE, clear_for_s=MINUTE,
    ),
    # A controller that says nothing may be without power, and the fans with it.
    _rule("ventilation.silent", "telemetry.ventilation", "absent", "critical", for_s=10 * MINUTE),
    # `mains` is 0 without power, else 1 or volts. A generator starts within a minute.
    _rule(
        "power.failed", "telemetry.mains", "below", "critical",
        threshold=0.5, for_s=MINUTE, clear_for_s=5 * MINUTE,
    ),
    _rule("power.silent", "telemetry.mains", "absent", "critical", for_s=10 * MINUTE),
    # 3,000 ppm is the limit in a broiler barn; more for long is too little air, 6,000 none at all.
    _rule(
        "co2.high", "telemetry.co2", "above", "warning",
        threshold=3500, clear=3000, for_s=30 * MINUTE, species=ANIMALS,
    ),
    _rule(
        "co2.deadly", "telemetry.co2", "above", "critical",
        threshold=6000, clear=5000, for_s=10 * MINUTE, species=ANIMALS,
    ),
    # 20 ppm is the limit; above 25 lungs and eyes suffer.
    _rule(
        "ammonia.high", "telemetry.ammonia", "above", "warning",
        threshold=25, clear=20, for_s=HOUR, species=ANIMALS,
    ),
)  # fmt: skip
_SILENCE = (
    # Where animals are and the temperature is not known, every rule above is blind.
    _rule(
        "silent.temperature", "telemetry.temperature", "absent", "warning",
        for_s=30 * MINUTE, species=ANIMALS,
    ),
)  # fmt: skip
_FEED_AND_WATER = (
    # A feed mill delivers within a day or two of the order.
    _rule(
        "feed.low", "feed.days_left", "below", "warning",
        threshold=2, clear=3, species=ANIMALS,
    ),
    # Poultry without feed for a few hours peck each other; pigs fight.
    _rule(
        "feed.empty", "feed.days_left", "below", "critical",
        threshold=0.5, clear=1, species=ANIMALS,
    ),
    # Animals drink less a day or two before they are seen to be ill; or a line is blocked. By the
    # hour, because they drink little at night.
    _rule(
        "water.drop", "telemetry.water.flow", "below", "warning",
        baseline="same_hour", threshold=50, clear=30, for_s=HOUR, clear_for_s=30 * MINUTE,
        species=ANIMALS,
    ),
)  # fmt: skip
_FLOCK = (
    # The first week takes the weak chicks, up to 0.3 % a day; later 0.1 % is usual.
    _rule(
        "mortality.chicks", "kpi.mortality_day_pct", "above", "warning",
        threshold=0.6, clear_for_s=0, species=POULTRY, max_age_days=6,
    ),
    _rule(
        "mortality.poultry", "kpi.mortality_day_pct", "above", "warning",
        threshold=0.3, clear_for_s=0, species=POULTRY, min_age_days=7,
    ),
    # One of a hundred birds in a day is a disease or a failure of the barn.
    _rule(
        "mortality.poultry.high", "kpi.mortality_day_pct", "above", "critical",
        threshold=1, clear_for_s=0, species=POULTRY,
    ),
    # A group of pigs is small: a single one of 80 is 1.25 %.
    _rule(
        "mortality.pigs", "kpi.mortality_day_pct", "above", "warning",
        threshold=1.5, clear_for_s=0, species=PIGS,
    ),
    # More than the breed loses by this age, by half: it comes little by little, unseen by the day.
    _rule(
        "mortality.standard", "kpi.mortality_pct", "above", "warning",
        baseline="standard", threshold=50, clear=40, clear_for_s=0, min_age_days=7,
    ),
    # A tenth behind the breed's curve is about three days of growth of a broiler.
    _rule(
        "weight.behind", "kpi.weight_mean", "below", "warning",
        baseline="standard", threshold=10, clear=7, clear_for_s=0, min_age_days=7,
    ),
    # Feed is most of the cost; young animals weigh too little for the figure to say much.
    _rule(
        "feed.conversion", "kpi.fcr", "above", "info",
        baseline="standard", threshold=15, clear=10, clear_for_s=0, min_age_days=14,
    ),
)  # fmt: skip
_WEIGHINGS = (
    # An edge waits for the parts of a session before it calls it incomplete: that is long enough.
    _rule(
        "weighing.incomplete", "weighing.incomplete", "above", "warning",
        threshold=0, clear_for_s=0,
    ),
)  # fmt: skip
_EDGES = (
    # An edge reports every minute; after ten the farm is out of sight.
    _rule("edge.silent", "edge.heard", "absent", "critical", for_s=10 * MINUTE),
    # It reports, but its events do not arrive: the link is too thin, or something refuses them.
    _rule(
        "edge.backlog", "edge.oldest_s", "above", "warning",
        threshold=HOUR, clear=10 * MINUTE, for_s=10 * MINUTE,
    ),
    # The edge refuses data: told with the next heartbeat, and again after an hour without.
    _rule(
        "edge.quarantine.grows", "edge.quarantine", "rises", "warning",
        threshold=0, window_s=HOUR, clear_for_s=0,
    ),
    # What it refused still waits for a person: `farmiq quarantine ls` names the reasons.
    _rule("edge.quarantine", "edge.quarantine", "above", "warning", threshold=0, for_s=HOUR),
    # Events that the cloud refused wait for a person: `farmiq outbox ls --status dlq`.
    _rule(
        "edge.dead_letters", "edge.dead_letters", "above", "warning",
        threshold=0, for_s=5 * MINUTE,
    ),
    # What is lost is lost: say so for a day, not for as long as the ledger is kept.
    _rule(
        "edge.losses", "edge.losses", "rises", "critical",
        threshold=0, window_s=DAY, clear_for_s=0,
    ),
    # A full disk stops everything; from 92 % on the edge removes what it can spare.
    _rule(
        "edge.disk", "edge.disk_percent", "above", "warning",
        threshold=88, clear=85, for_s=10 * MINUTE,
    ),
    # Times of everything that it stamps are wrong by as much.
    _rule(
        "edge.clock.ahead", "edge.clock_offset_s", "above", "warning",
        threshold=60, clear=30, for_s=10 * MINUTE,
    ),
    _rule(
        "edge.clock.behind", "edge.clock_offset_s", "below", "warning",
        threshold=-60, clear=-30, for_s=10 * MINUTE,
    ),
    # It counts alerts that never came here: somebody has not heard of something.
    _rule(
        "edge.alerts_missing", "edge.alerts_missing", "above", "warning",
        threshold=0, for_s=15 * MINUTE,
    ),
)  # fmt: skip
_CAMERAS = (
    # A day with less than four fifths of its images does not show how things grow.
    _rule(
        "camera.completeness", "camera.completeness", "below", "warning",
        threshold=80, clear_for_s=0,
    ),
    # The camera's own alert comes at 3.6 V; from 3.4 V on it is days from going out.
    _rule(
        "camera.battery", "camera.battery_v", "below", "critical",
        threshold=3.4, clear=3.6, clear_for_s=0,
    ),
)  # fmt: skip

DEFAULTS: tuple[AlertRule, ...] = (
    *_HEAT, *_COLD, *_AIR, *_SILENCE, *_FEED_AND_WATER, *_FLOCK, *_WEIGHINGS, *_EDGES, *_CAMERAS,
)  # fmt: skip


def with_defaults(own: Collection[AlertRule]) -> dict[str, AlertRule]:
    """A company's rules by rule_id, over those that ship; ones that are switched off included."""
    shipped: Mapping[str, AlertRule] = {rule.rule_id: rule for rule in DEFAULTS}
    return {**shipped, **{rule.rule_id: rule for rule in own}}

"""Pure: what to do about an alert, in a sentence."""

from farmiq.messages.wording import worded

# By the beginning of the signal and the condition; the first that fits.
_ADVICE: tuple[tuple[str, str | None, str], ...] = (
    (
        "telemetry.temperature",
        "absent",
        worded("Look after the barn yourself: nobody knows how warm it is. Then check the sensor."),
    ),
    (
        "telemetry.temperature",
        "below",
        worded("Go to the barn: check heating, doors and the animals."),
    ),
    (
        "telemetry.temperature",
        None,
        worded("Go to the barn at once: check fans, inlets, power and the animals' water."),
    ),
    (
        "telemetry.mains",
        None,
        worded("Go to the barn at once: check power, generator and ventilation."),
    ),
    (
        "telemetry.ventilation",
        None,
        worded("Go to the barn at once: check fans, inlets and power."),
    ),
    ("telemetry.", "absent", worded("Check the device: its power, its network and its place.")),
    ("telemetry.", None, worded("Go to the barn and look; then check the device that says so.")),
    (
        "feed.days_left",
        None,
        worded("Order feed, or correct the deliveries and intakes that are missing."),
    ),
    ("kpi.", None, worded("Look at the animals and at the figures of the batch.")),
    (
        "weighing.",
        None,
        worded(
            "Look at the station: what is missing may still be on it, or its camera does not work."
        ),
    ),
    (
        "edge.heard",
        None,
        worded("Check power and internet on the farm: nothing arrives from this edge."),
    ),
    (
        "edge.",
        None,
        worded("On the edge: `farmiq doctor` says what is wrong, `farmiq alert ls` lists it."),
    ),
    ("camera.", None, worded("Check the cameras of this site: battery, lens and reception.")),
    (
        "bus.",
        None,
        worded(
            "The page of dead letters and `farmiq dlq ls` say why; repair that, then redrive them."
        ),
    ),
)
_OTHERWISE = {
    "edge": worded("On the edge: `farmiq alert ls` says more, `farmiq doctor` what is wrong."),
    "camera": worded("Check the camera: battery, lens and reception."),
    "cloud": worded("Whoever runs FarmIQ has to look: `farmiq doctor` says what is wrong."),
}


def advice(*, source: str, signal: str | None, condition: str | None) -> str:
    """What a person should do about an alert; `signal` and `condition` are of its rule."""
    for beginning, wanted, text in _ADVICE:
        if wanted in (None, condition) and (signal or "").startswith(beginning):
            return text
    return _OTHERWISE.get(source, worded("Look at what the message says."))

"""Pure: a list of devices as CSV, read whole: the devices, or every problem with its line."""

from farmiq import roster
from farmiq.edge.devices import entry
from farmiq.edge.devices.entry import Device
from farmiq.roster import Problem, RosterError


def read(text: str) -> list[tuple[int, Device]]:
    """(line, device) of every row. Raises RosterError."""
    rows, problems = roster.rows(text, columns=entry.COLUMNS, needed=entry.NEEDED, of="device")
    devices: list[tuple[int, Device]] = []
    for line, cells in rows:
        try:
            devices.append((line, entry.read(cells)))
        except entry.Wrong as wrong:
            problems += [Problem(line, *reason) for reason in wrong.reasons]
    problems += [Problem(*each) for each in entry.twice(devices)]
    if problems:
        raise RosterError(problems)
    return devices

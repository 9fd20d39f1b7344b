"""The seam between agent and hardware: a source writes into the notebook for as long as it runs.

A source handles its own trouble (a cable that is out, a camera that hangs) and comes back by
itself; it says how it is with `notebook.health.scale_ok` and `.camera_ok`. It is cancelled when the
agent stops. `Refused` is an answer to act on: the capture did not happen; `Full` means that nothing
new is taken until the edge is back.
"""

from collections.abc import Awaitable, Callable, Sequence

from farmiq.config.device import DeviceSettings
from farmiq.device.notebook import Notebook

Source = Callable[[Notebook], Awaitable[None]]


def configured(settings: DeviceSettings) -> Sequence[Source]:
    """The scales and cameras that the settings name."""
    del settings
    return ()

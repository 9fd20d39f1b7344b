"""The real engines on one machine, for the demo, the tests and the bench.

Read `stack.py` first, then `engine.py` (what an engine is) and `engines.py` (which there are).
"""

from farmiq.lab.stack.engine import StackError
from farmiq.lab.stack.engines import ENGINES
from farmiq.lab.stack.record import announce
from farmiq.lab.stack.stack import (
    EngineState,
    Stack,
    attach,
    command,
    find,
    mend,
    remove,
    start,
    states,
    stop,
)

__all__ = [
    "ENGINES",
    "EngineState",
    "Stack",
    "StackError",
    "announce",
    "attach",
    "command",
    "find",
    "mend",
    "remove",
    "start",
    "states",
    "stop",
]

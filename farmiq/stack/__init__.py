"""The real engines on one machine, for the demo, the tests and the bench.

Read `stack.py` first, then `engine.py` (what an engine is) and `engines.py` (which there are).
"""

from farmiq.stack.engine import StackError
from farmiq.stack.engines import ENGINES
from farmiq.stack.record import announce
from farmiq.stack.stack import (
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

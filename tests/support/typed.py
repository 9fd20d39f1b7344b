"""`farmiq` as people type it, without a process: to start one costs more than most commands do.

That a process does the same is seen wherever tests start one: tests/flow/test_travel.py asks it
the questions of a person, and every service is one.
"""

import contextlib
import io
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from unittest import mock

from farmiq import cli

# Services that a test runs in this process log to standard output meanwhile, unless told otherwise.
_LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[\w+ *\] .*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def farmiq(*words: str, **environment: str) -> Done:
    # A thread has no loop of its own yet, as a process has none; the caller may be inside of one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_main, words, environment).result()


def _main(words: tuple[str, ...], environment: dict[str, str]) -> Done:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["farmiq", *words]),
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(code, _LOG_LINE.sub("", out.getvalue()), err.getvalue())

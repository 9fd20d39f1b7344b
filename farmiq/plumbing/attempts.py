"""Something that is tried again and again, and whether the last attempt worked."""

from types import TracebackType

from farmiq.plumbing import db


class Attempts:
    """`with attempts:` is one attempt; `problem` follows from the last one alone.

    So an attempt that finds nothing to do clears it as well as any other.
    """

    def __init__(self, what_waits: str, *, problem: str | None = None) -> None:
        """`what_waits` says in words what an attempt that fails leaves undone."""
        self._what_waits = what_waits
        self.problem = problem

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _tb: TracebackType | None,
    ) -> None:
        if error is None:
            self.problem = None
        elif isinstance(error, Exception):  # a cancelled attempt does not count
            self.problem = f"{self._what_waits}: {db.first_line(error)}"

"""Pure: which tables a migration locks while it runs, and what it does to them meanwhile.

PostgreSQL decides at run time; this reads the text of the file beforehand. A test lets the server
run every migration since the last release and compares. What a function does when it is called
is not seen.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from farmiq.plumbing.migrations import Migration

# Whom a lock keeps waiting, the least first.
NOBODY, WRITERS, EVERYBODY = "nobody", "writers", "everybody"
BLOCKS = (NOBODY, WRITERS, EVERYBODY)


@dataclass(frozen=True, slots=True)
class Lock:
    """`work` is what takes as long as the table is large: rewrite, index, scan, update."""

    table: str
    blocks: str
    work: frozenset[str] = frozenset()


_NAME = r"(?:public\.)?\"?(\w+)\"?"
_NOISE = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_BODY = re.compile(
    r"create\s+(?:or\s+replace\s+)?(?:function|procedure)\b.*?(\$\w*\$).*?\1", re.DOTALL
)
_TEXT = re.compile(r"'(?:[^']|'')*'")
_MADE = re.compile(rf"create\s+table\s+(?:if\s+not\s+exists\s+)?{_NAME}")
_ALTER = re.compile(rf"alter\s+table\s+(?:if\s+exists\s+)?(?:only\s+)?{_NAME}\s+(.*)", re.DOTALL)
_INDEX = re.compile(
    rf"create\s+(?:unique\s+)?index\s+(concurrently\s+)?.*?\bon\s+(?:only\s+)?{_NAME}", re.DOTALL
)
_REWRITES = re.compile(
    r"\btype\b|set\s+(?:un)?logged|generated\s+(?:always|by\s+default)"
    r"|default\s+(?:\w*random\w*|clock_timestamp|nextval|fn_uuid\w*|uuid\w*)\s*\("
)
_HARMLESS = re.compile(r"(?:alter\s+(?:column\s+)?\w+\s+)?set\s+(?:\(|statistics)|validate\s")
_CHECKS = re.compile(r"\badd\s+(?:constraint\s+\w+\s+)?(?:check|foreign|unique|primary|exclude)")
# Statement, whom its lock keeps waiting, what it does to the table.
_OTHERS: tuple[tuple[re.Pattern[str], str, frozenset[str]], ...] = tuple(
    (re.compile(pattern), blocks, frozenset(work))
    for pattern, blocks, work in (
        (rf"drop\s+table\s+(?:if\s+exists\s+)?{_NAME}", EVERYBODY, ()),
        (rf"truncate\s+(?:table\s+)?(?:only\s+)?{_NAME}", EVERYBODY, ()),
        (rf"(?:create|alter|drop)\s+policy\s+.*?\son\s+{_NAME}", EVERYBODY, ()),
        (rf"drop\s+trigger\s+.*?\son\s+{_NAME}", EVERYBODY, ()),
        (rf"create\s+(?:or\s+replace\s+)?trigger\s+.*?\son\s+{_NAME}", WRITERS, ()),
        (rf"\breferences\s+{_NAME}", WRITERS, ()),
        (
            rf"(?:^|\s)update\s+(?:only\s+)?{_NAME}\s+(?:as\s+)?(?:\w+\s+)?set\s",
            NOBODY,
            ("update",),
        ),
        (rf"delete\s+from\s+(?:only\s+)?{_NAME}", NOBODY, ("update",)),
    )
)


def locks(file: Migration) -> list[Lock]:
    """The tables that were there before and that the file keeps others from, the worst first.

    All of it lasts until the end of the file: a column that is added and filled is one wait.
    """
    text = _TEXT.sub("''", _BODY.sub(" ", _NOISE.sub(" ", file.sql.lower())))
    made = set(_MADE.findall(text))
    by_table: dict[str, Lock] = {}
    for lock in (lock for statement in text.split(";") for lock in _of(statement)):
        if lock.table not in made:
            old = by_table.get(lock.table, replace(lock, work=frozenset()))
            worse = max(old.blocks, lock.blocks, key=BLOCKS.index)
            by_table[lock.table] = Lock(lock.table, worse, old.work | lock.work)
    return sorted(by_table.values(), key=lambda lock: (-BLOCKS.index(lock.blocks), lock.table))


def _of(statement: str) -> Iterator[Lock]:
    if altered := _ALTER.search(statement):
        table, clauses = altered[1], altered[2]
        if _HARMLESS.match(clauses):
            work = {"scan"} if clauses.startswith("validate") else set()
            yield Lock(table, NOBODY, frozenset(work))
        else:
            work = {"rewrite"} if _REWRITES.search(clauses) else set()
            if _CHECKS.search(clauses) and "not valid" not in clauses:
                work.add("scan")
            yield Lock(table, EVERYBODY, frozenset(work))
    elif built := _INDEX.search(statement):
        yield Lock(built[2], NOBODY if built[1] else WRITERS, frozenset({"index"}))
    for pattern, blocks, work_ in _OTHERS:
        for table in pattern.findall(statement):
            yield Lock(table, blocks, work_)

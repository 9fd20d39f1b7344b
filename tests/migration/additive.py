"""Which statements of a pre migration might break the code that still runs (UP-03).

Only what is known to add is let through; whatever else stands in the file is a problem. With what
the file made itself it may do as it likes: no running code knows it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# A comment that says why a statement that cannot be judged from outside only adds.
MARKER = "additive:"

_TOKEN = re.compile(
    r"""
    (?P<comment>--[^\n]*|/\*.*?\*/)
  | (?P<dollar>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
  | (?P<text>\b[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*')
  | (?P<quoted>"(?:[^"]|"")*")
  | (?P<word>[^\W\d]\w*|\d[\w.]*)
  | (?P<sign>[^\s])
    """,
    re.DOTALL | re.VERBOSE,
)
_NAME = r'(?P<name>(?:"[^"]*"|\w+)(?: \. (?:"[^"]*"|\w+))?)'
_MAKES = re.compile(
    r"create (?P<replace>or replace )?"
    r"(?P<kind>table|view|materialized view|function|procedure|sequence|type|domain)"
    rf" (?P<maybe>if not exists )?{_NAME}"
)
# Shapes that add whatever they name. Words are in lower case with one space between all signs.
_ADDS = [
    re.compile(pattern)
    for pattern in (
        r"create table (?!.* inherits \().*\)",
        r"create table .*\) partition by (range|list|hash) \(.*\)",
        r"create table .* partition of .*",
        r"create (materialized )?view .*",
        r"create (or replace )?(function|procedure) .*",
        r"create (sequence|type|domain|statistics) .*",
        r"create index .*",
        r"create trigger .*",
        r"create policy (?!.* as restrictive\b).*",
        r"grant .* on .* to .*",
        r"comment on .*",
        r"set local (lock_timeout|statement_timeout|check_function_bodies) .*",
    )
]
_ON_ITS_OWN = [
    re.compile(pattern)
    for pattern in (
        rf"create unique index .*? on (only )?{_NAME}( |$)",
        rf"create policy .*? on {_NAME} as restrictive\b",
        rf"create (or replace |constraint )*trigger .*? on {_NAME}( |$)",
        rf"create or replace view {_NAME} ",
        (
            rf"alter (table|view|materialized view|function|procedure|sequence|type|domain) "
            rf"(only )?{_NAME}( |$)"
        ),
        (
            r"revoke .* on (table |function |procedure |sequence |type |domain )?"
            rf"{_NAME}( \(.*\))? from "
        ),
        rf"insert into {_NAME}( |$)",
    )
]
_ALTER = re.compile(rf"alter table (if exists )?(only )?{_NAME} (?P<actions>.*)")
# What may be done to a table that running code uses.
_ACTIONS = [
    re.compile(pattern)
    for pattern in (
        r"alter (column )?\S+ drop not null",
        r"alter (column )?\S+ set default (?!null\b).+",
        r"alter (column )?\S+ set (statistics|storage|compression) \S+( \S+)?",
        (
            r"(re)?set \( ((toast \. )?autovacuum_|fillfactor|log_autovacuum|parallel_workers|"
            r"toast_tuple_target)[^()]*\)"
        ),
        r"attach partition .* (default|for values .*)",
    )
]
_ADD_COLUMN = re.compile(
    r"add (column )?(?P<maybe>if not exists )?"
    r"(?!(constraint|check|unique|primary|foreign|exclude|not)\b)"
    r"(?P<column>\"[^\"]*\"|\w+) (?P<rest>.+)"
)
_DEFAULT = re.compile(r"(?<!set )\bdefault (?!null\b)|\bgenerated always as identity\b")
_UNIQUE_COLUMN = re.compile(r"\b(unique|primary key)\b|\bgenerated always as \(")
_FILLS = re.compile(rf"update (only )?{_NAME} set (?P<values>.*)")  # noqa: S608
# Words of a check that are no columns; whoever needs another one adds it here.
_WORDS_OF_A_CHECK = {
    "and", "or", "not", "in", "is", "null", "true", "false", "between", "like", "similar", "to",
    "any", "all", "array", "distinct", "from", "case", "when", "then", "else", "end",
}  # fmt: skip


@dataclass(slots=True)
class _Statement:
    """Words and signs of one statement, and the comments in and before it."""

    words: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def problems(text: str) -> list[str]:
    """Why this migration does not only add, in sentences."""
    made: set[str] = set()
    found = []
    for statement in _statements(text):
        found += [f"{why}: {statement.text}" for why in _of(statement, made)]
        made |= _made(statement.text)
    return found


def _made(text: str) -> set[str]:
    """What is the file's own after this statement: `table`, or `table.column` of another's."""
    if altered := _ALTER.fullmatch(text):
        columns = filter(None, map(_ADD_COLUMN.fullmatch, _split(altered["actions"])))
        return {
            f"{_plain(altered['name'])}.{each['column']}" for each in columns if not each["maybe"]
        }
    makes = _MAKES.match(text)
    # What may have been there before is not the file's own. A function is: it is replaced as a
    # whole, as `migrate` does with those of functions/ on every run.
    if makes and not makes["maybe"] and (not makes["replace"] or makes["kind"] == "function"):
        return {_plain(makes["name"])}
    return set()


def _of(statement: _Statement, made: set[str]) -> Iterator[str]:
    text = statement.text
    if _is_on_its_own(text, made) and not _touches_others(text):
        return
    if altered := _ALTER.fullmatch(text):
        for action in _split(altered["actions"]):
            yield from _of_action(action)
    elif filled := _FILLS.fullmatch(text):
        table = _plain(filled["name"])
        changed = {f"{table}.{each.split(' = ')[0]}" for each in _split(filled["values"])}
        if table not in made and not changed <= made:
            yield "changes values that running code knows"
    elif re.match(r"(do|select) ", text):
        if not any(_reason(comment) for comment in statement.comments):
            yield f"may do anything; say why it only adds in a comment `-- {MARKER} …` before it"
    elif not any(shape.fullmatch(text) for shape in _ADDS):
        yield "is not known to only add"


def _is_on_its_own(text: str, made: set[str]) -> bool:
    matches = (shape.match(text) for shape in _ON_ITS_OWN)
    return any(match is not None and _plain(match["name"]) in made for match in matches)


def _touches_others(text: str) -> bool:
    """An insert can carry a delete along (`with gone as (delete … returning *)`)."""
    return bool(re.search(r"\b(delete|truncate|merge)\b|(?<!do )\bupdate\b", text)) and (
        text.startswith("insert ")
    )


def _of_action(action: str) -> Iterator[str]:
    added = _ADD_COLUMN.fullmatch(action)
    if added is None:
        if not any(shape.fullmatch(action) for shape in _ACTIONS):
            yield "changes a table that running code uses"
        return
    column, rest = added["column"], added["rest"]
    if re.search(r"\bnot null\b", rest) and not _DEFAULT.search(rest):
        yield "adds a mandatory column without a default"
    if _UNIQUE_COLUMN.search(rest):
        yield "adds a column that may refuse what running code writes"
    if others := _checked_columns(rest) - {column}:
        yield f"adds a check of other columns {sorted(others)}"


def _checked_columns(definition: str) -> set[str]:
    """Words in checks that may be columns: no keywords, types after :: or names of functions."""
    inside = " ".join(_opening(part) for part in definition.split("check (")[1:])
    words = re.findall(r'(: : )?("[^"]*"|\b[^\W\d]\w*)( \()?', inside)
    return {word for cast, word, called in words if not cast and not called} - _WORDS_OF_A_CHECK


def _opening(text: str) -> str:
    """Up to the parenthesis that was opened before the text."""
    depth = 1
    for end, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return text[:end]
    return text


def _split(actions: str) -> list[str]:
    """At the commas outside parentheses."""
    parts, depth = [""], 0
    for word in actions.split(" "):
        depth += (word == "(") - (word == ")")
        if word == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] = f"{parts[-1]} {word}".strip()
    return parts


def _statements(text: str) -> Iterator[_Statement]:
    statement = _Statement()
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "comment":
            statement.comments.append(token[0])
        elif token[0] == ";":
            if statement.words:
                yield statement
            statement = _Statement()
        else:
            statement.words.append(_word(token))
    if statement.words:
        yield statement


def _word(token: re.Match[str]) -> str:
    """Texts say nothing about what a statement does, but a plain quoted name is that name."""
    if token["text"] or token["dollar"]:
        return "'…'"
    if token["quoted"]:
        inner = token[0][1:-1]
        return inner if re.fullmatch(r"[a-z_][a-z0-9_]*", inner) else f'"{inner.replace(" ", "_")}"'
    return token[0].lower()


def _plain(name: str) -> str:
    return name.removeprefix("public . ")


def _reason(comment: str) -> bool:
    _, marked, reason = comment.partition(MARKER)
    return bool(marked) and len(reason.split()) > 1

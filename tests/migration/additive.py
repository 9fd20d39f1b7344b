"""Which statements of a pre migration would break the code that still runs (UP-03)."""

import re

_FORBIDDEN = {
    r"\bdrop\b(?! (not null|default|expression|policy))": "drops something",
    r"\btruncate\b": "empties a table",
    r"\brename\b": "renames something",
    r"\balter (column )?\w+ (set data )?type\b": "changes a type",
    r"\bset not null\b": "makes a column mandatory",
    r"\bset schema\b": "moves something",
}


def problems(text: str) -> list[str]:
    """Why this migration does not only add, in sentences."""
    plain = re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    statements = [" ".join(each.split()).lower() for each in plain.split(";")]
    return [problem for statement in statements for problem in _of(statement)]


def _of(statement: str) -> list[str]:
    added = re.findall(r"\badd column\b[^,]*", statement)
    mandatory = [each for each in added if "not null" in each and " default " not in each]
    wrong = [what for pattern, what in _FORBIDDEN.items() if re.search(pattern, statement)]
    wrong += ["adds a mandatory column without a default"] * bool(mandatory)
    return [f"{what}: {statement}" for what in wrong]

"""Retired words of docs/develop/glossary.md that are names in farmiq/.

glossary.md --words--> [retired] <--names-- farmiq/**/*.py
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from farmiq import config

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "develop" / "glossary.md"
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+")
_ROW = re.compile(r"(?m)^\|(?P<cells>.*)\|$")


def words(glossary: str) -> set[str]:
    """Return the code spans of the last column of the glossary's tables."""
    rows = [match["cells"].split(" | ") for match in _ROW.finditer(glossary)]
    return {word for cells in rows for word in re.findall(r"`([^`]+)`", cells[-1])}


def names(source: str, module: str) -> Iterator[tuple[str, bool]]:
    """Yield each name that a module defines, and whether it is the name of a class."""
    yield module, False
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef(name=name):
                yield name, True
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield name, False
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, False
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name, False
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, False


def matches(name: str, *, is_class: bool, retired: set[str]) -> set[str]:
    """Return the retired words that a name uses."""
    plain = name.strip("_")
    parts = [part.lower() for part in _WORD.findall(plain)]
    joined = f"_{'_'.join(parts)}_"
    return {
        word
        for word in retired
        if (
            plain == word[1:] if word.startswith("=")
            else is_class and plain == word if word[0].isupper()
            else f"_{word}_" in joined
        )
    }  # fmt: skip


def public() -> set[str]:
    """Return names that others rely on: columns, settings, fields of messages and requests."""
    schema = "\n".join(file.read_text() for file in (ROOT / "farmiq").rglob("sql/schema/*.sql"))
    contracts = "\n".join(file.read_text() for file in (ROOT / "docs").glob("*api*.json"))
    settings = {name.lower() for site in config.TEMPLATES.values() for name in site.variables()}
    return {
        *re.findall(r"(?m)^  (\w+) ", schema),
        *re.findall(r'"(\w+)":', contracts),
        *settings,
    }


def count() -> dict[str, Counter[str]]:
    """Count the retired words of each file of farmiq/ that uses some."""
    retired, exempt = words(GLOSSARY.read_text(encoding="utf-8")), public()
    files: dict[str, Counter[str]] = {}
    for file in sorted((ROOT / "farmiq").rglob("*.py")):
        counted: Counter[str] = Counter()
        for name, is_class in names(file.read_text(encoding="utf-8"), file.stem):
            if name not in exempt:
                counted.update(matches(name, is_class=is_class, retired=retired))
        if counted:
            files[str(file.relative_to(ROOT))] = counted
    return files

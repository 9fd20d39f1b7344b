"""The texts of the pages: every language that ships has all of them, with the same placeholders."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from babel.messages.pofile import read_po

from farmiq.ui import i18n

ROOT = Path(__file__).parents[2]
CATALOGUES = sorted(i18n.FOLDER.glob("*/messages.po"))
NAMES = {"FarmIQ", "PostgreSQL", "Apache-2.0", "PDF", "CSV", "fiq_…"}
PLACEHOLDER = re.compile(r"%\((\w+)\)|%%|\{(\w+)\}")


def test_every_text_is_translated() -> None:
    done = subprocess.run(
        [sys.executable, "tools/texts", "--check"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"run tools/texts and translate:\n{done.stdout}{done.stderr}"


def test_no_text_hides_in_an_f_string() -> None:
    """tools/texts does not see it there, so it would stay English."""
    hidden = [
        f"{file.relative_to(ROOT)}: {found}"
        for file in sorted((ROOT / "farmiq").rglob("*.py"))
        for found in re.findall(r"\{(?:_|ngettext)\(['\"].*", file.read_text(encoding="utf-8"))
    ]
    assert not hidden


def test_no_template_has_words_outside_of_the_catalogue() -> None:
    """But for names, and for the page of the design system, which is for developers."""
    found = {
        (file.name, text)
        for file in sorted((ROOT / "farmiq").rglob("*.html"))
        if file.name != "design.html"
        for text in words_of(file.read_text(encoding="utf-8"))
    }
    assert {text for _name, text in found} <= NAMES, found


def words_of(template: str) -> list[str]:
    """What a browser would show that no expression or translation makes."""
    for block in (r"\{#.*?#\}", r"\{%-?\s*trans\b.*?endtrans\s*-?%\}", r"\{%.*?%\}|\{\{.*?\}\}"):
        template = re.sub(block, "", template, flags=re.DOTALL)
    template = re.sub(r"<(script|style|svg|code)\b.*?</\1>", "", template, flags=re.DOTALL)
    shown = re.findall(r'(?:aria-label|title|placeholder|alt)="([^"]*)"', template)
    shown += re.sub(r"<[^>]*>", "\n", template).splitlines()
    shown = [text for text in shown if not text.strip().startswith("/")]
    return [text.strip() for text in shown if re.search(r"[A-Za-z]{3}", text.replace("&nbsp;", ""))]


def test_languages_that_people_can_choose_have_a_catalogue() -> None:
    assert {file.parent.name for file in CATALOGUES} == i18n.LANGUAGES.keys() - {"en"}


@pytest.mark.parametrize("file", CATALOGUES, ids=lambda file: file.parent.name)
def test_translations_have_the_placeholders_of_their_text(file: Path) -> None:
    with file.open("rb") as text:
        catalogue = read_po(text, locale=file.parent.name)
    wrong = []
    for message in catalogue:
        if not message.id:
            continue
        ids = message.id if isinstance(message.id, (list, tuple)) else [message.id]
        strings = message.string if isinstance(message.string, (list, tuple)) else [message.string]
        # The form for one may leave the number out.
        wanted = [placeholders(text) for text in ids]
        wrong += [ids[0] for string in strings if placeholders(str(string)) not in wanted]
    assert not wrong


def placeholders(text: str) -> set[str]:
    return {found.group(0) for found in PLACEHOLDER.finditer(text)}


def test_sentences_are_given_the_values_that_their_pattern_names() -> None:
    """A wrong name would fail when somebody meets it. Without values it is filled later."""
    wrong = []
    for file in sorted((ROOT / "farmiq").rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        if "worded(" not in source and "phrase(" not in source:
            continue
        for call in ast.walk(ast.parse(source)):
            match call:
                case ast.Call(
                    func=ast.Name(id="worded" | "phrase"), args=[*_, ast.Constant(value)]
                ):
                    given = {keyword.arg for keyword in call.keywords}
                    named = {match[1] for match in PLACEHOLDER.finditer(str(value)) if match[1]}
                    if given and given != named and None not in given:
                        wrong.append(f"{file.relative_to(ROOT)}:{call.lineno}: {value!r}")
    assert wrong == []

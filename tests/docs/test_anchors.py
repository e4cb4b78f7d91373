"""Every page and section that a message or another page names is there."""

import ast
import re
from pathlib import Path

import architecture
from pliant import errors
from pliant.runtime.compilers import CompilerNotFound

DOCS = Path(__file__).resolve().parents[2]


def _has_page(cls):
    return isinstance(cls, type) and bool(getattr(cls, "page", ""))


ERRORS = {name: cls for name, cls in (*vars(errors).items(), ("CompilerNotFound", CompilerNotFound)) if _has_page(cls)}


def test_sections_that_messages_name_exist():
    named = {place for path in architecture.SOURCE.rglob("*.py") for place in _named(path.read_text())}
    assert "docs/debugging.md#no-compiler" in named and "docs/debugging.md#device" in named
    assert sorted(place for place in named if not _exists(place)) == []


def test_sections_that_pages_link_to_exist():
    pages = [*DOCS.glob("*.md"), *DOCS.glob("docs/**/*.md")]
    missing = []
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.S)):
            if "://" in link:
                continue
            name, mark, section = link.partition("#")
            place = (page.parent / name).resolve().relative_to(DOCS) if name else page.relative_to(DOCS)
            if not _exists(f"{place}{mark}{section}"):
                missing.append(f"{page.name}: {link}")
    assert missing == []


def _named(text):
    """Written out, and by errors of each kind."""
    yield from re.findall(r"docs/[\w/-]+\.md(?:#[\w-]+)?", text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and (cls := ERRORS.get(ast.unparse(node.func).rpartition(".")[2])):
            kinds = [k.value.value for k in node.keywords if k.arg == "kind" and isinstance(k.value, ast.Constant)]
            if kinds:
                yield cls("what", kind=kinds[0]).doc if cls is not errors.VerifyError else cls.page


def _exists(place):
    name, _, section = place.partition("#")
    path = DOCS / name
    return path.exists() and (not section or section in _sections(path.read_text()))


def _sections(text):
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

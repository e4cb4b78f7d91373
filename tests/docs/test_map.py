"""`docs/map.md` names every folder of the package, and every module at its top; a folder's page names its modules."""

import ast
import re

import architecture

PACKAGE = architecture.SOURCE / "pliant"
MAP = (architecture.SOURCE.parent / "docs" / "map.md").read_text()


def entries() -> set[str]:
    """What the rows of the map's tables are about."""
    rows = [line.split("|")[1] for line in MAP.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def folders() -> set[str]:
    return {f"{path.parent.relative_to(PACKAGE)}/" for path in PACKAGE.rglob("__init__.py")} - {"./"}


def test_every_folder_is_on_the_map_and_no_other():
    assert {name for name in entries() if name.endswith("/")} == folders()


def test_every_module_at_the_top_is_on_the_map():
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert {name for name in entries() if name.endswith(".py")} == modules


def test_what_is_to_be_read_first_exists():
    rows = [line.split("|")[1:4] for line in MAP.splitlines() if line.startswith("| `") and line.count("|") > 3]
    assert rows
    for where, _, first in rows:
        (folder,) = {name if name.endswith("/") else "" for name in re.findall(r"`([^`]+)`", where)}
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", first):
            assert (PACKAGE / folder / name).exists(), f"{folder}{name}"


def test_a_folder_that_lists_its_modules_lists_all():
    """A docstring of a folder that has the names of half of its modules."""
    listing = 0
    for init in PACKAGE.rglob("__init__.py"):
        modules = {path.stem for path in init.parent.glob("*.py") if not path.name.startswith("__")}
        page = ast.get_docstring(ast.parse(init.read_text())) or ""
        missing = {name for name in modules if not re.search(rf"\b{name}\b", page)}
        lists = len(modules) > 10 and len(missing) < len(modules) / 2
        assert not lists or not missing, f"{init}: {sorted(missing)}"
        listing += lists
    assert listing > 3

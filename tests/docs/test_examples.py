"""Every fenced Python block of README and docs runs, in order of appearance on its page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks():
    for page in PAGES:
        for match in BLOCK.finditer(page.read_text()):
            line = page.read_text()[: match.start()].count("\n") + 2
            yield pytest.param(page, line, match[1], id=f"{page.relative_to(ROOT)}:{line}")


@pytest.mark.parametrize(("page", "line", "text"), list(blocks()))
def test_block_runs(page, line, text, tmp_path):
    # In a file of its own: capture reads the source of what it compiles.
    file = tmp_path / f"{page.stem}_{line}.py"
    file.write_text(text)
    exec(compile(text, str(file), "exec"), {"__name__": "example", "__file__": str(file)})


def targets(page):
    return re.findall(r"\]\((?!https?:)([^)#]+)(#[^)]*)?\)", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    missing = [target for target, _ in targets(page) if not (page.parent / target).exists()]
    assert not missing, f"{page.name} links to {missing}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_paths_named_in_the_map_exist(page):
    if page.name != "map.md":
        pytest.skip("only the map names every folder")
    first_cells = re.findall(r"^\| (`[^|]*) \|", page.read_text(), re.M)
    names = [name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)]
    assert names and not [n for n in names if not (ROOT / "src/pliant" / n).exists()]


def test_every_log_channel_is_documented():
    from pliant.debug import events

    text = (ROOT / "docs/debugging.md").read_text()
    assert not [c for c in events.CHANNELS if f"`{c}`" not in text]

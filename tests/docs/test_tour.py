"""The additions of `docs/tour.md`, applied as patches to a copy of the package."""

import re
import shutil
from pathlib import Path

import pytest

import architecture
import own_process

PAGE = (architecture.SOURCE.parent / "docs" / "tour.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n)+)", PAGE, re.M))
BLOCK = re.compile(r"^```(\w+) (\S+)\n(.*?)^```$", re.M | re.S)

# What runs in the copy: programs by section, each with whether the graph is whole and its operators fused.
RUN = """
import os, sys, torch
import pliant
assert pliant.__file__.startswith(sys.argv[1]), pliant.__file__

for name in sys.argv[2:]:
    scope = {"torch": torch, "os": os}
    exec(compile(open(name).read(), name, "exec"), scope)
    program, x = scope["program"], torch.tensor([-1.0, 0.0, 2.0])
    pliant.reset()
    done = pliant.compile(program)(x)
    torch.testing.assert_close(done, program(x))
    stats = pliant.stats()
    print(name.rsplit("/")[-1], stats["graph_breaks"], stats["externs"], stats["fallbacks"])
"""


def blocks(section: str, kind: str) -> list[tuple[str, str]]:
    return [(name, text) for one, name, text in BLOCK.findall(SECTIONS[section]) if one == kind]


def lines_of(patch: str, signs: str) -> str:
    return "".join(line[1:] + "\n" for line in patch.splitlines() if line[:1] in signs or not line)


def apply(package: Path, section: str, back: bool = False) -> None:
    for name, patch in blocks(section, "patch"):
        before, after = lines_of(patch, " "), lines_of(patch, " +")
        before, after = (after, before) if back else (before, after)
        text = (package / name).read_text()
        assert text.count(before) == 1, f"{name} has not once:\n{before}"
        (package / name).write_text(text.replace(before, after))


def run(folder: Path) -> dict[str, list[int]]:
    programs = {name: text for title in SECTIONS for name, text in blocks(title, "example")}
    for name, text in programs.items():
        (folder / name).write_text(text)
    env = {**__import__("os").environ, "PYTHONPATH": str(folder), "PLIANT_CACHE_DIR": str(folder / "cache")}
    done = own_process.ran(RUN, folder, *(folder / name for name in programs), env=env, check=True)
    return {name: list(map(int, rest)) for name, *rest in map(str.split, done.stdout.splitlines())}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(architecture.SOURCE / "pliant", tmp_path / "pliant")  # with its bytecode
    return tmp_path


@pytest.mark.multiprocess
def test_each_addition_makes_its_program_whole(copy: Path):
    """(graph breaks, extern calls, fallbacks) before, with the opcode taken out, and after."""
    with_opcode = {name: (copy / "pliant" / name).read_text() for name, _ in blocks("An opcode", "patch")}
    apply(copy / "pliant", "An opcode", back=True)
    before = run(copy)
    for name, text in with_opcode.items():
        (copy / "pliant" / name).write_text(text)
    for section in ("An operator", "A builtin function", "A kind of value"):
        apply(copy / "pliant", section)
    after = run(copy)
    assert set(before) == set(after) == {"operator", "builtin", "kind", "opcode"}
    assert all(any(found) for found in before.values()), before
    assert not any(any(found) for found in after.values()), after

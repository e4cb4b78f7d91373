"""Modules of the package are found as the standard finders find them, with fewer looks at the disk."""

import importlib
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pliant
from pliant import own_modules

SOURCE = Path(pliant.__file__).parent


def package(root: Path) -> Path:
    """A package with our finder, and with what finders have to tell apart."""
    folder = root / "parcel"
    (folder / "inner" / "__pycache__").mkdir(parents=True)
    (folder / "bare").mkdir()
    (folder / "__init__.py").write_text("from pliant.own_modules import find_quickly\nfind_quickly(__spec__)\n")
    (folder / "one.py").write_text("value = 1\n")
    (folder / "inner" / "__init__.py").write_text("within = True\n")
    (folder / "inner" / "two.py").write_text("def name():\n    return 'two'\n")
    (folder / "both.py").write_text("kind = 'module'\n")
    (folder / "both").mkdir()
    (folder / "both" / "__init__.py").write_text("kind = 'package'\n")
    return folder


def ran(root: Path, program: str, *flags: str, **environment: str) -> str:
    paths = os.pathsep.join([str(root), str(SOURCE.parent)])
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")}
    command = [sys.executable, *flags, "-c", program]
    done = subprocess.run(command, env={**inherited, "PYTHONPATH": paths, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SAID = """
import importlib, inspect, json
said = []
for name in ("parcel.one", "parcel.inner", "parcel.inner.two", "parcel.both"):
    m = importlib.import_module(name)
    s = m.__spec__
    said.append([m.__file__, m.__cached__, s.origin, s.has_location, s.parent, s.submodule_search_locations, inspect.getsource(m)])
print(json.dumps(said))
"""


@pytest.mark.parametrize(("flags", "prefix"), [((), True), (("-O",), False), (("-B",), False)])
def test_modules_say_what_the_standard_ones_say(tmp_path: Path, flags: tuple[str, ...], prefix: bool) -> None:
    folder = package(tmp_path)
    environment = {"PYTHONPYCACHEPREFIX": str(tmp_path / "elsewhere")} if prefix else {}
    quick = [ran(tmp_path, SAID, *flags, **environment) for _ in range(2)]  # without bytecode, and with it
    (folder / "__init__.py").write_text("")
    assert quick == [ran(tmp_path, SAID, *flags, **environment)] * 2
    kept = [*tmp_path.rglob("two.*.pyc")]
    assert [("elsewhere" in str(path)) for path in kept] == ([] if "-B" in flags else [prefix])


VALUE = "import parcel.one as one; print(one.value, type(one.__spec__.loader).__module__)"


def test_a_changed_source_is_read_again(tmp_path: Path) -> None:
    folder = package(tmp_path)
    assert ran(tmp_path, VALUE) == "1 pliant.own_modules"
    source = folder / "one.py"
    before = source.stat()
    source.write_text("value = 22\n")  # of another size
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ran(tmp_path, VALUE).startswith("22")
    source.write_text("value = 33\n")
    os.utime(source, (before.st_atime, before.st_mtime + 5))  # of another time
    assert ran(tmp_path, VALUE).startswith("33")


@pytest.mark.parametrize("change", ["magic", "truncated", "no code", "moved", "hashed"])
def test_bytecode_that_is_not_the_sources_is_made_again(tmp_path: Path, change: str) -> None:
    folder = package(tmp_path)
    assert ran(tmp_path, VALUE).startswith("1 ")
    cached = Path(importlib.util.cache_from_source(str(folder / "one.py")))
    if not cached.exists():  # where this process' prefix is another's
        cached = next(folder.rglob("one.*.pyc"))
    data = cached.read_bytes()
    if change == "moved":
        moved = tmp_path / "moved" / "parcel"
        folder.parent.joinpath("moved").mkdir()
        os.rename(folder, moved)
        assert ran(tmp_path / "moved", "import parcel.one as one; print(one.__loader__.get_code('parcel.one').co_filename)") == str(moved / "one.py")
        return
    if change == "hashed":
        (folder / "one.py").write_text("value = 9\n")
        subprocess.run([sys.executable, "-m", "compileall", "-f", "-q", "--invalidation-mode", "unchecked-hash", folder], check=True)
        (folder / "one.py").write_text("value = 1\n")  # which nobody checks
        assert ran(tmp_path, VALUE).startswith("9 ")
        return
    wrong = {"magic": b"\0\0\0\0" + data[4:], "truncated": data[:40], "no code": data[:16] + b"N"}[change]
    cached.write_bytes(wrong)
    if change == "no code":
        assert own_modules._current(str(folder / "one.py"), str(cached)) is None
        return
    if change == "magic":
        assert ran(tmp_path, VALUE).startswith("1 ")
    assert own_modules._current(str(folder / "one.py"), str(cached)) is None or change == "magic"


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    package(tmp_path)
    program = "import importlib\ntry:\n    importlib.import_module('parcel.none')\nexcept ModuleNotFoundError as e:\n    print(e)"
    assert ran(tmp_path, program) == "No module named 'parcel.none'"


def test_a_module_that_comes_later_is_found(tmp_path: Path) -> None:
    folder = package(tmp_path)
    program = f"""
import importlib, parcel.one
open({str(folder / "late.py")!r}, "w").write("value = 5")
importlib.invalidate_caches()
import parcel.late; print(parcel.late.value)
"""
    assert ran(tmp_path, program) == "5"


def test_finders_of_others_stay(tmp_path: Path) -> None:
    """A hook that the program has for our folders is asked."""
    package(tmp_path)
    program = """
import sys, importlib.machinery, importlib.util
class Own(importlib.machinery.SourceFileLoader): pass
def hook(path):
    if "parcel" not in path: raise ImportError
    return importlib.machinery.FileFinder(path, (Own, [".py"]))
sys.path_hooks.insert(0, hook)
import parcel.one; print(type(parcel.one.__loader__).__name__)
"""
    assert ran(tmp_path, program) == "Own"


def test_all_modules_of_the_package_are_found_so() -> None:
    program = """
import sys, json, torch, pliant
from pliant import compiler, api
compiler.load_stages()
print(json.dumps(sorted(n for n, m in sys.modules.items() if n.startswith("pliant.") and type(m.__loader__).__module__ != "pliant.own_modules")))
"""
    assert json.loads(ran(SOURCE, program)) == ["pliant.own_modules", "pliant.unpatched"]

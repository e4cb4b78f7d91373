"""Modules of this package, found and read with fewer looks at the disk.

For each module the standard finder looks at its folder, its source and its bytecode, and computes all paths anew: with hundreds of
small modules, a quarter of what loading a compiler takes, and of what a call takes that finds its compiled code on disk.

In:     the spec by which the package itself was found.
Out:    `find_quickly(spec)`: from now on its folders are searched by finders that list a folder once and read bytecode at once.
Holds:  finders are asked for this package's folders alone (`sys.path_importer_cache`), and find themselves only what the standard
        ones, which the program's hooks may have chosen, would load with the standard loader.
        Modules use the builtins and the standard library as they are now, whatever a program puts there later (`unpatched`).
        Bytecode is taken if it is of this interpreter, of this path, and of a source of that time and size, as the standard
        loader says; anything else is left to that.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import marshal
import os
import pkgutil
import sys
from types import CodeType, ModuleType

from pliant.unpatched import IN_CODE, standard

# For the functions below, which load modules at any time.
__builtins__ = IN_CODE  # type: ignore[assignment]
vars(sys.modules[__name__]).update({name: standard(name) for name in ("importlib", "marshal", "os", "pkgutil")})
_HEADER = 16  # bytes before the code: magic number, flags, time and size of the source
_CHUNK = 1 << 16
_BY_TIME = importlib.util.MAGIC_NUMBER + bytes(4)  # flags that say: compare time and size


class _Loader(importlib.machinery.SourceFileLoader):
    """The standard loader, which takes longer to find that bytecode is current."""

    def __init__(self, name: str, path: str, cached: str) -> None:
        super().__init__(name, path)
        self._cached = cached

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = IN_CODE
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType | None:
        return _current(self.path, self._cached) or super().get_code(fullname)


def _current(path: str, cached: str) -> CodeType | None:
    """What the bytecode at this place has for the source; None if it is of another, or cannot be read."""
    try:
        source, data = os.stat(path), _read(cached)
    except OSError as error:
        if error.filename is None:  # not of a file: a signal handler's
            raise
        return None
    numbers = (int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF)
    if data[:_HEADER] != _BY_TIME + b"".join(number.to_bytes(4, "little") for number in numbers):
        return None
    try:
        code = marshal.loads(memoryview(data)[_HEADER:])
    except (EOFError, ValueError, TypeError):
        return None
    return code if isinstance(code, CodeType) and code.co_filename == path else None


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        data = part = os.read(file, _CHUNK)
        while len(part) == _CHUNK:
            part = os.read(file, _CHUNK)
            data += part
        return data
    finally:
        os.close(file)


class _Folder:
    """Finds the modules and packages of one folder."""

    def __init__(self, path: str, standard: importlib.machinery.FileFinder) -> None:
        self._path, self._standard = path, standard
        self._sources: frozenset[str] | None = None  # modules that are no folders too, which would come first
        self._before = self._behind = ""  # of a name, in the place of its bytecode

    def find_spec(self, fullname: str, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if self._sources is None and not self._is_standard(fullname):
            return self._standard.find_spec(fullname)
        name = fullname.rpartition(".")[2]
        if name in self._modules():
            return self._spec(fullname, f"{self._path}/{name}.py", f"{self._before}{name}{self._behind}", None)
        return self._package(fullname, name) or self._standard.find_spec(fullname)

    def invalidate_caches(self) -> None:
        self._sources = None
        self._standard.invalidate_caches()

    def _is_standard(self, fullname: str) -> bool:
        """Whether the standard loader would load this, as all that is here."""
        spec = self._standard.find_spec(fullname)
        return spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader

    def _modules(self) -> frozenset[str]:
        if self._sources is None:
            self._before, self._behind = _place_of_bytecode(self._path)
            names = {*os.listdir(self._path)}
            self._sources = frozenset(n[:-3] for n in names if n.endswith(".py") and n[:-3] not in names)
        return self._sources

    def _package(self, fullname: str, name: str) -> importlib.machinery.ModuleSpec | None:
        folder = f"{self._path}/{name}"
        path = f"{folder}/__init__.py"
        if not os.path.isfile(path):
            return None
        before, behind = _place_of_bytecode(folder)
        search(folder)
        return self._spec(fullname, path, f"{before}__init__{behind}", [folder])

    def _spec(self, fullname: str, path: str, cached: str, within: list[str] | None) -> importlib.machinery.ModuleSpec | None:
        loader = _Loader(fullname, path, cached)
        spec = importlib.util.spec_from_file_location(fullname, path, loader=loader, submodule_search_locations=within)
        if spec is not None:
            spec.cached = cached
        return spec


def _place_of_bytecode(folder: str) -> tuple[str, str]:
    """What stands before and behind a module's name in the place of its bytecode."""
    folder, _, name = importlib.util.cache_from_source(f"{folder}/x.py").rpartition("/")
    return f"{folder}/", name[1:]


def search(folder: str) -> None:
    """Search this folder so, where a standard finder would."""
    found = pkgutil.get_importer(folder)
    if type(found) is importlib.machinery.FileFinder:
        sys.path_importer_cache[folder] = _Folder(folder, found)


def find_quickly(spec: importlib.machinery.ModuleSpec | None) -> None:
    """Find so what the package with this spec has: where it lies as files, which the standard loader has loaded."""
    if spec is None or type(spec.loader) is not importlib.machinery.SourceFileLoader or os.sep != "/":
        return
    if sys.implementation.cache_tag is not None:  # else bytecode is not kept
        for folder in filter(os.path.isabs, spec.submodule_search_locations or ()):
            search(folder)

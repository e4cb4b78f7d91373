"""A file system that fails, as one on a network does: one call, or each from it on. The result is right, with at most one warning,
and the next call finds entries again.

    python -m tests.entries.faults --every 1
"""

from __future__ import annotations

import argparse
import builtins
import errno
import io
import os
import random
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from tests.entries import programs

import pliant
from pliant import background
from pliant.debug import events

CODES = (errno.ESTALE, errno.EIO, errno.ENOSPC, errno.EACCES, errno.ENOLCK)
CALLS = ("stat", "lstat", "fstat", "open", "rename", "replace", "mkdir", "scandir", "listdir", "utime", "unlink", "rmdir", "chmod")
X = torch.linspace(-1, 1, 16).view(4, 4)


class Faults:
    """Calls that name a file below `root` fail: the one of this number, or, `lasting`, all from it on."""

    def __init__(self, root: Path, number: int, code: int, lasting: bool) -> None:
        self.root, self.number, self.code, self.lasting = str(root), number, code, lasting
        self.count = 0

    def __enter__(self) -> Faults:
        places = [*((os, name) for name in CALLS), (io, "open"), (builtins, "open")]
        self.before = [(module, name, getattr(module, name)) for module, name in places]
        for module, name, function in self.before:
            setattr(module, name, self._failing(function))
        return self

    def __exit__(self, *error: object) -> None:
        for module, name, function in self.before:
            setattr(module, name, function)

    def _failing(self, function: Any) -> Any:
        def call(place: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(place, (str, os.PathLike)) and os.fspath(place).startswith(self.root):
                self.count += 1
                if self.count == self.number or self.lasting and self.count > self.number:
                    raise OSError(self.code, os.strerror(self.code), str(place))
            return function(place, *args, **kwargs)

        return call


@torch.no_grad()
def called(root: Path) -> tuple[dict[str, int], list[str]]:
    """What a process does that has compiled nothing: the counts of entries, and the warnings."""
    pliant.reset()
    events.reset()
    with warnings.catch_warnings(record=True) as caught, pliant.config.patch(keep_entries=True, cache_dir=str(root)):
        warnings.simplefilter("always")
        result = pliant.compile(programs.scaled)(X)
        background.finish()
    torch.testing.assert_close(result, programs.scaled(X))
    return pliant.stats()["entries"], [str(one.message) for one in caught]


def trouble(base: Path, root: Path, keeps: bool, number: int, lasting: bool) -> tuple[str, int]:
    """What goes wrong where a copy of the folder fails so, and how many calls there were. `keeps`: it has no entry yet."""
    shutil.copytree(base, root)
    root.chmod(0o700)
    if keeps:
        shutil.rmtree(root / "v1" / "entries")
    code = random.Random(2 * number + lasting).choice(CODES)
    try:
        with Faults(root, number, code, lasting) as faults:
            _, told = called(root)
        later = [called(root) for _ in range(2)]
    except Exception as error:
        return f"{type(error).__name__}: {error}", number
    finally:
        shutil.rmtree(root)
    noise = [*told[1:], *(text for _, texts in later for text in texts)]
    return "; ".join(noise) or ("" if later[-1][0].get("found") or keeps else "nothing is found again"), faults.count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="pliant-faults-") as folder:
        called(Path(folder, "base"))
        for keeps in (False, True):
            number = count = 1
            while number <= count:
                for lasting in (False, True):
                    name = f"{keeps}-{number}-{lasting}"  # what is known of a folder is known for the process
                    wrong, count = trouble(Path(folder, "base"), Path(folder, name), keeps, number, lasting)
                    bad += bool(wrong)
                    if wrong:
                        print(f"{'keeping' if keeps else 'finding'}, call {number}, lasting {lasting}: {wrong}")
                number += given.every
            print(f"{'keeping' if keeps else 'finding'}: {number} calls")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()

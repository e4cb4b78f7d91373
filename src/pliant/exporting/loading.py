"""`pliant.load`: exported programs from files.

In:     a path that `Exported.save` or `aot_compile` wrote, or anything else.
Out:    an `Exported`, with compiled code where the file has it and is trusted.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from typing import Any

from pliant.exporting.exported import Exported
from pliant.exporting.form import PACKAGE
from pliant.exporting.program import Program
from pliant.exporting.reading import read


def load(
    path: Any, *, kernels: bool = False, libraries: Collection[str] = (), classes: Collection[type] = (), check: bool = True
) -> Exported:
    """The program that `Exported.save` or `aot_compile` wrote. Loading runs nothing of the file, which may come from
    anywhere, unless `kernels` says that it is trusted: then calls run the machine code that `aot_compile` put there.
    `libraries`: of operators that it may call, beside those of ATen whose kernels check what they are given; `"aten"`: the
    others, too, of a file that is trusted. `classes`: of results that it may make, beside those that are
    registered with PyTorch's trees. `check`: see that no element is damaged, which reads them all."""

    def finish(program: Program, archive: zipfile.ZipFile) -> Exported:
        exported = Exported.of(program)
        if kernels or PACKAGE in archive.namelist():
            from pliant.exporting.unpacked import attach

            attach(exported, path, archive, kernels)
        return exported

    return read(path, libraries, classes, check, finish)

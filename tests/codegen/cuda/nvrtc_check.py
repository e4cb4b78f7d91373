"""What NVRTC and the assembler say of kernels' texts, without a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pliant.codegen.cuda import prelude
from pliant.errors import NoKernels
from pliant.runtime.cuda import nvrtc

_FUNCTION = re.compile(r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers", re.S)


def missing() -> str:
    """Why there is no NVRTC here, or nothing."""
    try:
        nvrtc.library()
    except NoKernels as error:
        return str(error)
    return ""


def compiled(texts: Iterable[str], architecture: str) -> list[tuple[int, int]]:
    """Registers of a thread and bytes that it spills, for each of the kernels, built as one program."""
    named = [text.replace("@", f"k{n}_") for n, text in enumerate(texts)]
    body = "\n".join(named)
    flags = (*nvrtc.FLAGS, *nvrtc.QUICK, "--ptxas-options=-v")
    code, log, _ = nvrtc._compiled(prelude.text_for(body) + body, architecture, flags)
    assert not code, log
    found = {name: (int(used), int(spilled)) for name, spilled, used in _FUNCTION.findall(log)}
    return [found[f"k{n}_"] for n in range(len(named))]

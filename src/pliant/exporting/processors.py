"""The machines that packages have kernels for, by name, and which of them this one is.

In:     names that a user passes as `targets`.
Out:    `Processor`s and compute capabilities; of what a package says of its kernels, why this machine cannot run them.
Holds:  a processor is known by the words of `/proc/cpuinfo`, never by trying. One that needs features which this machine
        does not name is not used, so too strict a row costs speed and no answer.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pliant import config
from pliant.cache.key import machine
from pliant.errors import ConfigError
from pliant.interruptions import pass_on
from pliant.records import dataclass
from pliant.runtime import compilers
from pliant.torch_adapter import VERSION
from pliant.wrappers.vector_math import vector_math

Json = Any
NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Processor:
    """A kind of processor: `march`, as compilers name it; `architecture`, as the system does; the features of
    `/proc/cpuinfo` that code for it may use. `model`: it is this machine's own, which has more than the row says."""

    march: str
    architecture: str
    features: tuple[str, ...]
    model: str = ""

    def build_options(self, options: config.Build) -> config.Build:
        """How texts are built for it. ConfigError if no compiler here makes its code."""
        kept = [flag for flag in options.opt_flags if not flag.startswith(("-march=", "-mtune=", "-mcpu="))]
        made = replace(options, opt_flags=(*kept, f"-march={self.march}"))
        return made if self.architecture == platform.machine() else replace(made, compiler=_cross_compiler(self))

    def said(self) -> Json:
        """What a package says of it."""
        return {
            "name": self.march, "architecture": self.architecture, "features": list(self.features), "model": self.model,
            "vector_math": self.architecture == "x86_64" and vector_math(),
        }  # fmt: skip


# The levels of x86-64 are those of its psABI, which compilers and the C library know by these names.
_V3 = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
PROCESSORS = {
    "x86-64-v3": Processor("x86-64-v3", "x86_64", _V3),
    "x86-64-v4": Processor("x86-64-v4", "x86_64", _V4),
    "armv8-a": Processor("armv8-a", "aarch64", ("fp", "asimd")),
}
ALSO_CALLED = {"avx2": "x86-64-v3", "avx512": "x86-64-v4", "neon": "armv8-a"}
_GPU = re.compile(r"sm_(\d{2,3})")


def machines(targets: Iterable[str]) -> tuple[list[Processor], list[int]]:
    """Processors and compute capabilities of these names, the best first; this machine's processor if none is named."""
    processors, capabilities = dict[Processor, None](), dict[int, None]()
    for name in targets:
        gpu = _GPU.fullmatch(name) if isinstance(name, str) else None
        if gpu is not None:
            capabilities[int(gpu[1])] = None
        else:
            processors[_processor(name)] = None
    best = sorted(processors or [_processor(NATIVE)], key=lambda one: (bool(one.model), len(one.features)), reverse=True)
    return best, sorted(capabilities, reverse=True)


def _processor(name: object) -> Processor:
    if name == NATIVE:
        return Processor(NATIVE, platform.machine(), (), machine())
    found = PROCESSORS.get(ALSO_CALLED.get(str(name), str(name)))
    if found is not None:
        return found
    known = [NATIVE, *PROCESSORS, *ALSO_CALLED]
    near = difflib.get_close_matches(str(name), known, 1)
    raise ConfigError(
        f"there is no target {name!r}", kind="wrong-value",
        why=f"targets are {', '.join(known)}, and GPUs by their compute capability (sm_80, sm_90)",
        do=f"did you mean {near[0]!r}?" if near else "pass one of these",
    )  # fmt: skip


def _cross_compiler(wanted: Processor) -> str:
    command = f"{wanted.architecture}-linux-gnu-gcc"
    if shutil.which(command) is not None:
        return command
    if compilers.is_installed():  # clang writes code for all
        return f"{compilers.PACKAGE} --target={wanted.architecture}-linux-gnu"
    raise ConfigError(
        f"no kernels can be built for {wanted.march} here", kind="no-compiler",
        why=f"that takes the cross compiler {command}, which is not installed",
        do=f"install it (Debian: gcc-{wanted.architecture.replace('_', '-')}-linux-gnu), or {compilers.INSTALL}, or leave the target out",
    )  # fmt: skip


# ---- where a package is loaded
def why_not(said: Json) -> str:
    """Why this machine cannot run what was built for a processor; nothing if it can."""
    name = said["name"]
    if said["architecture"] != platform.machine():
        return f"{name} is for {said['architecture']}, and this is {platform.machine()}"
    if said["model"] and said["model"] != machine():
        return f"{name} is for another processor"
    if missing := [one for one in said["features"] if one not in features()]:
        return f"{name} needs {', '.join(missing)}"
    if said["vector_math"] and not vector_math():
        return f"{name} needs the vector functions of glibc 2.35"
    return ""


@functools.cache
def features() -> frozenset[str]:
    """What the processor can do, as Linux says; nothing elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError as error:
        pass_on(error)
        return frozenset()
    words = (line.partition(":")[2].split() for line in lines if line.split(":")[0].strip() in ("flags", "Features"))
    return frozenset(next(words, ()))


def why_no_gpu(built: int, here: Sequence[int]) -> str:
    """Why these GPUs cannot run what was built for a compute capability; nothing if they can: those of its generation that
    are not older."""
    if any(one // 10 == built // 10 and one >= built for one in here):
        return ""
    return f"sm_{built} is for compute capability {built / 10}, and here is {', '.join(str(one / 10) for one in here) or 'no GPU'}"


def environment() -> dict[str, str]:
    """What the code around kernels depends on."""
    return {
        "pliant": _sources(), "torch": VERSION, "python": ".".join(map(str, sys.version_info[:2])), "platform": sys.platform,
    }  # fmt: skip


@functools.cache
def _sources() -> str:
    """Of every file of the package, wherever it is installed."""
    root, found = Path(__file__).resolve().parents[1], hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        found.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return found.hexdigest()[:24]

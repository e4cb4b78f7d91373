"""Turn C text into a shared object on disk.

In:     C translation units and the build options.
Out:    the path of a shared object; the same text, flags, compiler and processor give the same file, built once.
Holds:  files appear whole or not at all (written beside, then renamed), so processes may build the same text at once;
        no compiler on this machine is `CompilerNotFound`, a refused text is `CompileError` with the text kept on disk.
Units:  `build` of one small text takes the compiler's start-up, about 50 ms; texts are compiled in parallel.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pliant import config
from pliant.errors import CompileError

# Flags that the meaning of the text depends on; `opt_flags` of the configuration only decide speed.
# Contraction is off so that a*b + c rounds twice, as eager's separate kernels do; where the prelude wants a fused
# multiply-add it says so. Traps and errno are never looked at; infinities, NaN and signed zeros keep their meaning.
MEANING_FLAGS = ("-std=gnu11", "-ffp-contract=off", "-fno-trapping-math", "-fopenmp-simd", "-fno-strict-aliasing")
# Nothing is linked: libm and the OpenMP runtime are already in the process. This halves the linker's time.
LINK_FLAGS = ("-shared", "-fPIC", "-pipe", "-w", "-nostdlib", "-fno-stack-protector", "-fno-asynchronous-unwind-tables")


class CompilerNotFound(CompileError):
    """No C compiler on this machine; the caller runs the graph without kernels."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: `path` to run, `identity` that changes when it is replaced."""

    path: str
    identity: str


@functools.cache
def find_compiler(wanted: str) -> Compiler:
    """The compiler that the configuration names, or cc, gcc or clang; CompilerNotFound if there is none."""
    for name in (wanted,) if wanted else ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path is not None:
            real = os.path.realpath(path)
            stat = os.stat(real)
            return Compiler(path, f"{real}:{stat.st_size}:{stat.st_mtime_ns}")
    raise CompilerNotFound(
        f"no C compiler: `{wanted}` was not found" if wanted else "no C compiler: neither cc, gcc nor clang was found",
        kind="no-compiler",
        why="kernels for CPU are C text that the system's compiler builds",
        do="install gcc or clang, or set PLIANT_CC to one",
    )


@functools.cache
def processor() -> str:
    """What `-march=native` depends on: the architecture and the processor's features."""
    text = platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        wanted = ("flags", "Features", "model name", "cpu family", "model\t")
        found = {line.strip() for line in lines if line.startswith(wanted)}
        text += "".join(sorted(found))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def flags_of(options: config.Build) -> tuple[str, ...]:
    """All flags a text is built with."""
    return (*options.opt_flags, *MEANING_FLAGS, *LINK_FLAGS)


def key_of(texts: Sequence[str], options: config.Build) -> str:
    """The content address of what `build` makes of these texts."""
    compiler = find_compiler(options.compiler)
    digest = hashlib.sha256()
    for part in (*texts, *flags_of(options), compiler.identity, processor()):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def build(texts: Sequence[str], options: config.Build, folder: Path) -> Path:
    """The shared object of these translation units in `folder`, compiled now if it is not there."""
    path = folder / f"{key_of(texts, options)}.so"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work:
        made = _compile(texts, options, Path(work))
        os.replace(made, path)
    return path


def _compile(texts: Sequence[str], options: config.Build, work: Path) -> Path:
    """Compile all texts, in parallel if there are several, and link them."""
    compiler = find_compiler(options.compiler)
    sources = [work / f"part{k}.c" for k in range(len(texts))]
    for source, text in zip(sources, texts):
        source.write_text(text, encoding="utf-8")
    target = work / "kernels.so"
    flags = flags_of(options)
    if len(texts) == 1:
        _run([compiler.path, *flags, str(sources[0]), "-o", str(target)], options, texts)
        return target
    objects = [source.with_suffix(".o") for source in sources]
    compile_flags = [f for f in flags if f not in ("-shared", "-nostdlib")]
    commands = [[compiler.path, *compile_flags, "-c", str(s), "-o", str(o)] for s, o in zip(sources, objects)]
    with ThreadPoolExecutor(options.build_jobs or os.cpu_count() or 1) as pool:
        list(pool.map(lambda command: _run(command, options, texts), commands))
    _run([compiler.path, "-shared", "-nostdlib", *map(str, objects), "-o", str(target)], options, texts)
    return target


def _run(command: list[str], options: config.Build, texts: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.build_timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(
            f"the C compiler did not finish: {error}", kind="c-compiler", why="it could not run or took too long",
            do="check PLIANT_CC and the option build_timeout",
        ) from error
    if done.returncode != 0:
        kept = _keep(texts)
        raise CompileError(
            f"the C compiler refused generated text: {done.stderr.strip()[:2000]}",
            kind="c-compiler",
            where=str(kept),
            why=" ".join(command),
            do="please report this with the kept text; the graph runs eagerly meanwhile",
        )


def _keep(texts: Sequence[str]) -> Path:
    """Write refused texts where the user can find them."""
    folder = Path(tempfile.mkdtemp(prefix="pliant-refused-"))
    for k, text in enumerate(texts):
        (folder / f"part{k}.c").write_text(text, encoding="utf-8")
    return folder

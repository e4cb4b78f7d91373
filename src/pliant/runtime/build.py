"""Turn C text into a shared object on disk.

In:     C translation units and the build options.
Out:    the path of a shared object; the same text, flags, compiler and processor give the same file, built once.
Holds:  the content-addressed store keeps what is built, so processes may build the same text at once;
        no compiler on this machine is `CompilerNotFound`, unless somebody has built the same text for the store;
        a refused text is `CompileError` with the text kept on disk.
Units:  `build` of one small text takes the compiler's start-up, about 50 ms; texts are compiled in parallel.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pliant import background, config
from pliant.cache.key import Key, machine, make_key
from pliant.cache.store import open_store
from pliant.debug import events
from pliant.errors import CompileError, NoKernels
from pliant.regular import pattern
from pliant.runtime.compilers import CompilerNotFound, find_compiler
from pliant.runtime.kept import keep, no_space

# Flags that the meaning of the text depends on; `opt_flags` of the configuration only decide speed.
# Contraction is off so that a*b + c rounds twice, as eager's separate kernels do; where the prelude wants a fused
# multiply-add it says so. Traps and errno are never looked at; infinities, NaN and signed zeros keep their meaning.
MEANING_FLAGS = (
    "-std=gnu11", "-ffp-contract=off", "-fno-trapping-math", "-fopenmp-simd", "-fno-strict-aliasing", "-fwrapv",
)  # fmt: skip
# Nothing else is linked: libm and the OpenMP runtime are already in the process. This halves the linker's time.
LINK_FLAGS = ("-shared", "-fPIC", "-pipe", "-w", "-nostdlib", "-fno-stack-protector", "-fno-asynchronous-unwind-tables")
_COMMENTS = pattern(r"^//.*\n", re.M)


def flags_of(options: config.Build) -> tuple[str, ...]:
    """All flags a text is built with."""
    return (*options.opt_flags, *MEANING_FLAGS, *LINK_FLAGS)


def quick(options: config.Build) -> config.Build:
    """Options for text that is no kernel: a quarter less to compile, and not slower. Without expensive optimizations gcc
    does not clear the upper halves of vector registers at the end, which slows what runs behind, half a microsecond a call.
    """
    processor = [flag for flag in options.opt_flags if flag.startswith("-march=")]
    return replace(options, opt_flags=("-O1", "-fexpensive-optimizations", *processor))


def key_of(texts: Sequence[str], options: config.Build) -> Key:
    """The content address of what `build` makes of these texts; comments, which name the program's nodes, do not count.

    A compiler takes what it built itself. Without one, and without one of the system's own, what any has built from the same
    text will do.
    """
    try:
        maker: str | None = find_compiler(options.compiler).identity
    except CompilerNotFound:
        maker = None
    flags = " ".join(flags_of(options))
    return make_key(maker=maker, text=_COMMENTS.sub("", "\0".join(texts)), flags=flags, processor=machine())


def build(texts: Sequence[str], options: config.Build) -> Path:
    """The shared object of these translation units, compiled now if the store does not have it."""
    return stored(texts, options, lambda work, target: _compile(texts, options, work, target))


class RefusedText(CompileError):
    """The C compiler does not take a text, and would not take it another time."""


_REFUSED: dict[str, RefusedText] = {}  # by the digest of the texts; one that is refused costs more to try than to keep


def stored(texts: Sequence[str], options: config.Build, make: Callable[[Path, Path], None]) -> Path:
    """What the store has for these texts, else what `make(folder for its work, target)` makes of them now."""

    def kept(path: Path) -> None:
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="pliant-build-") as work:
            made = Path(work, "made.so")
            make(Path(work), made)
            shutil.move(made, path)  # which says where there is no room: the compiler's own words would not
        events.record("build", name=key.digest[:12], seconds=time.perf_counter() - started)

    key = key_of(texts, options)
    if (known := _REFUSED.get(key.digest)) is not None:
        raise known.with_traceback(None)
    try:
        anybodys = open_store("kernels").path(replace(key, maker=None), ".so") if key.maker and _stands_in(options) else None
        return anybodys or open_store("kernels").get_or_build(key, ".so", kept)
    except RefusedText as error:
        _REFUSED[key.digest] = error
        raise
    except OSError as error:
        raise no_space(str(error.strerror or error)) from error


def _stands_in(options: config.Build) -> bool:
    """Whether the compiler is there for want of another."""
    return find_compiler(options.compiler).stands_in


def built(digest: str) -> Path:
    """The shared object at this place of the store. NoKernels if it is not there."""
    path = open_store("kernels").at(digest, ".so")
    if path is None:
        raise NoKernels(f"the store has no kernels {digest[:12]}", kind="evicted", why="they were removed", do="none")
    return path


def _compile(texts: Sequence[str], options: config.Build, work: Path, target: Path) -> None:
    """Compile all texts, in parallel if there are several, and link them into `target`."""
    compiler = find_compiler(options.compiler)
    if len(texts) > 1 or compiler.linker:
        link(compile_objects(texts, options, work, ()), texts, options, target, ())
        return
    (source,) = _sources(texts, work)
    flags = compiler.flags(flags_of(options))
    _run([[*compiler.command, *flags, str(source), "-o", str(target)]], options, texts)


def _sources(texts: Sequence[str], work: Path) -> list[Path]:
    sources = [work / f"part{k}.c" for k in range(len(texts))]
    for source, text in zip(sources, texts):
        source.write_text(text, encoding="utf-8")
    return sources


def compile_objects(texts: Sequence[str], options: config.Build, work: Path, more: Sequence[str]) -> list[Path]:
    """The objects of these texts, compiled in parallel; `more`: further flags."""
    compiler, sources = find_compiler(options.compiler), _sources(texts, work)
    flags = [*(f for f in compiler.flags(flags_of(options)) if f not in ("-shared", "-nostdlib")), *more]
    objects = [source.with_suffix(".o") for source in sources]
    _run([[*compiler.command, *flags, "-c", str(s), "-o", str(o)] for s, o in zip(sources, objects)], options, texts)
    return objects


def link(
    objects: Sequence[Path], texts: Sequence[str], options: config.Build, target: Path, more: Sequence[str]
) -> None:
    """Link objects, made of these texts, into the shared object `target`; `more`: further flags."""
    compiler = find_compiler(options.compiler)
    _run([compiler.linking(more, list(map(str, objects)), str(target))], options, texts)


def _run(commands: list[list[str]], options: config.Build, texts: Sequence[str]) -> None:
    try:
        at_once = options.build_jobs or os.cpu_count() or 1
        background.run_all(commands, at_once=at_once, timeout=options.build_timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(
            f"the C compiler did not finish: {error}",
            kind="c-compiler",
            why="it could not run or took too long",
            do="check PLIANT_CC and the option build_timeout",
        ) from error
    except background.Failed as failed:
        raise _refused(failed, texts, options) from None
    for command in commands:
        if not os.path.exists(command[command.index("-o") + 1]):
            raise _broken("it ended without an error and wrote nothing", command)


def _refused(failed: background.Failed, texts: Sequence[str], options: config.Build) -> CompileError:
    if os.strerror(errno.ENOSPC) in failed.output:
        return no_space(failed.output.strip()[:200])
    output = failed.output.strip()[:2000] or "it said nothing"
    if texts is _FAULTLESS or not _works(options):
        return _broken(output, failed.command)
    return RefusedText(
        f"the C compiler refused generated text: {output}",
        kind="c-compiler",
        where=keep(texts, ".c"),
        why=" ".join(failed.command),
        do="please report this with the kept text; the graph runs operator by operator meanwhile",
    )


_FAULTLESS = ("int nothing;\n",)


def _works(options: config.Build) -> bool:
    """Whether the compiler takes a text in which nothing can be wrong."""
    with tempfile.TemporaryDirectory(prefix="pliant-build-") as work:
        try:
            _compile(_FAULTLESS, options, Path(work), Path(work, "made.so"))
        except CompileError:
            return False
        return True


def _broken(output: str, command: Sequence[str]) -> CompileError:
    return CompileError(
        f"the C compiler `{command[0]}` does not work: {output}",
        kind="c-compiler",
        why=" ".join(command),
        do="mend it, or set PLIANT_CC to another one",
    )

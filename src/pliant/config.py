"""Every option of Pliant: one typed, frozen tree.

In:     the environment (`PLIANT_*`, read once, here), `patch(...)`, and `compile(mode=, options=)`.
Out:    the current `Config`; `config.get().capture.recompile_limit`.
Holds:  option names are unique over the whole tree, so `patch(recompile_limit=4)` needs no section;
        values have the declared types; two configurations generate the same code if their `code_key` is the same.

Sections are the stages an option acts on. `python -m pliant.config` prints all options.
"""

import contextlib
import difflib
import functools
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import field, fields, replace
from math import inf
from typing import Any, Literal, ParamSpec, TypeVar, get_origin

from pliant.errors import ConfigError
from pliant.option_types import fits, parsed, type_text
from pliant.records import dataclass

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


def option(
    default: T, doc: str, *, env: tuple[str, ...] = (), code: bool = True, whole: bool = False, least: float = -inf, most: float = inf
) -> T:
    """A field of a section. `code`: a change of it can change what is generated, so it is part of the cache key.
    `whole`: it holds for the whole process, not for a block or a function. `least`, `most`: the range of a number."""
    known = {"doc": doc, "env": env, "code": code, "whole": whole, "range": (least, most)}
    value: T = field(default=default, metadata=known)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class General:
    """All stages."""

    strict: bool = option(
        False, "errors inside the compiler are raised instead of falling back", env=("PLIANT_STRICT",), code=False
    )
    verify: Literal["off", "first"] = option(
        "off", "compare each compiled graph with eager the first time it runs", env=("PLIANT_VERIFY_RESULT",)
    )
    background: bool = option(
        False,
        "graphs are compiled behind the program's calls, which run them operator by operator meanwhile; what is faster stays",
        env=("PLIANT_BACKGROUND",),
        code=False,
    )
    background_budget: float = option(
        inf, "seconds after which a graph that is not compiled behind the calls by then is given up", code=False, least=0,
        env=("PLIANT_BACKGROUND_BUDGET",),
    )  # fmt: skip
    stance: Literal[
        "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile"
    ] = option(
        "default",
        "what compiled functions do while `set_stance` says nothing else; force_eager: as if they were not compiled",
        env=("PLIANT_STANCE",),
        code=False,
        whole=True,
    )
    verify_passes: bool = option(False, "verify the loop program of each graph", env=("PLIANT_VERIFY",), code=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """capture, guards."""

    recompile_limit: int = option(
        8, "entries per code object before it runs eagerly", env=("PLIANT_RECOMPILE_LIMIT",), code=False, least=1
    )
    data_dependent: bool = option(
        True, "numbers and sizes that only tensors' elements tell become symbols of the graph"
    )
    is_compiling: bool = option(
        True,
        "what torch.compiler.is_compiling() answers to captured code; False: as in eager, for libraries that then compute otherwise",
    )
    breaks_in_autocast: bool = option(
        True,
        "functions are cut inside blocks of autocast; if not, those that would be run eagerly, as for casts that blocks "
        "of another dtype take",
    )
    repeated_blocks: bool = option(
        True,
        "a module that is called as another one of its class, or a function that is called again, is not followed where it is "
        "found to do the same",
        code=False,
    )
    inline_depth: int = option(200, "calls inlined into one another at most", least=1)
    idle_steps: int = option(
        200_000, "steps of Python without an operation on tensors at most; what runs longer is left to Python", least=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """capture, symbolic."""

    dynamic: Literal["auto", "all", "off"] = option(
        "auto", "sizes that become symbols: those that changed, all, none", env=("PLIANT_DYNAMIC",)
    )
    symbols: bool = option(
        True,
        "sizes and numbers may be symbols; if not each is a constant, and one that only running tells a graph break",
    )
    specialize_zero_one: bool = option(True, "sizes 0 and 1 are never symbols")
    duck_sizing: bool = option(True, "equal sizes share a symbol at first")
    specialize_int: bool = option(False, "Python integers are constants")
    specialize_float: bool = option(False, "Python floats are constants")
    dynamic_sources: tuple[str, ...] = option(
        (), "names of inputs that are dynamic from the start, e.g. L['x'].size(0)", env=("PLIANT_DYNAMIC_SOURCES",)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Autograd:
    """joint, partition."""

    rewrite_attention: Literal["off", "same", "finite"] = option(
        "same",
        "attention that a program writes out becomes one operator, where that is faster: where it is the same whatever the scores "
        "are, or also where a mask fills scores in, if all of them are finite",
        env=("PLIANT_REWRITE_ATTENTION",),
    )
    memory_budget: float = option(
        1.0,
        "which part may be saved for backward of what running everything again would save: 1 repeats cheap work only, "
        "0 all but random draws",
        env=("PLIANT_MEMORY_BUDGET",),
        least=0,
        most=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """lower, schedule."""

    fuse: bool = option(True, "fuse loop nests")
    fusion_limit: int = option(64, "computations in one kernel at most", least=1)
    reuse_buffers: bool = option(True, "plan memory so that dead buffers are reused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """codegen, build, runtime."""

    numerics: Literal["default", "eager-bitwise", "fast"] = option(
        "default",
        "how results may differ from eager's: by rounding; on CPUs in no bit, where operators whose bits loops cannot have are "
        "eager's own calls; or by a few roundings more, for speed",
        env=("PLIANT_NUMERICS",),
    )
    compiler: str = option("", "C compiler; empty: cc, gcc or clang, whichever is found", env=("PLIANT_CC", "CC"))
    opt_flags: tuple[str, ...] = option(
        ("-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-march=native", "-fno-math-errno"),
        "flags that decide speed",
        env=("PLIANT_CFLAGS",),
    )
    openmp: bool = option(True, "parallel loops with OpenMP", env=("PLIANT_OPENMP",))
    cuda_graphs: Literal["auto", "always", "never"] = option(
        "auto",
        "compiled graphs are recorded as CUDA graphs, which launch all their kernels at once: those whose launches take "
        "longer than their work, all that can be, none",
        env=("PLIANT_CUDA_GRAPHS",),
    )
    packed_bytes: int = option(
        256 << 20,
        "bytes of weights that inference keeps a second time, laid out for the library; 0: none",
        env=("PLIANT_PACKED_BYTES",),
        least=0,
    )
    build_jobs: int = option(0, "compilers run at once; 0: one a core", env=("PLIANT_BUILD_JOBS",), code=False, least=0)
    build_timeout: float = option(300.0, "seconds before a C compiler is given up", code=False, least=0.001)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """cache."""

    cache: bool = option(True, "keep built code on disk", env=("PLIANT_CACHE",), code=False)
    keep_entries: bool = option(
        True, "keep whole compiled functions on disk, for the next process", env=("PLIANT_KEEP_ENTRIES",), code=False
    )
    cache_dir: str = option("~/.cache/pliant", "where", env=("PLIANT_CACHE_DIR",), code=False)
    cache_bytes: int = option(
        2 << 30, "size bound; least recently used entries go first", env=("PLIANT_CACHE_BYTES",), code=False, least=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Debug:
    """debug."""

    logs: str = option("", "channels to log, e.g. graph_breaks,+guards", env=("PLIANT_LOGS",), code=False, whole=True)
    print_stages: str = option(
        "", "stages whose result is printed, e.g. guards,loops", env=("PLIANT_DEBUG",), code=False, whole=True
    )
    debug_dir: str = option(
        "", "folder that gets one numbered file a stage", env=("PLIANT_DEBUG_DIR",), code=False, whole=True
    )
    stop_after: Literal["", "graph", "joint", "lower"] = option(
        "",
        "run what this stage made: the captured graph, the ATen graphs or the loops, each by its interpreter",
        env=("PLIANT_STOP_AFTER",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole tree. `code_key` is interned: compare it with `is`."""

    general: General = General()
    capture: Capture = Capture()
    shapes: Shapes = Shapes()
    autograd: Autograd = Autograd()
    schedule: Schedule = Schedule()
    build: Build = Build()
    cache: Cache = Cache()
    debug: Debug = Debug()
    code_key: str = field(init=False, compare=False, repr=False, default="")

    def __post_init__(self) -> None:
        text = ";".join(f"{name}={value}" for name, value in self.key_parts())
        object.__setattr__(self, "code_key", sys.intern(text))

    @property
    def bitwise(self) -> bool:
        """Whether results must have each bit of eager's."""
        return self.build.numerics == "eager-bitwise"

    def key_parts(self) -> tuple[tuple[str, str], ...]:
        """(option, value) of everything that generated code depends on, in order."""
        return tuple((o.name, repr(getattr(getattr(self, o.section), o.name))) for o in OPTIONS.values() if o.code)

    def value(self, name: str) -> object:
        """The value of an option by its short name."""
        return getattr(getattr(self, find(name).section), find(name).name)

    def with_options(self, overrides: Mapping[str, object]) -> "Config":
        """A copy with some options changed; names and types are checked."""
        sections: dict[str, dict[str, Any]] = {}
        for name, value in overrides.items():
            known = find(name)
            sections.setdefault(known.section, {})[known.name] = _checked(known, value)
        changed: dict[str, Any] = {s: replace(getattr(self, s), **values) for s, values in sections.items()}
        return replace(self, **changed)


@dataclass(frozen=True, slots=True)
class Option:
    """What is known about one option."""

    name: str
    section: str
    type: Any
    default: object
    doc: str
    stage: str
    env: tuple[str, ...]
    code: bool
    whole: bool
    range: tuple[float, float]


def _collect() -> dict[str, Option]:
    found: dict[str, Option] = {}
    for section in fields(Config):
        if section.name == "code_key":
            continue
        cls: Any = section.type  # a class, not its name: annotations of this module are not kept as text
        stage = (cls.__doc__ or "").strip().rstrip(".")
        for f in fields(cls):
            assert f.name not in found, f"option {f.name} is declared twice"
            found[f.name] = Option(f.name, section.name, f.type, f.default, stage=stage, **f.metadata)
    return found


def find(name: str) -> Option:
    """The option of this name (`recompile_limit` or `capture.recompile_limit`); ConfigError if there is none."""
    section, _, short = name.rpartition(".")
    known = OPTIONS.get(short)
    if known is not None and section in ("", known.section):
        return known
    near = difflib.get_close_matches(short, OPTIONS, n=1, cutoff=0.6)
    hint = f"did you mean `{near[0]}`? " if near else ""
    raise ConfigError(
        f"unknown option `{name}`",
        kind="unknown-option",
        why="no option has this name",
        do=hint + ConfigError.default_do,
    )


def _checked(known: Option, value: object) -> object:
    if isinstance(value, list) and get_origin(known.type) is tuple:
        value = tuple(value)
    if isinstance(value, os.PathLike) and known.type is str:
        value = os.fspath(value)
    if fits(value, known.type):
        return _in_range(known, value)
    raise ConfigError(
        f"option `{known.name}` cannot be {value!r}",
        kind="wrong-type",
        why=f"it must be {type_text(known.type)}" + ("" if get_origin(known.type) is Literal else f", not {type(value).__name__}"),
        do=f"pass such a value; the default is {known.default!r}",
    )


def _in_range(known: Option, value: object) -> object:
    least, most = known.range
    if not isinstance(value, (int, float)) or least <= value <= most:
        return value
    bounds = f"at least {least}" if most == inf else f"from {least} to {most}"
    raise ConfigError(
        f"option `{known.name}` cannot be {value!r}",
        kind="out-of-range",
        why=f"it must be {bounds}",
        do=f"pass such a value; the default is {known.default!r}",
    )


def from_environment(environ: Mapping[str, str]) -> Config:
    """The configuration that the variables ask for; ConfigError names the variable that is wrong."""
    overrides: dict[str, object] = {}
    for known in OPTIONS.values():
        for variable in known.env:
            if variable in environ:
                try:
                    overrides[known.name] = _checked(known, parsed(environ[variable], known.type))
                except ConfigError as error:
                    error.where = f"environment variable {variable}"
                    raise
                break
    return Config().with_options(overrides)


OPTIONS: dict[str, Option] = _collect()

# What `compile(mode=...)` stands for. On the CPU there is nothing to trade yet: calls are cheap without a recorded graph of
# kernels, and there is one way to write a kernel. A mode without options for the machine is the default one, which a
# warning says.
MODES: dict[str, dict[str, object]] = {
    "default": {},
    "reduce-overhead": {"cuda_graphs": "always"},
    "max-autotune": {},
    "max-autotune-no-cudagraphs": {"cuda_graphs": "never"},
}

_FOR_GPUS = frozenset({"cuda_graphs"})


def changes_nothing(mode: str, *, gpus: bool) -> bool:
    """Whether a mode is the default one on machines with or without GPUs."""
    return set(MODES[mode]) <= (frozenset() if gpus else _FOR_GPUS)


def overrides_of(mode: str | None, options: Mapping[str, object] | None) -> dict[str, object]:
    """The checked options that `compile(mode=, options=)` ask for; options win over the mode."""
    if mode is not None and mode not in MODES:
        near = difflib.get_close_matches(str(mode), MODES, n=1)
        raise ConfigError(
            f"unknown mode {mode!r}",
            kind="unknown-mode",
            why="the modes are " + ", ".join(MODES),
            do=f"did you mean {near[0]!r}?" if near else "pass one of these, or options={...}",
        )
    merged = {**MODES[mode or "default"], **(options or {})}
    _refuse_whole(merged)
    return {find(name).name: _checked(find(name), value) for name, value in merged.items()}


def _refuse_whole(names: Iterable[str]) -> None:
    """Options of the whole process are none of a block or a function."""
    for known in map(find, names):
        if known.whole:
            raise ConfigError(
                f"option `{known.name}` is not for one block or function",
                kind="whole-process",
                why="it holds for the whole process",
                do=f"set {known.env[0]}, or call pliant.config.update({known.name}=...)",
            )


_base: Config = from_environment(os.environ)
_patched: ContextVar[Config | None] = ContextVar("pliant_config", default=None)

IN_FORCE = ("_patched", "_base")  # the names of these two, for generated code that reads them without a call
current: Config  # the same as get(), as an attribute of this module


def __getattr__(name: str) -> Config:
    if name == "current":
        return get()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get() -> Config:
    """The configuration in force in this thread and context."""
    return _patched.get() or _base


@contextlib.contextmanager
def use(config: Config) -> Iterator[Config]:
    """Put a whole configuration in force. A context manager and a decorator."""
    token = _patched.set(config)
    try:
        yield config
    finally:
        _patched.reset(token)


def kept(function: Callable[P, R]) -> Callable[P, R]:
    """The function under the configuration that is in force now, whenever and in whatever thread it is called."""
    config = get()

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with use(config):
            return function(*args, **kwargs)

    return called


@contextlib.contextmanager
def patch(changes: Mapping[str, object] | None = None, /, **options: object) -> Iterator[Config]:
    """Change options for a while, in this thread only. A context manager and a decorator.

    Dotted names go in a dictionary: `patch({"capture.recompile_limit": 4})`.
    """
    wanted = {**(changes or {}), **options}
    _refuse_whole(wanted)
    with use(get().with_options(wanted)) as config:
        yield config


def update(changes: Mapping[str, object] | None = None, /, **options: object) -> Config:
    """Change options for the whole process, for good."""
    global _base
    before, _base = _base, _base.with_options({**(changes or {}), **options})
    try:
        for name, follower in _followers:
            if _base.value(name) != before.value(name):
                follower(_base.value(name))
    except ConfigError:
        _base = before
        raise
    return _base


_followers: list[tuple[str, Callable[[Any], None]]] = []


def follow(name: str, follower: Callable[[Any], None]) -> None:
    """Call it with the value of an option of the whole process, now and whenever that changes."""
    _followers.append((name, follower))
    follower(_base.value(name))


class _OptionsAreNoAttributes(types.ModuleType):
    """`pliant.config.fuse = False` would change nothing, silently."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in OPTIONS:
            raise ConfigError(
                f"options are not set as attributes of pliant.config: {name}",
                kind="no-attribute",
                do=f"call pliant.config.update({name}={value!r}), or patch for a while",
            )
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _OptionsAreNoAttributes


def describe() -> str:
    """All options as text, one a line: name, type, default, what it does, the environment variable."""
    lines = []
    for o in OPTIONS.values():
        env = f"  [{', '.join(o.env)}]" if o.env else ""
        lines.append(f"{o.section}.{o.name}: {type_text(o.type)} = {o.default!r}\n    {o.doc}{env}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(describe())

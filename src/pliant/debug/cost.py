"""What a program costs, as expressions in the sizes of its arguments.

In:     a function or module and arguments, of which only sizes count (tensors on the device "meta" will do).
Out:    `Cost`: operations, bytes read and written, bytes alive at once; print it, or `evaluate(x_0=32)`.
Holds:  nothing runs: the program is captured on fake tensors, so an operator that sizes do not fit is a
        `GraphBreakError` that names the line. Bytes are those of the compiled kernels, after fusion: a kernel reads
        each buffer once. With gradients, the backward counts too.
Reads on: `flops.py`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from pliant import config
from pliant.autograd.joint import JointGraph, trace_joint
from pliant.autograd.partition.split import partition
from pliant.autograd.runtime import build
from pliant.capture.attempt import whole
from pliant.debug.flops import flops
from pliant.dispatch.dynamic_policy import DynamicPolicy
from pliant.errors import ConfigError
from pliant.gc_pause import GcPause
from pliant.graph.contracts import AtenGraph, CapturedGraph, Runnable
from pliant.graph.fake_tensor import is_fake
from pliant.ir.loops import LoopProgram
from pliant.lowering.lower import lower
from pliant.records import dataclass
from pliant.schedule.costs import alive, moved, results_of, total_of
from pliant.schedule.kernel import Schedule
from pliant.schedule.schedule import schedule
from pliant.symbolic.expr import ZERO, Expr, Integer, Symbol
from pliant.symbolic.rules.extrema import maximum
from pliant.symbolic.shape_env import ShapeEnv
from pliant.symbolic.traverse import evaluate, substitute
from pliant.torch_adapter import without_saved_tensor_hooks

_AT_LEAST_TWO = re.compile(r"\w+ >= 2")  # every symbol is: sizes 0 and 1 are constants
QUANTITIES = ("flops", "read", "written", "arguments", "peak")


@dataclass(frozen=True, slots=True)
class Cost:
    """Expressions over the names in `sizes`.

    flops: of products, convolutions and attention. read, written: bytes moved by kernels and operators. arguments:
    bytes of arguments, parameters and buffers. peak: the most bytes that the program itself has allocated at once,
    results included; `peaks` are the candidates of which it is the largest. sizes: name -> (what it is, its value in
    this call). conditions: what these expressions hold for.
    """

    name: str
    flops: Expr
    read: Expr
    written: Expr
    arguments: Expr
    peaks: tuple[Expr, ...]
    sizes: dict[str, tuple[str, Any]]
    conditions: tuple[str, ...]

    @property
    def peak(self) -> Expr:
        return functools.reduce(maximum, self.peaks) if self.peaks else ZERO

    def evaluate(self, **sizes: float) -> dict[str, int]:
        """The quantities as numbers; sizes that are not given are those of the call that was looked at."""
        unknown = sizes.keys() - self.sizes.keys()
        if unknown:
            raise ConfigError(
                f"unknown size `{min(unknown)}`", kind="unknown-size", why="the sizes are " + ", ".join(self.sizes),
                do="pass one of these",
            )  # fmt: skip
        known = {name: value for name, (_, value) in self.sizes.items() if value is not None} | sizes
        values = {Symbol(name, type(value) if type(value) is float else int): value for name, value in known.items()}
        found = {name: int(evaluate(getattr(self, name), values)) for name in QUANTITIES if name != "peak"}
        return found | {"peak": max([int(evaluate(one, values)) for one in self.peaks], default=0)}

    def __str__(self) -> str:
        here = self.evaluate()
        lines = [f"{self.name}: cost of a call"]
        lines += [f"  {q:<10}{here[q]:>16,}   {_short(getattr(self, q))}" for q in QUANTITIES]
        lines += [f"  where {name} is {what} (here {value})" for name, (what, value) in self.sizes.items()]
        return "\n".join(lines + [f"  if    {c}" for c in self.conditions])


def _short(e: Expr) -> str:
    text = repr(e)
    return "" if isinstance(e, Integer) else text if len(text) <= 400 else f"{text[:400]}..."


def cost(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Cost:
    """The cost of `fn(*args, **kwargs)` as expressions in the arguments' sizes."""
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    options = config.get().with_options({"duck_sizing": False})
    with GcPause(), without_saved_tensor_hooks(), config.use(options):
        captured = _captured(fn, args, kwargs)
        graphs = _graphs(captured) if captured is not None else []
        programs = [lower(g, lambda device: True) for g in graphs]  # as if it were where kernels run
        schedules = [schedule(p, options.schedule) for p in programs]
        return _sum_up(name, captured, graphs, programs, schedules)


def _captured(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CapturedGraph | None:
    """The program as one graph; None if it computes nothing with tensors."""
    return whole(fn, args, kwargs, DynamicPolicy(True)).graph


def _graphs(captured: CapturedGraph) -> list[AtenGraph]:
    """Forward, and backward where gradients are wanted; those of each segment if the program is compiled in several."""
    joint = trace_joint(captured)
    if isinstance(joint, JointGraph):
        parts = partition(joint)
        return [parts.forward] if parts.backward is None else [parts.forward, parts.backward]
    found: list[AtenGraph] = []

    def note(graph: AtenGraph) -> Runnable:
        found.append(graph)
        return list

    build(captured, note)
    return found


def _sum_up(
    name: str, captured: CapturedGraph | None, graphs: list[AtenGraph], programs: list[LoopProgram],
    schedules: list[Schedule],
) -> Cost:  # fmt: skip
    if captured is None:
        return Cost(name, ZERO, ZERO, ZERO, ZERO, (), {}, ())
    given = [i.fake for i in captured.inputs if is_fake(i.fake)]
    return _summed(name, captured.shape_env, _names(captured.shape_env), given, graphs, programs, schedules)


def graph_cost(graph: AtenGraph, called: Mapping[Symbol, str]) -> Cost:
    """The cost of one graph. `called`: names of its symbols."""
    options = config.get()
    program = lower(graph, lambda device: True)
    env = graph.shape_env
    names = {**_names(env), **called}
    given = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    return _summed(graph.name, env, names, given, [graph], [program], [schedule(program, options.schedule)])


def _summed(
    name: str, env: ShapeEnv, names: Mapping[Symbol, str], given: Iterable[Any], graphs: list[AtenGraph],
    programs: list[LoopProgram], schedules: list[Schedule],
) -> Cost:  # fmt: skip
    traffic = [moved(step) for s in schedules for step in s.steps]
    peaks: list[Expr] = []
    held: Expr = ZERO
    for program, plan in zip(programs, schedules, strict=True):
        peaks += [held + there for there in alive(plan)]
        held = held + results_of(program) * 2  # what forward leaves, and gradients of its results
    rename = {s: Symbol(n, s.kind) for s, n in names.items()}

    def shown(e: Expr) -> Expr:
        return substitute(env.simplify(e), rename)

    conditions = [str(substitute(g.expr, rename)) for g in env.final_guards()]
    return Cost(
        name=name,
        flops=shown(total_of(flops(g) for g in graphs)),
        read=shown(total_of(read for read, _ in traffic)),
        written=shown(total_of(written for _, written in traffic)),
        arguments=shown(total_of(env.expr_of(t.spec.storage_bytes()) for t in given)),
        peaks=tuple(dict.fromkeys(shown(one) for one in _largest(env, peaks))),
        sizes={n: (_source(env, s), env.hint(s)) for s, n in names.items() if env.simplify(s) is s},
        conditions=tuple(t for t in conditions if not _AT_LEAST_TWO.fullmatch(t)),
    )


def _source(env: ShapeEnv, symbol: Symbol) -> str:
    return str(next(iter(env.sources.get(symbol, ())), "a size"))


def _names(env: ShapeEnv) -> dict[Symbol, str]:
    """A Python name for each symbol: `x_0` for `x.size(0)`."""
    found = {}
    used: set[str] = set()
    for symbol, sources in env.sources.items():
        text = re.sub(r"\.size\((\d+)\)", r"_\1", str(next(iter(sources), symbol))).split(".")[-1]
        base = re.sub(r"\W+", "_", text).strip("_") or str(symbol)
        name = base
        while name in used:
            name += "_"
        used.add(name)
        found[symbol] = name
    return found


def _largest(env: ShapeEnv, candidates: list[Expr]) -> list[Expr]:
    """The candidates that no other one is known to reach, the largest for this call's sizes first."""
    known = [env.simplify(e) for e in dict.fromkeys(candidates)]
    known.sort(key=lambda e: -cast("float", env.hint(e) or 0))
    kept: list[Expr] = []
    for one in known:
        if not any(env.statically_known(other.ge(one)) for other in kept):
            kept.append(one)
    return kept

"""What compiles captured graphs, by name or as the user's callable: ours, eager ones, those that packages register.

In:     `backend=` of `pliant.compile`.
Out:    a compiler of `CapturedGraph`s whose work is timed, counted and, where asked, checked.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from torch import fx

from pliant import config, peer
from pliant.compiler import GraphCallable, GraphCompiler, aot_eager, compile_captured, eager, undoing
from pliant.debug import events
from pliant.errors import BackendError, ConfigError, WantsNumbers

if TYPE_CHECKING:
    from pliant.graph.contracts import CapturedGraph
    from pliant.patterns.pattern import Pattern

# What a user may pass as backend: gets the graph and its inputs, returns what runs it.
UserBackend = Callable[[fx.GraphModule, list[Any]], Callable[..., Sequence[Any]]]

_GROUP = "torch_dynamo_backends"  # the entry points in which PyTorch's documentation has backends registered

BACKENDS: dict[str, GraphCompiler] = {"pliant": compile_captured, "eager": eager, "aot_eager": aot_eager}


def from_user(backend: UserBackend) -> GraphCompiler:
    """A backend of the ecosystem as a graph compiler.

    One with the attribute `takes_symbols` is shown symbolic numbers and tensors of symbolic sizes. Any other may keep
    the numbers that it is shown: of a graph with symbols only the graph itself is taken as what runs it.
    """
    name = _name_of(backend)

    def compile_with_it(captured: CapturedGraph) -> GraphCallable:
        from pliant.graph.late_module import with_code

        symbolic = _has_symbols(captured)
        may_keep_numbers = symbolic and not takes_symbols(backend)
        shown = [i.fake if symbolic and not may_keep_numbers else i.example for i in captured.inputs]
        as_it_is = runs_of(with_code(captured.module))
        try:
            run = backend(captured.module, shown)
        except Exception as error:
            if may_keep_numbers:
                raise WantsNumbers(f"the backend {name!r} raised {type(error).__name__}") from error
            raise BackendError(
                f"the backend {name!r} raised {type(error).__name__}",
                kind="backend",
                why=str(error),
                do='mend the backend, or compile with backend="eager"',
            ) from error
        if not callable(run):
            raise _returned_no_callable(name, run)
        if may_keep_numbers and run not in as_it_is():
            raise WantsNumbers(f"the backend {name!r} does not say that it takes symbols (`takes_symbols = True`)")
        return undoing(captured, lambda inputs: run(*inputs))

    return compile_with_it


def _name_of(backend: Any) -> str:
    return str(getattr(backend, "__name__", None) or backend)


def takes_symbols(backend: UserBackend) -> bool:
    """Whether a backend says that its code serves every value of the symbols in its graph."""
    return bool(getattr(backend, "takes_symbols", False))


def _has_symbols(captured: CapturedGraph) -> bool:
    from pliant.symbolic.expr import Constant

    env = captured.shape_env
    return env.has_unbacked or not all(isinstance(env.replace(symbol), Constant) for symbol in env.sources)


def runs_of(module: fx.GraphModule) -> Callable[[], list[Any]]:
    """How to ask later what runs the graph as it is now: nothing once somebody gave the module another `forward`."""
    forward = type(module).forward

    def still() -> list[Any]:
        same = type(module).forward is forward and "forward" not in vars(module)
        return [module, module.forward, module.__call__] if same else []

    return still


def _returned_no_callable(name: str, found: object) -> BackendError:
    return BackendError(
        f"the backend {name!r} returned {found!r}",
        kind="backend",
        why=f"a {type(found).__name__} cannot be called; a backend returns what runs the graph",
        do="return a callable of the graph's inputs, `module.forward` for the graph as it is",
    )


def graph_compiler(backend: str | UserBackend | None, patterns: Sequence[Pattern] = ()) -> GraphCompiler:
    """The compiler of graphs that `compile(backend=..., patterns=...)` asks for, timed and counted."""
    if backend is None or isinstance(backend, str):
        chosen = _named(backend or "pliant")
    elif callable(backend):
        chosen = from_user(backend)
    else:
        raise ConfigError(
            f"backend cannot be {backend!r}",
            kind="wrong-type",
            why="it must be a name or a callable (graph module, inputs) -> callable",
            do="pass one of " + ", ".join(BACKENDS),
        )
    return _recorded(_replacing(chosen, patterns) if patterns else chosen)


def _replacing(compile_graph: GraphCompiler, patterns: Sequence[Pattern]) -> GraphCompiler:
    """The compiler for graphs in which patterns are replaced first."""

    def compile_replaced(captured: CapturedGraph) -> GraphCallable:
        from pliant.patterns.rewriting import rewritten
        from pliant.patterns.substitution import finder_of

        return compile_graph(rewritten(captured, [finder_of(one) for one in patterns]))

    return compile_replaced


def known_as(name: str) -> str:
    """The name, or ours for the compiler that stands in its place in scripts for `torch.compile`."""
    if name != "inductor":
        return name
    events.warn_once("inductor", 'backend="inductor" means Pliant\'s own compiler here, as backend="pliant" does')
    return "pliant"


def _named(name: str) -> GraphCompiler:
    name = known_as(name)
    if name in BACKENDS:
        return BACKENDS[name]
    backend = registered(name)
    if backend is not None:
        return from_user(backend)
    names = [*BACKENDS, *registered_names()]
    near = difflib.get_close_matches(name, names, n=1)
    raise ConfigError(
        f"unknown backend {name!r}",
        kind="unknown-backend",
        why="the backends are " + ", ".join(dict.fromkeys(names)),
        do=f"did you mean {near[0]!r}?" if near else "pass one of these, or a callable",
    )


def registered_names() -> list[str]:
    """Names of the backends that installed packages and the program register, without loading them."""
    return sorted({point.name for point in importlib.metadata.entry_points(group=_GROUP)} | peer.backends().keys())


def registered(name: str) -> UserBackend | None:
    """The backend that the program or an installed package registers under the name, or None."""
    if name in (own := peer.backends()):
        return cast(UserBackend, own[name])
    found = importlib.metadata.entry_points(group=_GROUP, name=name)
    backend: UserBackend | None = next(iter(found)).load() if found else None
    return backend


def _recorded(compile_graph: GraphCompiler) -> GraphCompiler:
    def compile_it(captured: CapturedGraph) -> GraphCallable:
        from pliant.debug.first_run import checked
        from pliant.debug.repro import crash_report
        from pliant.together import at_end

        operators = [n for n in captured.module.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
        if events.wants("graph_code"):
            events.record("graph_code", name=captured.name, text=captured.module.code.strip())
        if events.wants("nodes"):
            from pliant.graph.told import node_rows

            rows = node_rows(captured.module.graph)
            events.record("nodes", name=captured.name, level="captured", of=captured.shape_env.number, count=len(rows), rows=rows)
        fakes = [i.fake for i in captured.inputs]
        with (
            crash_report(captured.module, fakes, name=captured.name),
            events.stage("graph", name=captured.name) as timer,
        ):
            compiled = compile_graph(captured)
        if config.get().general.verify == "first":
            compiled = checked(captured, compiled)
        name, nodes = captured.name, len(operators)
        at_end(lambda: events.record("graph", name=name, nodes=nodes, seconds=time.perf_counter() - timer.start))
        return compiled

    return compile_it

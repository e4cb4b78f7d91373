"""What runs an ATen graph: compiled, or operator by operator where its kernels cannot be built.

In:     an `AtenGraph`.
Out:    a `Runnable`.
Holds:  where nothing is compiled there is an event and one warning; under `strict` the error is raised.
"""

from __future__ import annotations

from pliant import config
from pliant.debug import events
from pliant.errors import CompileError, FallbackWarning
from pliant.graph.contracts import AtenGraph, Runnable
from pliant.interruptions import pass_on


def kernels_or_operators(graph: AtenGraph) -> Runnable:
    """The callable of the graph."""
    from pliant.graph.interpret import eager
    from pliant.runtime.compile_graph import compile_graph

    try:
        return compile_graph(graph)
    except CompileError as error:  # trying again at each call would fail again
        pass_on(error)
        tell_operators(graph.name, error)
        return eager(graph)


def tell_operators(name: str, error: CompileError) -> None:
    """Say why a graph runs operator by operator; raises under `strict`."""
    if config.get().general.strict:
        raise error
    events.record("fallback", name=name, why=f"operator by operator, since {error.what}", reason=error.kind)
    places = "".join(f"\n  {where}" for where in (error.where,) if where)
    message = f"graphs run operator by operator{places}\n  why  {error.what}\n  do   {error.do}    ({error.doc})"
    events.warn_once(f"no-kernels:{error.kind}", message, FallbackWarning)

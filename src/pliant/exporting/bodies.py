"""Bodies of branches and loops as compiled code.

In:     a copy of an exported program's graph, before passes; what compiles a graph.
Out:    its branches and loops, which are its own from then on; their bodies run compiled.
Holds:  programs of the same content are one in a process, and what is compiled may count on facts that only one exported
        program has: so its branches and loops get numbers that tell these facts, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import fx

from pliant.autograd.partition.split import clean
from pliant.exporting.checking import facts_of
from pliant.exporting.control_form import control_of
from pliant.exporting.nested import change_bodies
from pliant.exporting.program import Program
from pliant.exporting.written_back import copied
from pliant.graph.body_graph import BodyGraph
from pliant.graph.contracts import AtenGraph, Runnable
from pliant.graph.control_bodies import Body
from pliant.graph.interpret import laying_out
from pliant.graph.passes.separate import separate
from pliant.symbolic.printer import to_python


def own_bodies(program: Program) -> Callable[[fx.Graph], None]:
    """Give a copy of the program's graph branches and loops of its own."""
    facts = "\n".join(sorted(map(to_python, facts_of(program.shape_env))))
    return lambda graph: change_bodies(graph, lambda _: None, facts)


def bodies_in(graph: fx.Graph) -> Iterator[tuple[str, Body, AtenGraph]]:
    """Bodies of operators in the graph, and in them, each with a name that is the same in every process."""
    for node in graph.nodes:
        program = control_of(node)
        for place, body in enumerate(program.bodies if program is not None else ()):
            if isinstance(body.module, BodyGraph):
                yield f"{program.number}.{place}", body, body.module.aten  # type: ignore[union-attr]
                yield from bodies_in(body.module.graph)


def prepared(aten: AtenGraph) -> AtenGraph:
    """A copy of a body's graph for compilation: its results have memory of their own, and it keeps what it is given."""
    graph, _, results = copied(aten.graph)
    graph.output(results)
    clean(graph)
    separate(graph, range(len(results)))
    return AtenGraph(graph, aten.shape_env, aten.name, frozenset(range(len(list(graph.find_nodes(op="placeholder"))))))


def run_by(body: Body, aten: AtenGraph, run: Runnable) -> None:
    """Have the body run so."""
    lay = laying_out(aten)

    def call(*values: Any) -> tuple[Any, ...]:
        return tuple(run(lay(list(values))))

    body.compiled = {False: call, True: call}

"""What is called of a compiled graph, and which writes it counts: of programs with gradients and without.

Apart from `training`, which programs without gradients do not load.
"""

from __future__ import annotations

from pliant.autograd.aliasing import OutputPlan
from pliant.autograd.around import counting_writes, outside_autocast, uncounted
from pliant.autograd.places import changed_in_place, result_of
from pliant.autograd.views import version
from pliant.graph.contracts import Runnable
from pliant.graph.fake_tensor import FakeTensor


def runnable(compiled: Runnable) -> Runnable:
    """What to call of a compiled graph: its function, which is one call less."""
    return outside_autocast(getattr(compiled, "call", compiled))


def written_in_graph(plan: OutputPlan) -> list[int]:
    return [write.input for write in plan.writes if write.in_graph for _ in range(write.counted)]


def with_versions(run: Runnable, plan: OutputPlan) -> Runnable:
    """`run`, whose writes are counted where eager counts them: of inputs by `bump_versions`, once and first, as functions
    of views in autograd's graph follow it; of results that the program wrote after it made them when they are there.
    """
    found = {position for one in plan.outputs if (position := result_of(one)) is not None}
    made = {i: plan.results[i] for i in sorted(found.difference(plan.inner, plan.inference))}
    writes = {i: version(result) for i, result in made.items() if type(result) is FakeTensor}
    for output in plan.outputs:
        if (position := result_of(output)) in writes:
            writes[position] -= changed_in_place(output)  # counted as that is done
    written = [i for i, times in writes.items() for _ in range(times)]
    if written or any(write.in_graph for write in plan.writes):
        run = uncounted(run)
    return counting_writes(run, written) if written else run

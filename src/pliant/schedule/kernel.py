"""What the scheduler hands to code generation: kernels, extern calls, in order, with the memory they use.

Kernel: several computations over one iteration space. `axes` are all its loops; those in `reduced` are inner loops that
        reductions fold away, the others are outer loops, which run in parallel. A kernel without reductions has no
        `reduced` axes. Members run phase by phase: in phase k first those of the outer loops, then one pass over the
        inner loops; a value that one pass reduces is known from the next phase on.
        A scan is a kernel of its own, whose inner loop is the one along which it runs.
Holds:  a member reads what an earlier member wrote only at the point where it was written (same index once both are
        written over the kernel's axes), so the points of the outer loops are independent.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import torch

from pliant.ir.loops import Axis, Buffer, Extern, Pointwise, Reduction, Scan
from pliant.ir.scalar import Load, Scalar, walk
from pliant.records import dataclass
from pliant.symbolic.expr import Expr, Symbol
from pliant.symbolic.traverse import substitute
from pliant.targets import cpu
from pliant.targets.registry import known_target
from pliant.targets.target import Target

Loops = Pointwise | Reduction | Scan


@dataclass(slots=True, eq=False)
class Member:
    """A computation inside a kernel.

    place: the computation's loop symbols as expressions over the kernel's.
    inner: runs at every point of the kernel, not only of its outer loops.
    """

    loops: Loops
    place: dict[Symbol, Expr]
    inner: bool
    phase: int
    known: dict[Expr, Expr] = field(default_factory=dict, repr=False)  # what `at` found for this place

    def at(self, index: Expr) -> Expr:
        """An index expression of the computation, over the kernel's axes."""
        found = self.known.get(index)
        if found is None:
            found = self.known[index] = substitute(index, self.place)
        return found

    def move(self, moved: Mapping[Symbol, Expr]) -> None:
        """Have the kernel's symbols replaced in the place."""
        self.place = {s: substitute(e, moved) for s, e in self.place.items()}
        self.known.clear()

    @property
    def store_index(self) -> Expr:
        return self.at(self.loops.index)


@dataclass(slots=True, eq=False)
class Kernel:
    """Fused computations; see the module's docstring. `stored`: buffers written to memory, not kept in registers.
    `apart`: it begins a run of kernels, since it writes an input and what comes before may fail.
    """

    axes: list[Axis]
    reduced: set[Symbol]
    members: list[Member] = field(default_factory=list)
    stored: set[Buffer] = field(default_factory=set)
    apart: bool = False

    @property
    def device(self) -> torch.device:
        return self.members[0].loops.out.device

    @property
    def target(self) -> Target:
        """Programs on devices without kernels are scheduled for estimates only, as if they ran on the host."""
        return known_target(self.device) or cpu.target()

    @property
    def outer(self) -> list[Axis]:
        return [a for a in self.axes if a.symbol not in self.reduced]

    @property
    def inner(self) -> list[Axis]:
        return [a for a in self.axes if a.symbol in self.reduced]

    def writers(self) -> dict[Buffer, Member]:
        return {m.loops.out: m for m in self.members}


@dataclass(slots=True, eq=False)
class ExternCall:
    """A call of an eager operator."""

    extern: Extern


Step = Kernel | ExternCall


def runs(steps: Sequence[Step]) -> list[range]:
    """Positions of steps that are one call: an extern call, or kernels of one device up to the next one, or to one that
    is apart."""
    starts = [k for k, step in enumerate(steps) if not k or _begins(steps[k - 1], step)]
    return [range(start, stop) for start, stop in itertools.pairwise([*starts, len(steps)])]


def _begins(before: Step, step: Step) -> bool:
    if isinstance(step, ExternCall) or isinstance(before, ExternCall):
        return True
    return step.apart or step.device != before.device


@dataclass(slots=True, eq=False)
class Schedule:
    """Steps in order. `allocate[k]`: buffers to make before step k; `free[k]`: buffers whose last use is step k.

    in_place: buffer -> the dead buffer whose memory it takes over. scratch: buffer -> where it lies in the memory that a
    run of kernels has for itself.
    """

    steps: list[Step]
    allocate: list[list[Buffer]]
    free: list[list[Buffer]]
    in_place: dict[Buffer, Buffer]
    scratch: dict[Buffer, int]


def scalars(loops: Loops) -> Iterator[Scalar]:
    """Every scalar of a computation: its value and what its store index looks up."""
    yield from walk(loops.value)
    if isinstance(loops, Pointwise):
        for _, value in loops.indirect:
            yield from walk(value)


@functools.cache
def loads_of(loops: Loops) -> tuple[Load, ...]:
    """The distinct loads of a computation, in order. Remembered until `forget_accesses` (`dependencies.py`)."""
    return tuple(dict.fromkeys(s for s in scalars(loops) if isinstance(s, Load)))


def all_axes(loops: Loops) -> tuple[Axis, ...]:
    """Axes of the result, then reduced ones; of a scan the last is the one along which it runs."""
    return (*loops.axes, *inner_axes(loops))


def inner_axes(loops: Loops) -> tuple[Axis, ...]:
    """Axes whose points are not independent of each other."""
    match loops:
        case Reduction():
            return loops.reduce_axes
        case Scan():
            return (loops.axis,)
        case _:
            return ()


def accumulates(loops: Loops) -> bool:
    """Whether several points may store to one index, so that the order of points matters."""
    return isinstance(loops, Pointwise) and (loops.accumulate is not None or bool(loops.indirect))


def stays_alone(loops: Loops) -> bool:
    """Whether a kernel that runs it runs nothing else."""
    writes_places = isinstance(loops, Pointwise) and loops.part and loops.out.role == "input"  # others read it before and after
    return isinstance(loops, Scan) or accumulates(loops) or writes_places


def memory_of(b: Buffer, in_place: Mapping[Buffer, Buffer]) -> Buffer:
    """The buffer whose memory it has: itself, or the one that it takes over from, and so on."""
    while b in in_place:
        b = in_place[b]
    return b

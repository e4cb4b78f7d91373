"""The result of one capture: what the tracer hands to the code that makes an entry.

In:     `capture.attempt.trace(root, args, kwargs, policy)` fills a `Trace`.
Out:    `dispatch.entry_writer.make_entry(trace, ...)` generates the entry: load inputs, run the graph, replay effects, end.
Holds:  values inside (`Return.value`, effect values, frame stacks and locals) are ordinary Python objects as the traced program
        saw them, with `FakeTensor`s in place of tensors and `SymInt`/`SymFloat`/`SymBool` in place of symbolic numbers.
        An object with an entry in `origins` existed before the trace and is reached by its source; constants (None, numbers, strings,
        types, functions reached by source...) stand for themselves; every other object was made by the trace and is rebuilt.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

from torch import fx

from pliant.dispatch.entry import Answer
from pliant.graph.contracts import CapturedGraph, GraphInput
from pliant.guards.kinds import Guard
from pliant.guards.sources import Source
from pliant.records import dataclass
from pliant.source import SourceLocation


# ---- effects, replayed in this order after the graph ran
@dataclass(frozen=True, slots=True, eq=False)
class SetAttribute:
    """A store (or deletion: `DELETED`) into an object that existed before, other than into its `__dict__`."""

    obj: Any
    name: str
    value: Any
    # "context": obj.set(value) of a context variable
    via: str = "slot"  # "slot": object.__setattr__; "type": type.__setattr__; "cell": obj.cell_contents; "plain": setattr (C-level descriptors such as Tensor.grad)


@dataclass(frozen=True, slots=True, eq=False)
class SetItem:
    """dict.__setitem__(obj, key, value), or deletion where value is `DELETED`; `obj` existed before. Instance attributes
    are stored this way too: `obj` is then the instance's `__dict__` (its origin is an `AttributeSource(.., "__dict__")`), as are globals."""

    obj: dict[Any, Any]
    key: Any
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class ReplaceContents:
    """The builtin container `obj` (list, dict, set, deque, OrderedDict...) now has the contents of `contents`, a container of the same kind made by the trace."""

    obj: Any
    contents: Any


@dataclass(frozen=True, slots=True, eq=False)
class Extend:
    """The values are added to the end of a list, or to a set, that existed before and was not read."""

    obj: Any
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallEffect:
    """function(*args, **kwargs) is called for its effect (print, logging, warnings...), its result dropped. `tells`: it
    only tells people something."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tells: bool = False


@dataclass(slots=True, eq=False)
class Draw:
    """source.method(*args) of a random generator: a number for the graph, `count` numbers, an array, or a change of the
    generator's state. A method that is a function is called with the generator."""

    source: Source
    method: str | Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    count: int | None = None
    is_array: bool = False


@dataclass(frozen=True, slots=True)
class DrawnState:
    """Stands for the state of a generator that the entry reads with draw number `index`."""

    index: int


Effect = SetAttribute | SetItem | ReplaceContents | Extend | CallEffect
DELETED = object()


# ---- ends
@dataclass(frozen=True, slots=True, eq=False)
class Return:
    frames: ClassVar[tuple[()]] = ()
    reason: ClassVar[None] = None
    value: Any
    suspended: Any = None  # the generator that yields `value`, of a generator's frame: the entry returns the pair


@dataclass(frozen=True, slots=True, eq=False)
class FrameState:
    """A frame at a break. `stack` has `NULL` where CPython has a NULL; `locals` holds bound non-cell locals; `cells` every cell in
    `resume_freevars(code)` order (cells made by the trace are `types.CellType` objects holding traced values)."""

    code: types.CodeType
    globals: dict[str, Any]
    offset: int
    stack: tuple[Any, ...]
    locals: dict[str, Any]
    cells: tuple[types.CellType, ...]
    function_name: str
    handled: Any = None  # the exception that is being handled there, if any
    entered: bool = False  # the operation has entered the next frame in; its operands are not on `stack`
    generator: Any = None  # of a generator's frame that was entered, if others refer to the generator
    through: tuple[int, ...] = ()  # for each module's call between it and the next outer frame: how many frames of PyTorch's


class _Null:
    def __repr__(self) -> str:
        return "NULL"


NULL: Any = _Null()


def _some_traceback() -> types.TracebackType:
    """Of a generator that has not started: no frame of the program is behind its frame, and so kept alive."""
    unstarted: Any = (nothing for nothing in range(0))
    return types.TracebackType(None, unstarted.gi_frame, 0, 1)


# What exceptions that were raised have as `__traceback__`: CPython's `with` takes for granted that there is one.
TRACEBACK = _some_traceback()


@dataclass(frozen=True, slots=True, eq=False)
class Break:
    """Capture stopped before the operation at `frames[-1].offset`; frames from the outermost in. Outer frames stand IN their
    operation, whose one function is the next frame in (`FrameState.entered`)."""

    frames: tuple[FrameState, ...]
    reason: BreakReason


@dataclass(frozen=True, slots=True)
class BreakReason:
    """Why capture stopped. `kind` is a row of capture.graph_breaks (id, why, do)."""

    kind: str
    detail: str
    location: SourceLocation | None
    do: str = ""  # advice that is more exact than the kind's
    again: bool = False  # the operation itself is done by the code behind the break


@dataclass(slots=True, eq=False)
class Trace:
    graph: CapturedGraph | None  # None: the trace computed nothing with tensors
    inputs: list[GraphInput]
    guards: list[Guard]
    effects: list[Effect]
    end: Return | Break
    origins: dict[int, tuple[Any, Source]]  # id -> (object kept alive, its source)
    outputs: dict[int, int] = field(default_factory=dict)  # id of a tensor or number -> its place among the graph's outputs
    output_nodes: list[fx.Node] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)  # in order
    told: list[Source] = field(default_factory=list)  # inputs that are to require gradients
    lock: Any = None  # to hold while the entry runs
    codes: dict[int, types.CodeType] = field(default_factory=dict)  # by id: what was interpreted
    process_bound: str = ""  # what it relied on that is so in this process, and is in no guard
    answers: list[Answer] = field(default_factory=list)  # of functions that are marked constant
    orders: list[tuple[int, tuple[Any, ...]]] = field(default_factory=list)  # of sets that it made: slots, items
    made: dict[int, Any] = field(default_factory=dict)  # functions and classes that the trace itself defined
    forget: Callable[[], None] = lambda: None  # let go of the program's objects, once the entry is written

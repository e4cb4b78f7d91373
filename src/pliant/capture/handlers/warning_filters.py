"""warnings.warn and the filters of warnings inside a program.

In:     calls of the warnings module.
Out:    warnings shown after the graph, from the line that gives them; blocks of `catch_warnings` are followed.
Holds:  a warning that a filter turns into an exception breaks, so that eager raises it; filters outside a block are not
        changed.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.numbers.varying_text import text_of
from pliant.capture.program_stack import held_as, held_place
from pliant.capture.signatures import Args, Kwargs, Statements, Tracer
from pliant.capture.trace import CallEffect
from pliant.capture.value_kinds import concrete, exactly, is_str
from pliant.capture.varying_values import Text, join
from pliant.dispatch.running_frames import RunningPlace
from pliant.dispatch.tracebacks import line_at
from pliant.graph.given_warnings import GivenWarning, paused
from pliant.guards.kinds import Kind
from pliant.guards.sources import question
from pliant.records import dataclass
from pliant.symbolic.sym_node import wrap_node

ROWS = Rows()
handles, takes, CLASSES = ROWS.handles, ROWS.takes, ROWS.classes

Filters = list[Any]


def show(find: Callable[..., RunningPlace], given: tuple[Any, ...], message: Any, category: Any, filters: Any) -> None:
    """Give a warning from the operation that `find(*given)` finds; `filters`: those of its block, if it is in one."""
    code, offset, space = find(*given)
    file, line = code.co_filename, line_at(code, offset)
    registry, module = space.setdefault("__warningregistry__", {}), space.get("__name__", "<unknown>")
    if filters is None:
        warnings.warn_explicit(message, category, file, line, module, registry)
        return
    with warnings.catch_warnings():
        warnings.filters[:] = filters  # type: ignore[index]
        warnings.warn_explicit(message, category, file, line, module, registry)


_TOLD: set[str] = set()


def show_once(find: Any, given: Any, message: Any, category: Any, filters: Any) -> None:
    """The same of a warning of C++, which gives each once a process, unless it is to give them always."""
    if str(message) not in _TOLD or torch.is_warn_always_enabled():
        _TOLD.add(str(message))
        show(find, given, message, category, filters)


@takes(warnings.warn)
def _warn(
    t: Tracer, message: Any, category: Any = None, stacklevel: Any = 1, source: Any = None, *, skip_file_prefixes: Any = ()
) -> None:
    category = category or UserWarning
    if isinstance(message, Warning):
        category = type(message)
    elif type(message) not in (str, Text) or skip_file_prefixes or source is not None:
        raise GraphBreak("side-effect-call", "warnings.warn with a message that is no text")
    _give(t, message, category, lambda: held_place(t, max(stacklevel, 1) - 1))


def of_pytorch(t: Tracer, told: Iterable[GivenWarning]) -> None:
    """Warnings of functions of PyTorch that were called on fakes, not interpreted."""
    with paused():  # the program's filters are asked
        for one in told:
            find, given = (held_place, (one.level,)) if one.place is None else (held_as, one.place)
            place: Callable[..., tuple[Any, ...]] = functools.partial(find, t, *given)
            _give(t, _worded(one), one.category, place, show_once if one.may_be_once else show)


def _worded(one: GivenWarning) -> Any:
    """The message, with the numbers that vary as numbers of each call."""
    nodes = {str(node): node for node in one.printed}
    if not nodes or not is_str(one.message):
        return one.message
    names = "|".join(map(re.escape, sorted(nodes, key=len, reverse=True)))
    pieces = re.split(rf"(?<!\w)({names})(?!\w)", one.message)
    return join("", [text_of(wrap_node(nodes[piece]), "") if at % 2 else piece for at, piece in enumerate(pieces)])


def _give(
    t: Tracer, message: Any, category: type[Warning], place: Callable[[], tuple[Any, ...]], shown: Callable[..., None] = show
) -> None:
    """Have each call give the warning, subject to the filters that hold then."""
    current = t.warning_blocks[-1].filters if t.warning_blocks else None
    if _is_error(t, current, category, message):
        raise GraphBreak("side-effect-call", "a warning that a filter turns into an exception")
    if current and current[0][0] == "ignore" and current[0][1] is None and issubclass(category, current[0][2]):
        return
    inner = None if current is None else t.world.hold(tuple(current), "filters")
    called = t.world.hold(shown, shown.__name__)
    t.world.effects_in_order.append(CallEffect(called, (*place(), message, category, inner), {}, tells=True))


def _is_error(t: Tracer, current: Sequence[Any] | None, category: type[Warning], message: Any) -> bool:
    """Whether filters make an exception of the warning. Its text, which may tell a size, is asked for only where it may be
    one. `current`: the program's own filters; where there are none, another call may find others."""

    def may_raise(*text: str) -> bool:
        if current is not None:
            return _may_raise(current, category, *text)
        found = is_error(category, *text)
        t.world.guard(question(is_error, category, *text), Kind.EQUALS, found)
        return found

    return may_raise() and may_raise(str(concrete(message)))


def is_error(category: type[Warning], *text: str) -> bool:
    """Whether the filters that hold now make an exception of a warning of the kind and text; of some text if none is given."""
    return _may_raise(warnings.filters, category, *text)


def _may_raise(filters: Sequence[Any], category: type[Warning], text: str | None = None) -> bool:
    """Whether the first filter that takes such a warning, from some line, makes it an exception; of some text if None."""
    for action, pattern, kind, module, line in filters:
        raises: bool = action == "error"
        if not issubclass(category, kind) or not raises and (module is not None or line):  # elsewhere it may not take it
            continue
        if pattern is None or (raises if text is None else text == pattern if is_str(pattern) else pattern.match(text)):
            return raises
    return False


# ---- blocks
@dataclass(eq=False)
class Block:
    """`with warnings.catch_warnings():` of the traced program. Behind a break its place is taken by a real one.

    `outer`: the block around it; `filters`: what holds inside, which is `first`, what held outside, and `last`.
    """

    outer: Block | None = None
    filters: Filters | None = None  # until it is entered
    first: Filters = field(default_factory=list)
    last: Filters = field(default_factory=list)
    alone: bool = False  # nothing from outside holds any more

    def __enter__(self) -> None:
        raise AssertionError("entered by the handler")

    def __exit__(self, *error: Any) -> None:
        warnings.catch_warnings.__exit__(self, *error)  # type: ignore[arg-type]


def entered(outer: Any, first: Filters, last: Filters, alone: bool) -> Any:
    """A real block that a break is in, once the one around it (None: no other) has been entered."""
    block = warnings.catch_warnings()
    block.__enter__()
    before = [] if alone else [one for one in warnings.filters if one not in first]
    warnings.filters[:] = [*first, *before, *(one for one in last if one not in before)]  # type: ignore[index]
    return block


def real_block(b: Statements, block: Block) -> str:
    if block.filters is None:
        return b.bind(block, f"{b.hold(warnings.catch_warnings)}()", hint="block")
    outer = "None" if block.outer is None else b.value(block.outer)
    return b.bind(
        block, f"{b.hold(entered)}({outer}, {b.hold(block.first)}, {b.hold(block.last)}, {block.alone})", hint="block"
    )


def _construct_block(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    if args or any(kwargs.values()):
        raise GraphBreak("side-effect-call", "warnings that are recorded")
    return Block()


_is_block = exactly(Block)
CLASSES[warnings.catch_warnings] = _construct_block


@handles(Block.__enter__)
def _enter(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    block, blocks = args[0], t.warning_blocks
    if not _is_block(block) or block.filters is not None:
        raise GraphBreak("side-effect-call", "a block of warnings that was entered before")
    block.outer = blocks[-1] if blocks else None
    block.filters = list(warnings.filters if block.outer is None else block.outer.filters)
    blocks.append(block)


@handles(Block.__exit__)
def _exit(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if not _is_block(args[0]):
        raise GraphBreak("side-effect-call", "a block of warnings that a break was in")
    t.warning_blocks.pop().filters = None


@takes(warnings.simplefilter)
def _simplefilter(t: Tracer, action: Any, category: Any = Warning, lineno: Any = 0, append: Any = False) -> None:
    _add(t, (action, None, category, None, lineno), append)


@handles(warnings.filterwarnings)
def _filterwarnings(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """The real function makes the item: it compiles the patterns."""
    _inner_block(t)
    with warnings.catch_warnings():
        warnings.resetwarnings()
        t.native(warnings.filterwarnings, *args, **{k: v for k, v in kwargs.items() if k != "append"})
        item = warnings.filters[0]
    _add(t, item, kwargs.get("append", False))


def _add(t: Tracer, item: Any, at_the_end: bool) -> None:
    block = _inner_block(t)
    if not at_the_end:
        block.first = [item, *(one for one in block.first if one != item)]
        block.filters = [item, *(one for one in block.filters if one != item)]
    elif item not in block.filters:
        block.last.append(item)
        block.filters.append(item)


def _inner_block(t: Tracer) -> Any:
    if not t.warning_blocks:
        raise GraphBreak("mutated-global-state", "filters of warnings are changed")
    return t.warning_blocks[-1]


@takes(warnings.resetwarnings)
def _resetwarnings(t: Tracer) -> None:
    block = _inner_block(t)
    block.filters, block.first, block.last, block.alone = [], [], [], True

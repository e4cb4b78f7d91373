"""Output that is replayed after the graph, and calls that are left out of it.

Holds:  effects keep their order; their arguments are what they were at the time of the call.
"""

from __future__ import annotations

import logging
import sys
import types
from typing import Any, NoReturn

import torch

from pliant.capture.graph_breaks import BreakBefore, CannotCapture, GraphBreak
from pliant.capture.handlers.table import Rows, spread
from pliant.capture.program_stack import LOOKS, held_place, is_of_logging
from pliant.capture.recording.torch_calls import call_torch
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import made_like, parts_of
from pliant.capture.trace import BreakReason, CallEffect
from pliant.capture.value_kinds import COMPARED_IN_C, PLAIN_TYPES, ByKind, by_kind, is_int, is_symbolic, is_text
from pliant.capture.varying_values import join
from pliant.dispatch.running_frames import called_from
from pliant.graph import random_state
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.guards.sources import HandledSource, MethodSource
from pliant.reached_objects import reached
from pliant.unpatched import BUILTINS

ROWS = Rows()
handles, CLASSES = ROWS.handles, ROWS.classes


# ---- effects, replayed after the graph
def _effect(t: Tracer, shown_by: Any, function: Any, args: Args, kwargs: Kwargs, first: Args = ()) -> None:
    """Call it at the end of the entry, with the arguments as they are now, behind the `first`. `shown_by`: the logger or the
    stream, whose state is not what the trace changes or reads."""
    args = tuple(_snapshot(t, a, frozenset()) for a in args)
    kwargs = {k: _snapshot(t, v, frozenset()) for k, v in kwargs.items()}
    _put_off(t, shown_by, [*args, *kwargs.values()])
    t.world.effects_in_order.append(CallEffect(function, (*first, *args), kwargs, tells=True))


def _put_off(t: Tracer, shown_by: Any, shown: list[Any]) -> None:
    """Effects come before the trace's stores: it has changed nothing that the output shows or depends on."""
    written = t.world.written()
    state = reached([shown_by])
    if written:
        seen = reached([shown_by, *shown])
        if any(map(seen.has, written)):
            raise GraphBreak("side-effect-call", "output that depends on what was changed before")
    if state.runs_program:
        state.forget_kept(shown_by)
        t.put_off.append((state, t.frames[-1].steps_at_op, t.location()))


def check_put_off(t: Tracer) -> None:
    """Output that the program's own code shows has changed nothing that the trace reads: at the end."""
    for state, step, where in t.put_off:
        if any(state.has(obj) for obj, _ in t.world.origins.values() if _MAY_CHANGE.of(obj)):
            raise BreakBefore(BreakReason("side-effect-call", "output by code that may change what is read here", where), step)


# Of what the trace knows, that which code may change as it shows output.
_MAY_CHANGE: ByKind[bool] = ByKind(
    True,
    dict.fromkeys((*PLAIN_TYPES, *COMPARED_IN_C), False),
    dict.fromkeys((types.ModuleType, types.FunctionType, types.MethodType, type, logging.Logger, torch.Tensor), False),
)


def _tensor_now(t: Tracer, value: Any, within: frozenset[int]) -> Any:
    if value.requires_grad or value.__class__ is not torch.Tensor:  # its text tells how it was computed
        raise GraphBreak("side-effect-call", "output of a tensor's value")
    return t.native(torch.Tensor.clone, value)


def _object_now(t: Tracer, value: Any, within: frozenset[int]) -> Any:
    value = t.plain(value)
    told = t.world.is_foreign(value) and not type(value).__module__.startswith("builtins") or is_output(t, value)
    return value if told else _refuse_output(t, value, within)


def _refuse_output(t: Tracer, value: Any, within: frozenset[int]) -> NoReturn:
    raise GraphBreak("side-effect-call", f"output of a {type(value).__name__}")


def _snapshots(t: Tracer, value: Any, within: frozenset[int]) -> Any:
    value = t.internalize(value)
    if id(value) in within:
        raise GraphBreak("side-effect-call", f"output of a {type(value).__name__} that holds itself")
    inner = within | {id(value)}
    return made_like(value, [_snapshot(t, item, inner) for item in parts_of(value)])


_snapshot = by_kind(
    _object_now,
    {
        FakeTensor: _tensor_now,
        **dict.fromkeys((tuple, list, dict, torch.Size), _snapshots),
        **dict.fromkeys(PLAIN_TYPES, lambda t, value, within: value),
    },
    {
        **dict.fromkeys((*COMPARED_IN_C, type), lambda t, value, within: value),
        **dict.fromkeys(
            (types.ModuleType, types.FunctionType),
            lambda t, value, within: value if t.world.is_foreign(value) else _refuse_output(t, value, within),
        ),
    },
    place=1,
)


def write_output(t: Tracer, file: Any, name: str, args: Args) -> Any:
    """sys.stdout.write(text)"""
    if name not in ("write", "flush") or not all(map(is_text, args)):
        raise GraphBreak("side-effect-call", f"the method {name} of an output")
    _effect(t, file, t.world.hold(_write, "write"), (file, name, *args), {})
    return len(args[0]) if name == "write" else None


def _write(file: Any, name: str, *args: Any) -> None:
    getattr(file, name)(*args)


def is_output(t: Tracer, file: Any) -> bool:
    """Whether it is the standard output, or that of errors, as the program found it."""
    return t.world.is_foreign(file) and (file is sys.stdout or file is sys.stderr)


@handles(BUILTINS.print)
def _print(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    between, end = (kwargs.get(name) for name in ("sep", "end"))
    fit = kwargs.keys() <= {"sep", "end", "file", "flush"}
    if not fit or not all(one is None or isinstance(one, str) for one in (between, end)):
        raise GraphBreak("bad-call", "print with what it does not know, or a separator or an end that is no text")
    file = kwargs.pop("file", None)
    if file is not None and is_output(t, file):
        kwargs["file"] = file
        file = None
    if file is None and t.world.has_changes(sys.__dict__) and t.get_attr(sys, "stdout") is not sys.stdout:
        file = t.get_attr(sys, "stdout")  # which the program has set
        if file is None:  # nothing is printed
            return
    kept = [is_text(a) or is_fake(a) or is_symbolic(a) for a in args]
    texts = tuple(a if keep else t.call(str, (a,), {}) for a, keep in zip(args, kept))
    if file is None:
        _effect(t, kwargs.get("file", sys.stdout), BUILTINS.print, texts, kwargs)
        return
    texts = tuple(t.call(str, (a,), {}) if is_symbolic(a) else a for a in texts)
    if not all(map(is_text, texts)) or t.world.is_foreign(file):
        raise GraphBreak("side-effect-call", "print to a file")
    text = join(" " if between is None else between, texts) + ("\n" if end is None else end)
    t.call(t.get_attr(file, "write"), (text,), {})


_LOG_OUTPUT = frozenset(
    """debug info warning warn error exception critical log warning_once info_once warning_advice""".split()
)


def log(t: Tracer, method: types.MethodType, args: Args, kwargs: Kwargs) -> Any:
    """A method of a logger: output is replayed after the graph, as if called from its place; questions are answered by its
    code."""
    name = getattr(method.__func__, "__name__", "")
    _check_told_exception(t, kwargs.get("exc_info", name == "exception"))
    if name not in _LOG_OUTPUT:
        return t.call(method.__func__, (method.__self__, *args), kwargs)
    t.world.hold(method.__func__, name)
    kwargs = dict(kwargs)
    level = kwargs.pop("stacklevel", 1)
    if not is_int(level) or kwargs.get("stack_info") or level != 1 and method.__func__.__module__ != "logging":
        raise GraphBreak(LOOKS, "a logger is told of the program's callers")
    place = held_place(t, max(level, 1) - 1, but=is_of_logging)
    _effect(t, method.__self__, t.world.hold(called_from, "called_from"), args, kwargs, (*place, method))
    return None


def _check_told_exception(t: Tracer, asked: Any) -> None:
    """A record that shows the exception that is handled is made while it is."""
    handled = t.handling()
    if asked is True and handled is not None and not isinstance(t.world.source_of(handled), HandledSource):
        raise GraphBreak("side-effect-call", "output of the exception that is handled")


# ---- the state of the random generators, which the graph reads and sets in its order among draws
@ROWS.takes(torch.manual_seed)
def _manual_seed(t: Tracer, seed: Any) -> Any:
    call_torch(t, random_state.seed, (t.call(int, (seed,), {}),), {})
    return t.world.hold(torch.default_generator, "torch.default_generator")


ROWS.callables |= {
    torch.get_rng_state: spread(lambda t: call_torch(t, random_state.random_state, (), {})),
    torch.set_rng_state: spread(lambda t, new_state: call_torch(t, random_state.set_random_state, (new_state,), {})),
}


def _make_generator(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """One object serves all calls; each starts it anew."""
    made = t.native(torch.Generator, *args, **kwargs)
    seed_generator(t, made, made.initial_seed())
    return made


CLASSES[torch.Generator] = _make_generator


def seed_generator(t: Tracer, generator: torch.Generator, seed: Any) -> torch.Generator:
    """generator.manual_seed(seed)"""
    call_torch(t, random_state.seed_generator, (generator, seed), {})
    return generator


def initial_seed(t: Tracer, generator: torch.Generator) -> Any:
    """generator.initial_seed(), which draws leave alone."""
    source = t.world.source_of(generator)
    if source is None or any(node.target in _SEEDS for node in t.graph.nodes):
        raise GraphBreak("random-state", "the seed of a generator that is seeded here")
    return t.world.bring(generator.initial_seed(), MethodSource(source, "initial_seed"))


_SEEDS = frozenset((random_state.seed, random_state.seed_generator, random_state.set_random_state))


# ---- stops of a debugger
@handles(breakpoint)
def _stop(t: Tracer, *given: Any) -> NoReturn:
    """The person at the debugger is to see every line and variable of the function: it runs eagerly as a whole."""
    raise CannotCapture(BreakReason("debugger", "a debugger is called", t.frames[-1].location()))


ROWS.modules["pdb"] = ROWS.modules["bdb"] = lambda function: _stop


# ---- calls that are left out of the graph
for _kind, _functions in {
    "side-effect-call": (input, open, torch.save, torch.load),
    "unknown-call": (exec, eval, compile),
    "random-state": (torch.seed,),
    "mutated-global-state": (torch.set_num_threads, torch.set_default_dtype, torch.set_default_device),
    "user-request": (torch.compiler.disable,),
}.items():
    ROWS.refuses(_functions, _kind, "a call of {}")

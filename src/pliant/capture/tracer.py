"""The interpreter of one attempt at a capture: the frames, and what every handler needs. Read this first in this folder.

In:     the policy for dynamic sizes, the operations at which earlier attempts broke; then what `capture.attempt` calls.
Out:    a graph, guards and effects; `GraphBreak`, `Raised` or `Stopped`.
Holds:  values are ordinary Python objects; only tensors are fake and varying numbers symbolic. So C code of Python itself can work on
        them; what it may not see are unguarded objects from outside. Nothing outside changes during a trace.
Reads on: `attempt.py` (the capture), `frame.py` (the loop), `opcodes/`, `protocols/` (what operations mean), `handlers/`
        (the table of callables), `outside/`, `recording/`.
"""

from __future__ import annotations

import dis
import functools
import itertools
import re
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from torch import fx
from torch.utils._pytree import tree_leaves

from pliant import config
from pliant.capture import callables, opcodes
from pliant.capture.bytecode.decode import Op, Program, per_program
from pliant.capture.frame import HANDLERS, Frame, Handler
from pliant.capture.graph_breaks import (
    BreakBefore,
    CannotCapture,
    GraphBreak,
    NoAttribute,
    Raised,
    Stopped,
    needs_value,
)
from pliant.capture.handlers.data_dependent import Message
from pliant.capture.handlers.threads import UsedLock
from pliant.capture.iterators import carried
from pliant.capture.iterators.generators import TracedCallable, TracedGenerator, ending_parts
from pliant.capture.numbers.arrays import unhashable
from pliant.capture.numbers.foreseen import foreseen_truth
from pliant.capture.numbers.numpy_scalars import fixed, is_scalar
from pliant.capture.outside.inputs import Inputs
from pliant.capture.outside.settings import Casts
from pliant.capture.outside.world import World
from pliant.capture.protocols import (
    attribute_stores,
    attributes,
    calls,
    class_statements,
    iteration,
    operators,
    subscripts,
)
from pliant.capture.protocols.plain_methods import computes_plainly, fields_compared, fixed_field, is_generated
from pliant.capture.recording.overrides import Overrides, call_override
from pliant.capture.recording.recorder import Recorder
from pliant.capture.recording.stand_ins import AssignedData, StandIn
from pliant.capture.recording.tensor_errors import error_of_eager
from pliant.capture.structures import mapped
from pliant.capture.trace import BreakReason, Draw
from pliant.capture.value_kinds import (
    MUTABLE_CONTAINERS,
    PLAIN_TYPES,
    ByKind,
    concrete,
    is_hashed_by_identity,
    is_numpy_scalar,
    tuple_of,
)
from pliant.debug import events
from pliant.dispatch.dynamic_policy import DynamicPolicy
from pliant.dispatch.entry import Answer
from pliant.errors import ConstraintError, DataDependentError, Unsupported
from pliant.graph.fake_tensor import FakeMode, FakeTensor, is_fake
from pliant.guards.facts import CacheToken
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.settings import Settings
from pliant.guards.sources import HandledSource, Source
from pliant.guards.standard import standard_globals
from pliant.interruptions import pass_on
from pliant.source import SourceLocation
from pliant.symbolic.expr import Expr
from pliant.symbolic.shape_env import ShapeEnv

assert opcodes and callables  # the tables, which are found through those who ask them


@per_program
def _handlers(program: Program) -> tuple[Handler, ...]:
    """The handler of each operation of a program."""
    return tuple(HANDLERS.get(op.name, _no_handler) for op in program.ops)


class Tracer:
    """One attempt at a capture: the frames, and what every handler needs."""

    get_attr = attributes.get_attr
    set_attr = attribute_stores.set_attr
    delete_attr = attribute_stores.delete_attr
    super_attr = attributes.super_attr
    binary = operators.binary
    unary = operators.unary
    compare = operators.compare
    identical = operators.identical
    contains = operators.contains
    truth = operators.truth
    negation = operators.negation
    subscript = subscripts.subscript
    store_subscript = subscripts.store_subscript
    delete_subscript = subscripts.delete_subscript
    iterate = iteration.iterate
    next = iteration.next_value
    send = iteration.send
    iterable = iteration.iterable
    sequence = iteration.sequence
    taken = iteration.taken
    mapping = iteration.mapping
    special_method = operators.special_method
    call = calls.call
    inline = calls.inline
    new_object = calls.new_object
    instantiate = calls.instantiate
    make_frame = calls.make_frame
    build_class = class_statements.build_class

    def __init__(self, policy: DynamicPolicy, stop_at: int = -1) -> None:
        self._make_parts(policy)
        self.frames: list[Frame] = []
        self.codes: dict[int, types.CodeType] = {}  # by id: what was interpreted
        self.cache_token: CacheToken | None = None  # once an abstract class was asked
        self.answers: list[Answer] = []
        self.orders: list[tuple[int, tuple[Any, ...]]] = []  # of sets that the trace made: slots, items
        self.process_bound = ""  # what was relied on that another process has otherwise, and no guard tells
        self.guarded_leaves: set[Source] = set()
        self.steps = 0
        self.stop_at = stop_at  # the step of the operation at which an earlier attempt broke
        self.current_exception: BaseException | None = None
        self.broken_frames: tuple[Frame, ...] | None = None
        self.lock: UsedLock | None = None
        self.released: list[Any] = []  # a lock that was taken before the trace
        self.draws: list[Draw] = []
        self.drawn_between: dict[Expr, tuple[Expr, Expr]] = {}  # the least and greatest that each drawn integer may be
        self.revived: dict[int, tuple[Any, TracedGenerator]] = {}  # by id: a generator from outside, its traced form
        self.standing: dict[int, carried.CarriedItems] = {}  # by id: iterators from outside over containers
        self.open_generators = 0  # that were started and have not reached their end
        self.generators: weakref.WeakSet[TracedGenerator] = weakref.WeakSet()  # that are alive
        self.overrides = Overrides()
        self.recorder.handle_override = lambda function, args, kwargs: call_override(self, function, args, kwargs)
        self.recorder.overrides = self.inputs.overrides = self.overrides
        self.inference: list[Any] = []  # the blocks of `torch.inference_mode` that are open
        self.questions: dict[Any, Source] = {}  # sources of what a thread is asked
        self.warning_blocks: list[Any] = []  # the `catch_warnings` blocks that are open
        self.caches: dict[int, tuple[Any, Any]] = {}  # by id: a function with a cache, and its cache within the trace
        self.settings: Settings  # of PyTorch, as the caller left them
        self.results: dict[Any, Any] = {}  # of such functions, by arguments with numbers that vary
        self.casts = Casts()
        self.hook_ids = 0  # keys of hooks that were taken
        self.message: Message | None = None  # of a check, while it is made
        self.skipped: FakeTensor | None = None  # whether the optimizer's step that is traced does nothing
        self.carrying: tuple[BaseException, BaseException | None, bool, types.TracebackType | None] | None = None
        self.failure: CannotCapture | None = None
        self.stand_ins: list[StandIn | AssignedData] = []
        self.active = True  # whether what the program does still counts

    def _make_parts(self, policy: DynamicPolicy) -> None:
        """What knows sizes, inputs, the program's objects, and the graph."""
        options = config.get()
        shapes = options.shapes
        self.shape_env = ShapeEnv(duck_shape=shapes.duck_sizing, specialize_zero_one=shapes.specialize_zero_one)
        self.shape_env.failed = policy.failed
        self.inline_depth = options.capture.inline_depth
        self.shape_env.origin_callback = self.location
        self.graph = fx.Graph()
        self.graph.output(())  # replaced at the end; placeholders and calls go before it
        self.mode = FakeMode(self.shape_env, options.capture.data_dependent and shapes.symbols)
        self.inputs = Inputs(self.graph, self.mode, self.shape_env, policy)
        self.world = World(self.inputs, self.location)
        self.inputs.world = self.world
        self.world.bring_carried = lambda value, source: carried.bring_back(self, value, source)
        self.recorder = Recorder(self.graph, self.inputs, self.location)
        self.shape_env.reveal = self.recorder.elements.behind
        self.shape_env.foresee = lambda condition: foreseen_truth(self, condition)

    def forget(self) -> None:
        """Let go of what the program knows, too: the tracer itself lives until garbage is collected.

        Garbage collection does not see the tensors that autograd's nodes save: those must not lead back here.
        """
        self.active = False
        self.shape_env.origin_callback = None
        self.shape_env.reveal = self.shape_env.foresee = lambda asked: None
        for node in self.graph.nodes:
            for value in tree_leaves(node.meta.get("val")):
                if is_fake(value):
                    value.node = None
        self.frames.clear()
        self.revived.clear()
        self.standing.clear()
        self.results.clear()
        self.stand_ins.clear()
        self.recorder.elements.forget()
        self.broken_frames = self.current_exception = self.carrying = self.failure = None
        self.inputs.forget()
        self.world.forget()

    # ---- frames
    def handlers(self, program: Program) -> tuple[Handler, ...]:
        return _handlers(program)

    def enter(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.codes[id(frame.code)] = frame.code
        if frame.ip == 0 and events.wants("bytecode"):
            text = dis.Bytecode(frame.code).dis().rstrip()
            events.record("bytecode", name=frame.name, text=f"{frame.name}\n{text}")

    def leave(self, frame: Frame) -> None:
        self.frames.pop()

    def has_effects(self) -> bool:
        """Whether the trace has done anything that what runs now could notice the absence of."""
        return bool(self.mode.draws or self.draws or self.mode.writes or self.world.changes() != [(0,)])

    def stop(self, frame: Frame) -> NoReturn:
        """The operation at which an earlier attempt broke: keep the frames and end."""
        if self.failure is not None:
            raise self.failure
        self.note_break()
        raise Stopped

    def note_break(self) -> None:
        """Remember the frames as they are at the innermost point of a break."""
        self.active = False
        if self.broken_frames is None:
            self.broken_frames = tuple(self.frames)

    def location(self) -> SourceLocation | None:
        """The innermost line of code that is not PyTorch's."""
        for frame in reversed(self.frames):
            if frame.is_the_users:
                return frame.location()
        return self.frames[-1].location() if self.frames else None

    # ---- running C code on traced values
    def native(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call C code; its exceptions are the program's, except that errors of tensor operations are left to eager."""
        try:
            result = function(*args, **kwargs)
            self.carrying = None  # C code was done with it; its traceback holds the frames, and these what they work on
            return result
        except (Raised, CannotCapture, ConstraintError):
            raise
        except DataDependentError as error:
            raise needs_value(error) from None
        except Unsupported as error:
            raise GraphBreak("unsupported-operator", str(error).splitlines()[0]) from None
        except AssertionError as error:  # never C code's own: a check inside torch or Pliant, not the program's
            raise GraphBreak("unsupported-operator", f"an internal check failed: {error}") from error
        except BaseException as error:
            if self.is_carried(error):  # the program raised it
                raise self.raised(error) from None
            if not isinstance(error, (Exception, GeneratorExit)) or isinstance(error, RecursionError):
                raise  # the program itself would not be as deep in the stack
            pass_on(error)
            if isinstance(error, TypeError) and any(map(is_scalar, args)):  # it takes NumPy's own alone
                return self.native(function, *(fixed(a) if is_scalar(a) else a for a in args), **kwargs)
            missing = isinstance(error, AttributeError) and function is getattr
            if any(map(is_fake, args)) and not (missing or isinstance(error, StopIteration)):
                if (worded := error_of_eager(function, args, kwargs)) is not None:
                    error.__traceback__ = None  # its frames hold what the program's frames hold
                    raise self.raised(worded) from None
                name = getattr(function, "__name__", str(function))
                raise GraphBreak("tensor-error", f"{name}: {type(error).__name__}: {error}") from error
            if not PLAIN_TYPES.keys().isdisjoint(map(type, (*args, *kwargs.values()))):  # they complain as Python's own
                return self.native(function, *map(concrete, args), **{k: concrete(v) for k, v in kwargs.items()})
            if _STAND_IN.search(str(error)):
                raise GraphBreak("unknown-object", "C code would look into a symbolic number, or a tensor") from None
            raise self.raised(error) from None

    def raised(self, error: BaseException) -> Raised:
        """An exception that comes out of C code: raised there, or carried through it."""
        error.__traceback__ = None
        carried, self.carrying = self.carrying, None
        if carried is not None and carried[0] is error:
            error.__context__, error.__suppress_context__, error.__traceback__ = carried[1:]
            found = Raised(error)
            found.has_context = True  # where it was raised it got it
            return found
        if error is not self.current_exception:
            error.__context__ = self.current_exception if isinstance(error, StopIteration) else self.handling()
        return Raised(error)

    def carried(self, error: BaseException) -> BaseException:
        """The exception for C code to carry. Python chains it to what the interpreter itself handles, so its context is kept."""
        self.carrying = error, error.__context__, error.__suppress_context__, error.__traceback__
        return error

    def handling(self) -> BaseException | None:
        """The exception that is being handled, by the program here or by what called it."""
        if self.current_exception is None:
            self.world.guard(HandledSource(), Kind.IDENTITY, None)
        return self.current_exception

    def is_carried(self, error: BaseException) -> bool:
        return self.carrying is not None and self.carrying[0] is error

    def call_if_present(self, obj: Any, name: str, *args: Any) -> Any:
        """obj.name(*args), or MISSING if it has no such attribute."""
        try:
            method = self.get_attr(obj, name)
        except NoAttribute:
            return MISSING
        return self.call(method, args, {})

    def has_ended(self, value: Any) -> bool:
        """Whether the trace has brought the generators from outside to their ends for which the value was noticed."""
        parts = ending_parts(value)
        return bool(parts) and all(id(one) in self.revived and self.revived[id(one)][1].finished for one in parts)

    def run_dropped(self, run: Callable[[], Any]) -> None:
        """Nobody holds a suspended generator any more, whose `finally` blocks run now, or what a weak reference with a
        callback refers to. An error there is nobody's."""
        if not self.active:
            return
        try:
            run()
        except GraphBreak as stop:
            self._break_where_dropped(stop.reason(self.location()))
        except Stopped:
            self._break_where_dropped(
                BreakReason("unsupported-opcode", "a break in what runs when an object is dropped", None)
            )
        except Exception as error:
            pass_on(error)

    def _break_where_dropped(self, reason: BreakReason) -> None:
        """End the trace at the next operation; the next attempt breaks before the one that let go of the object."""
        frames = list(itertools.takewhile(lambda frame: frame.linked, self.frames))
        self.failure = BreakBefore(reason, frames[-1].steps_at_op) if frames else CannotCapture(reason)
        self.stop_at = self.steps + 1

    def raise_(self, error: BaseException) -> NoReturn:
        """The program's `raise error`."""
        if error is not self.current_exception and error.__context__ is None:
            error.__context__ = self.handling()
        raise Raised(error)

    def hashable(self, key: Any) -> Any:
        """A value as a dict key or set element: symbolic numbers become concrete; user-defined hashing is refused."""
        return _KEYS.of(key)(self, key)

    def _tuple_as_key(self, key: Any) -> Any:
        """Of a tuple of another class: with numbers that do not vary, where the class hashes as tuples do."""
        numbers = [concrete(part) for part in tuple.__iter__(key)]
        same = all(a is b for a, b in zip(numbers, tuple.__iter__(key), strict=True))
        return self._object_as_key(key if same else tuple_of(type(key), numbers))

    def _tensor_as_key(self, key: FakeTensor) -> FakeTensor:
        self.world.note_identity(key)
        return self._pinned(key)  # type: ignore[no-any-return]

    def _pinned(self, key: Any) -> Any:
        self._refuse_own_hash(key)
        self.world.pin(key)
        return key

    def _object_as_key(self, key: Any) -> Any:
        if is_scalar(key):
            return fixed(key)
        if type(key).__hash__ is None:
            raise Raised(unhashable(key))
        self._refuse_own_hash(key)
        if is_hashed_by_identity(key):
            self.world.note_identity(key)
        else:
            for name in fields_compared(type(key)):
                fixed_field(self, key, name)
        return key

    def _refuse_own_hash(self, key: Any) -> None:
        """Break if C code that looks for the key would run what the program wrote for its class."""
        for name in ("__hash__", "__eq__"):
            method = operators.python_method(self, key, name)
            if method is not None and not standard_globals(method.__globals__) and not is_generated(method, type(key)):
                if computes_plainly(self, key):
                    return
                raise GraphBreak("unknown-object", f"a {type(key).__name__} with its own {name} as a key")

    def internalize(self, value: Any, within: frozenset[int] = frozenset()) -> Any:
        """The value with every outside container in it replaced by the trace's own copy."""
        value = self.world.adopt(value)
        inside = _INSIDE.of(value)
        return value if inside is None or id(value) in within else inside(self, value, within)

    def _internalize_items(self, value: Any, within: frozenset[int]) -> Any:
        """Of a list or a dict, in place: it may hold itself."""
        inner = within | {id(value)}
        for place, item in _places(value):
            if type(item) in MUTABLE_CONTAINERS or issubclass(type(item), tuple):
                value[place] = self.internalize(item, inner)
        return value

    def _internalize_parts(self, value: Any, within: frozenset[int]) -> Any:
        items = [self.internalize(v, within) for v in value]
        return tuple_of(type(value), items) if any(a is not b for a, b in zip(items, value, strict=True)) else value

    def _internalize_slice(self, value: slice, within: frozenset[int]) -> slice:
        return slice(*(self.internalize(v, within) for v in (value.start, value.stop, value.step)))

    def concrete_tree(self, value: Any) -> Any:
        """The value with symbolic numbers in it specialized."""
        return mapped(value, concrete)

    def plain(self, value: Any) -> Any:
        """The value as C code may have it: nothing in it is read from outside, or varies."""
        return self.concrete_tree(self.internalize(value))

    def refuse_opaque(self, *values: Any, within: frozenset[int] = frozenset(), compared: bool = False) -> None:
        """Break if C code would look into an object from outside, or run a method written in Python. `compared`: all that
        it does is to compare objects."""
        for value in values:
            if id(value) in within or is_numpy_scalar(value):
                continue
            if isinstance(value, _SAFE_IN_C):
                self._refuse_own_order(value)
                continue
            if (parts := _LOOKED_INTO.get(type(value))) is not None:
                self.refuse_opaque(*parts(value), within=within | {id(value)}, compared=compared)
                continue
            self._note_compared(value)
            compares = operators.python_method(self, value, "__eq__")
            if compares is not None and computes_plainly(self, value):
                continue
            if compared and operators.by_identity(value):
                continue
            if self.world.is_opaque(value) and not _safe_outside(value):
                raise GraphBreak("unknown-object", f"a {type(value).__name__} from outside is used by C code")
            if compares is not None and not is_generated(compares, type(value)):
                raise GraphBreak("unknown-object", f"C code would call methods of {type(value).__name__}")
            if any(operators.python_method(self, value, name) is not None for name in ("__index__", "__float__")):
                raise GraphBreak("unknown-object", f"C code would make a number of a {type(value).__name__}")

    def _refuse_own_order(self, value: Any) -> None:
        """Break for a string, number or class that is compared by what the program wrote for its class."""
        if isinstance(value, FakeTensor) or type(value) in _SAFE_IN_C:
            return
        methods = [operators.python_method(self, value, name) for name in _COMPARISONS]
        own = any(method is not None and not standard_globals(method.__globals__) for method in methods)
        if own and not computes_plainly(self, value):
            raise GraphBreak("unknown-object", f"C code would call methods of {type(value).__name__}")

    def _note_compared(self, value: Any) -> None:
        """C code may tell an object from others by which one it is: in containers, before it asks for `__eq__`."""
        if type(value) is types.MethodType:
            value = value.__self__
        if self.world.is_opaque(value):
            self.world.note_identity(value)

    def reentrant(self, function: Any, truth: bool = False) -> TracedCallable:
        """A callable for C code that comes back into the interpreter."""
        return TracedCallable(self, function, truth)


_KEYS: ByKind[Callable[[Tracer, Any], Any]] = ByKind(
    Tracer._object_as_key,
    {
        **dict.fromkeys(PLAIN_TYPES, lambda t, key: concrete(key)),
        tuple: lambda t, key: tuple(map(t.hashable, key)),
    },
    {
        tuple: Tracer._tuple_as_key,
        **dict.fromkeys((str, int, float, type, types.FunctionType, functools.partial, type(None)), Tracer._pinned),
        FakeTensor: Tracer._tensor_as_key,
    },
)
_INSIDE: ByKind[Callable[[Tracer, Any, frozenset[int]], Any] | None] = ByKind(
    None,
    {
        **dict.fromkeys((list, dict), Tracer._internalize_items),
        slice: Tracer._internalize_slice,
    },
    {tuple: Tracer._internalize_parts},
)
_SAFE_IN_C = (FakeTensor, str, int, float, type, type(None))
_COMPARISONS = ("__eq__", "__lt__", "__gt__", "__le__", "__ge__")
_LOOKED_INTO: dict[type, Callable[[Any], Iterable[Any]]] = {
    **dict.fromkeys((list, tuple, set, frozenset), iter),
    dict: lambda value: (*value, *value.values()),
}


def _places(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if type(value) is dict else enumerate(value)


_STAND_IN = re.compile(r"\b(Sym(Int|Float|Bool)|FakeTensor)\b")  # in the message of an error


def _no_handler(frame: Frame, op: Op) -> NoReturn:
    raise GraphBreak("unsupported-opcode", f"the operation {op.name}")


def _safe_outside(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in (
        "torch",
        "builtins",
        "enum",
        "functools",
        "types",
        "re",
    ) and not isinstance(value, tuple(MUTABLE_CONTAINERS))

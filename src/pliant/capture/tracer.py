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
import itertools
import types
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from torch import fx
from torch.utils._pytree import tree_leaves

from pliant import config
from pliant.bytecode.decode import Op, Program, per_program
from pliant.capture import callables, opcodes
from pliant.capture.frame import HANDLERS, Frame, Handler
from pliant.capture.graph_breaks import (
    BreakBefore,
    CannotCapture,
    GraphBreak,
    NoAttribute,
    Raised,
    Stopped,
    is_end,
    needs_value,
)
from pliant.capture.handlers.data_dependent import Message
from pliant.capture.handlers.threads import UsedLock
from pliant.capture.handlers.warning_filters import of_pytorch
from pliant.capture.iterators import carried
from pliant.capture.iterators.generators import TracedGenerator, ending_parts
from pliant.capture.numbers.foreseen import foreseen_truth
from pliant.capture.numbers.numpy_scalars import as_numpy, holds_scalars
from pliant.capture.outside.inputs import Inputs
from pliant.capture.outside.settings import Casts
from pliant.capture.outside.unread_arguments import UnreadArguments
from pliant.capture.outside.world import World
from pliant.capture.program_stack import FrameValues
from pliant.capture.protocols import (
    asked_by_c,
    attribute_stores,
    attributes,
    calls,
    class_statements,
    given_to_c,
    iteration,
    operators,
    subscripts,
)
from pliant.capture.protocols.cached_calls import Computed
from pliant.capture.protocols.patched_methods import OF_OPERATORS, refuse_patched
from pliant.capture.protocols.repeated_calls import RepeatedCalls
from pliant.capture.recording.late_state import LateState
from pliant.capture.recording.overrides import Overrides, begin_overrides, call_override
from pliant.capture.recording.recorder import Recorder
from pliant.capture.recording.stand_ins import AssignedData, StandIn
from pliant.capture.structures import leaves
from pliant.capture.trace import BreakReason, Draw
from pliant.capture.value_kinds import PLAIN_TYPES, concrete, is_mutable_container, is_str, is_tuple
from pliant.debug import events
from pliant.dispatch.dynamic_policy import DynamicPolicy
from pliant.dispatch.entry import Answer
from pliant.dispatch.tracebacks import chain, context_of
from pliant.errors import ConstraintError, DataDependentError, Unsupported
from pliant.graph.fake_mode import FakeMode
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.guards.facts import CacheToken
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.settings import Settings
from pliant.guards.sources import HandledSource, Source
from pliant.interruptions import pass_on
from pliant.reached_objects import Reached
from pliant.regular import pattern
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

    gradient_bytes = 0  # that data parallelism around the model sums up at a time
    get_attr = attributes.get_attr
    set_attr = attribute_stores.set_attr
    delete_attr = attribute_stores.delete_attr
    super_attr = attributes.super_attr
    binary = operators.binary
    unary = operators.unary
    compare = operators.compare
    identical = operators.identical
    contains = iteration.contains
    truth = operators.truth
    negation = operators.negation
    subscript = subscripts.subscript
    store_subscript = subscripts.store_subscript
    delete_subscript = subscripts.delete_subscript
    iterate = iteration.iterate
    next = iteration.next_value
    send = iteration.send
    iterable = iteration.iterable
    listed = iteration.listed
    as_sequence = iteration.as_sequence
    sequence = iteration.sequence
    taken = iteration.taken
    mapping = iteration.mapping
    special_method = operators.special_method
    hashable = given_to_c.hashable
    internalize = given_to_c.internalize
    concrete_tree = given_to_c.concrete_tree
    plain = given_to_c.plain
    refuse_opaque = given_to_c.refuse_opaque
    reentrant = given_to_c.reentrant
    grouping = given_to_c.grouping
    refuse_beside_tensor = asked_by_c.refuse_beside_tensor
    call = calls.call
    inline = calls.inline
    new_object = calls.new_object
    instantiate = calls.instantiate
    make_frame = calls.make_frame
    build_class = class_statements.build_class

    def __init__(self, policy: DynamicPolicy, stop_at: int = -1) -> None:
        self._make_parts(policy)
        # ---- where the interpreter stands
        self.frames: list[Frame] = []
        self.steps, self.stop_at = 0, stop_at  # the step of the operation at which an earlier attempt broke
        self.active = True  # whether what the program does still counts
        # The exceptions that are handled: here, and, where nothing is, by who asked the generator that runs for an item.
        self.own_exception: BaseException | None = None
        self.exception_around: BaseException | None = None
        self.carrying: tuple[BaseException, BaseException | None, bool, types.TracebackType | None] | None = None
        self.broken_frames: tuple[Frame, ...] | None = None
        self.failure: CannotCapture | None = None
        # What is made of a program's handlers: where a part of the program may only compute, others that refuse the rest.
        self.looked_at: Callable[[tuple[Handler, ...], Program], tuple[Handler, ...]] | None = None
        # ---- what the entry gets beside guards, graph and effects
        self.codes: dict[int, types.CodeType] = {}  # by id: what was interpreted
        self.answers: list[Answer] = []
        self.orders: list[tuple[int, tuple[Any, ...]]] = []  # of sets that the trace made: slots, items
        self.process_bound = ""  # what was relied on that another process has otherwise, and no guard tells
        self.draws: list[Draw] = []
        self.lock: UsedLock | None = None
        self.released: list[Any] = []  # a lock that was taken before the trace
        # ---- generators, and iterators from outside
        self.revived: dict[int, tuple[Any, TracedGenerator]] = {}  # by id: a generator from outside, its traced form
        self.standing: dict[int, carried.CarriedItems] = {}  # by id: iterators from outside over containers
        self.generators: weakref.WeakSet[TracedGenerator] = weakref.WeakSet()  # that are alive
        # ---- PyTorch
        self.settings: Settings  # as the caller left them
        self.casts = Casts()
        begin_overrides(self)
        self.stand_ins: list[StandIn | AssignedData] = []
        # ---- what handlers of one theme remember
        self.cache_token: CacheToken | None = None  # once an abstract class was asked
        self.guarded_leaves: set[Source] = set()
        self.drawn_between: dict[Expr, tuple[Expr, Expr]] = {}  # the least and greatest that each drawn integer may be
        self.inference: list[Any] = []  # the blocks of `torch.inference_mode` that are open
        self.questions: dict[Any, Source] = {}  # sources of what a thread is asked
        self.module_calls: list[tuple[int, int]] = []  # that are open: how many frames are outside, frames of PyTorch's own
        self.broken_calls: tuple[tuple[int, int], ...] = ()
        self.unread: UnreadArguments | None = None  # of the call, which no guard tells yet
        self.warning_blocks: list[Any] = []  # the `catch_warnings` blocks that are open
        self.caches: dict[int, tuple[Any, Any]] = {}  # by id: a function with a cache, and its cache within the trace
        self.results: dict[Any, Any] = {}  # of such functions, by arguments with numbers that vary
        self.computed: list[Computed] = []  # of such functions from outside, which do not hold them
        self.hook_ids = self.open_generators = 0  # keys of hooks that were taken; generators that were started, and have not ended
        self.passed: dict[int, BaseException] = {}  # by id: exceptions from outside that were raised
        self.put_off: list[tuple[Reached, int, SourceLocation | None]] = []  # output by code of the program's: its state, step
        self.late_states: list[LateState] = []  # what hooks and backwards find when they run
        self.message: Message | None = None  # of a check, while it is made
        self.skipped: FakeTensor | None = None  # whether the optimizer's step that is traced does nothing

    def _make_parts(self, policy: DynamicPolicy) -> None:
        """What knows sizes, inputs, the program's objects, and the graph."""
        self.frame_values, self.repeated = FrameValues(), RepeatedCalls()
        options = config.get()
        shapes = options.shapes
        self.shape_env = ShapeEnv(duck_shape=shapes.duck_sizing, specialize_zero_one=shapes.specialize_zero_one)
        self.shape_env.failed = policy.failed
        self.inline_depth, self.idle_steps = options.capture.inline_depth, options.capture.idle_steps
        self.idle = 0, 0  # how many nodes there are, and since which step
        self.shape_env.origin_callback = self.location
        self.graph = fx.Graph()
        self.graph.output(())  # replaced at the end; placeholders and calls go before it
        self.mode = FakeMode(self.shape_env, options.capture.data_dependent and shapes.symbols)
        self.inputs = Inputs(self.graph, self.mode, self.shape_env, policy)
        self.world = World(self.inputs, self.location)
        self.inputs.world = self.world
        self.world.refuse_own_keys = lambda keys: given_to_c.refuse_own_keys(self, keys)
        self.counted: dict[int, tuple[Any, Source]] = {}  # by id: iterators of loops whose turns are guarded; their places
        self.looped: dict[int, tuple[Any, Source]] = {}  # the same of iterators that are not carried over breaks in them
        self.world.bring_carried = lambda value, source: carried.bring_back(self, value, source)
        self.recorder = Recorder(self.graph, self.inputs, self.location)
        self.overrides = self.recorder.overrides = self.inputs.overrides = Overrides()
        self.recorder.handle_override = lambda function, args, kwargs: call_override(self, function, args, kwargs)
        self.recorder.warned = lambda told: of_pytorch(self, told)
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
            result = node.meta.get("val")
            for value in [result] if is_fake(result) else tree_leaves(result):
                if is_fake(value):
                    value.node = None
        for generator in self.generators:  # they and their frames refer to each other
            generator.frame.forget()
        with_the_trace = self.codes, self.answers, self.orders, self.draws
        for held_here in vars(self).values():
            if is_mutable_container(held_here) and all(held_here is not one for one in with_the_trace):
                held_here.clear()
        self.repeated.forget()
        self.frame_values.forget()
        self.recorder.elements.forget()
        self.unread = self.lock = self.message = self.skipped = None
        self.broken_frames = self.carrying = self.failure = None
        self.own_exception = self.exception_around = None
        self.inputs.forget()
        self.world.forget()

    # ---- frames
    def handlers(self, program: Program) -> tuple[Handler, ...]:
        """How each operation of a program is done here and now."""
        handlers = _handlers(program)
        return handlers if self.looked_at is None else self.looked_at(handlers, program)

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

    def last_node(self) -> fx.Node:
        """The one that was recorded last."""
        return next(iter(reversed(self.graph.nodes)))  # type: ignore[no-any-return]

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
            self.broken_calls = tuple(self.module_calls)

    def step_to_cut(self) -> int | None:
        """The step of the innermost operation before which the frames can be cut; None if there is none."""
        *_, last = None, *itertools.takewhile(lambda frame: frame.linked, self.frames)
        return None if last is None else last.steps_at_op

    def location(self) -> SourceLocation | None:
        """The innermost line of code that is not PyTorch's."""
        for frame in reversed(self.frames):
            if frame.is_the_users:
                return frame.location()
        return self.frames[-1].location() if self.frames else None

    # ---- running C code on traced values
    def native(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call C code; its exceptions are the program's, except that errors of tensor operations are left to eager."""
        names = OF_OPERATORS.get(id(function))
        if names is not None and any(map(is_fake, args)):
            refuse_patched(self, *names)
        asked_by_c.refuse_asked(self, function, args, kwargs)
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
            match error:
                case RecursionError():  # the program itself would not be as deep in the stack
                    raise
                case Exception() | GeneratorExit():
                    return self._failed(error, function, args, kwargs)
            raise

    def _failed(self, error: BaseException, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """What C code gives that failed on values of the trace, for plainer ones; else its exception."""
        pass_on(error)
        match error:
            case TypeError() if holds_scalars(function, *args, *kwargs.values()):  # it takes NumPy's own alone
                named = {name: as_numpy(value) for name, value in kwargs.items()}
                return self.native(as_numpy(function), *map(as_numpy, args), **named)
            case StopIteration():
                pass
            case AttributeError() if function is getattr:
                pass
            case _ if any(map(is_fake, args)):
                raise self.tensor_error(error, function, args, kwargs) from error
        values = [leaf for v in (*args, *kwargs.values()) for leaf in (leaves(v) if is_tuple(v) else (v,))]
        if not PLAIN_TYPES.keys().isdisjoint(map(type, values)):  # they complain as Python's own
            args, given = ([self.concrete_tree(v) if is_tuple(v) else concrete(v) for v in of] for of in (args, kwargs.values()))
            return self.native(function, *args, **dict(zip(kwargs, given, strict=True)))
        if any(_STAND_IN.search(text) for text in error.args if is_str(text)):  # `str(error)` may ask a key for its text
            raise GraphBreak("unknown-object", "C code would look into a symbolic number, or a tensor") from None
        raise self.raised(error) from None

    def tensor_error(self, error: BaseException, function: Any, args: Any, kwargs: dict[str, Any]) -> BaseException:
        """The program's exception where an operation on tensors failed, as eager words it; a break where only eager can."""
        from pliant.capture.recording.tensor_errors import error_of_eager  # where a program fails

        if (worded := error_of_eager(function, args, kwargs)) is not None:
            error.__traceback__ = None  # its frames hold what the program's frames hold
            return self.raised(worded)
        name, text = getattr(function, "__name__", str(function)), str(error).partition("\n")[0]
        return GraphBreak("tensor-error", f"{name}: {type(error).__name__}: {text}")

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
            chain(error, self.current_exception if is_end(error) else self.handling())
        return Raised(error)

    def carried(self, error: BaseException) -> BaseException:
        """The exception for C code to carry. Python chains it to what the interpreter itself handles, so its context is kept."""
        self.carrying = error, error.__context__, error.__suppress_context__, error.__traceback__
        return error

    @property
    def current_exception(self) -> BaseException | None:
        """The exception that the trace knows to be handled."""
        return self.exception_around if self.own_exception is None else self.own_exception

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
        step = self.step_to_cut()
        self.failure = CannotCapture(reason) if step is None else BreakBefore(reason, step)
        self.stop_at = self.steps + 1

    def raise_(self, error: BaseException) -> NoReturn:
        """The program's `raise error`."""
        if self.world.is_foreign(error):
            self._chain_outside(error)
        elif error is not self.current_exception and (handled := self.handling()) is not None:
            self._cut_chain(handled, error)
            chain(error, handled)
        raise Raised(error)

    def _cut_chain(self, handled: BaseException, error: BaseException) -> None:
        """What led to the exception that is handled does not go on to `error`: they would be a cycle."""
        step: BaseException | None = handled
        seen: set[int] = set()
        while step is not None and id(step) not in seen:
            seen.add(id(step))
            if self.world.is_foreign(step):
                if self.world.slot_get(step, "__context__") is error:
                    raise GraphBreak("unknown-object", "an exception is raised while one from outside that it led to is handled")
                return
            if (following := context_of(step)) is error:
                chain(step, None)
            step = following

    def _chain_outside(self, error: BaseException) -> None:
        """One from outside is chained anew each time that it is raised."""
        handled = context = self.handling()
        while context is not None and context is not error:
            context = self.get_attr(context, "__context__")
        if context is not None and handled is not error:
            raise GraphBreak("unknown-object", "an exception from outside is raised while what it led to is handled")
        if handled is not None and handled is not error:
            self.world.slot_set(error, "__context__", handled, "plain")


_STAND_IN = pattern(r"\b(Sym(Int|Float|Bool)|FakeTensor)\b")  # in the message of an error


def _no_handler(frame: Frame, op: Op) -> NoReturn:
    raise GraphBreak("unsupported-opcode", f"the operation {op.name}")

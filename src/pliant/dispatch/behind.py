"""Graphs that are compiled behind the program's calls: the captured graph serves meanwhile, operator by operator.

In:     what compiles a graph, and what runs one as it was captured; an entry, once it is written.
Out:    `Behind`: a compiler of graphs that puts the work off; `pending()`, `wait(seconds)`.
Holds:  capture stays in the call, as it follows the program's state as it is (decision 5). What comes after it depends on the
        captured graph, on settings of the thread and on descriptions of the call's tensors: all are noted in the call, so that
        the program may change its own. Both callables of a graph have one meaning, so a call may take either, each with
        its own backward. What cannot be decided behind a call is done in a later one, as without the option; all of it is told.
        One graph is compiled at a time, in a thread that ends with the program.
Reads on: `trial.py`, `descriptions.py`; `docs/decisions/0029-compiled-behind-calls.md`.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pliant import background, config, torch_adapter
from pliant.debug import events
from pliant.dispatch import markers
from pliant.dispatch.descriptions import NotDescribed, described_inputs
from pliant.dispatch.trial import Trial
from pliant.errors import FallbackWarning, PliantError, Unsupported, UserError
from pliant.gc_pause import GcPause
from pliant.guards.settings import OF_THREAD
from pliant.interruptions import pass_on
from pliant.torch_adapter import DeviceContext, without_saved_tensor_hooks

if TYPE_CHECKING:
    from pliant.dispatch.dispatcher import Dispatcher
    from pliant.dispatch.entry import Entry, GraphCallable, GraphCompiler
    from pliant.graph.contracts import CapturedGraph

_waiting: deque[Behind] = deque()
_pending: set[Behind] = set()
_state = background.lock()
_changed = threading.Condition(_state)
_serving = False


class Behind:
    """The graph of one entry, and how it is compiled once the entry is there."""

    def __init__(self, dispatcher: Dispatcher, compile_graph: GraphCompiler, as_captured: GraphCompiler) -> None:
        self._dispatcher = weakref.ref(dispatcher)
        self.name = dispatcher.name
        self._compile_graph, self._as_captured = compile_graph, as_captured
        self._entry: Callable[[], Entry | None] = lambda: None
        self._captured: CapturedGraph | None = None
        self._meanwhile: GraphCallable = _nothing

    # ---- in the call
    def __call__(self, captured: CapturedGraph) -> GraphCallable:
        """What runs the graph: as it was captured; compiled at once where that cannot be done later."""
        if (why := self._note_call(captured)) is not None:
            self._tell("is compiled in the call", why)
            return self._compile_graph(captured)
        self._meanwhile = self._as_captured(captured)
        return self._meanwhile

    def _note_call(self, captured: CapturedGraph) -> str | None:
        """Note what the compiler is to find as it is in this call; why that is not possible."""
        if torch_adapter.is_distributed():
            return "processes that work together are to run the same code"
        if next(captured.module.children(), None) is not None:  # levels of derivatives are the process's, and bodies compile alone
            return "it has functions of its own: a body of control flow, a transform, a custom function"
        if any(markers.mark_of(node.target) is markers.Mark.IN_GRAPH for node in captured.module.graph.nodes):
            return "it calls functions of the program unread"
        if not torch_adapter.asks_overrides():
            return "it is called in a block of DisableTorchFunctionSubclass"
        try:
            inputs = described_inputs(captured)
        except NotDescribed as stop:
            return str(stop)
        self._captured = replace(captured, inputs=inputs)
        self._surroundings, self._options = _Surroundings(), config.get()
        self._facts = {guard.expr for guard in captured.shape_env.final_guards()}
        return None

    def begin(self, entry: Entry) -> None:
        """Compile the graph of this entry from now on."""
        self._entry, self._begun = weakref.ref(entry), time.monotonic()
        self._context = contextvars.copy_context()
        self._tell("has begun", "calls run the captured graph meanwhile")
        with _state:
            _waiting.append(self)
            _pending.add(self)
        _serve_on()

    @property
    def is_put_off(self) -> bool:
        """Whether there is anything to be done behind the call."""
        return self._captured is not None

    def forget(self) -> None:
        """Have another call capture anew."""
        dispatcher, entry = self._dispatcher(), self._entry()
        if dispatcher is not None and entry is not None:
            dispatcher.drop(entry)

    # ---- behind the call
    def compile(self) -> None:
        """In the thread behind the calls."""
        self._context.run(self._compile)

    def _compile(self) -> None:
        with config.use(self._options), background.heard():
            try:
                self._compiled()
            except Warning as error:  # which the program wants as an error
                self._in_a_call(error)
        self._captured = self._context = None  # type: ignore[assignment]  # what they hold is the program's

    def _compiled(self) -> None:
        left = self._begun + self._options.general.background_budget - time.monotonic()
        try:
            with background.in_turns(left, self._is_wanted), self._surroundings.entered():
                made = self._made()
                background.give_way(at_once=True)
        except background.GivenUp as stop:
            self._given_up(stop.late)
        except (Unsupported, UserError, Warning) as error:
            self._in_a_call(error)
        except Exception as error:
            pass_on(error)
            self._crashed(error)
        else:
            self._publish(made)

    def _made(self) -> GraphCallable:
        from pliant.dispatch.dispatcher import capturing

        assert self._captured is not None
        before = torch_adapter.Beginning()
        capturing.active = True
        try:
            with GcPause(), without_saved_tensor_hooks(), events.stage("background", of=self.name):
                return self._compile_graph(self._captured)
        finally:
            capturing.active = False
            before.restore()

    def _is_wanted(self) -> bool:
        dispatcher, entry = self._dispatcher(), self._entry()
        return dispatcher is not None and entry is not None and entry in dispatcher.entries

    def _given_up(self, late: bool) -> None:
        if not late:
            self._tell("is dropped", "nobody waits for it any more")
            return
        seconds = self._options.general.background_budget
        why = f"it is not compiled within {seconds:g} s (option background_budget)"
        self._tell("is given up", why)
        self._fall_back(why, "background-budget")

    def _in_a_call(self, error: BaseException) -> None:
        """What the error means depends on what may be done in a call: to capture otherwise, to raise it, to warn."""
        self._tell("is compiled again in a call", str(error).partition("\n")[0])
        dispatcher, entry = self._dispatcher(), self._entry()
        if dispatcher is not None and entry is not None:
            dispatcher.compile_in_calls(entry)

    def _crashed(self, error: Exception) -> None:
        if self._options.general.strict:
            self._in_a_call(error)
            return
        why = str(error) if isinstance(error, PliantError) else f"{type(error).__name__}: {error}"
        self._tell("fails", why)
        self._fall_back(why, "crash")

    def _fall_back(self, why: str, kind: str) -> None:
        dispatcher = self._dispatcher()
        where = dispatcher.location if dispatcher is not None else None
        events.record("fallback", name=self.name, why=f"operator by operator: {why}", reason=kind, where=where)
        indented = why.replace("\n", "\n       ")
        message = f"a graph of {self.name} runs operator by operator\n  {where}\n  why  {indented}"
        events.warn_once(f"behind:{self.name}:{kind}", message, FallbackWarning)

    def _publish(self, made: GraphCallable) -> None:
        entry = self._entry()
        assert self._captured is not None
        if entry is None or not self._is_wanted():
            self._given_up(late=False)
            return
        more = [guard for guard in self._captured.shape_env.final_guards() if guard.expr not in self._facts]
        if more:
            self._in_a_call(Unsupported(f"it holds for sizes of which {' and '.join(map(str, more))}"))
            return
        seconds = time.monotonic() - self._begun
        entry.use(Trial(made, self._meanwhile, self._decide))
        self._tell("is ready", f"{seconds:.3g} s after the call that asked for it")

    def _decide(self, chosen: GraphCallable, compiled: float, as_captured: float) -> None:
        """What measured faster runs the graph from now on."""
        dispatcher, entry = self._dispatcher(), self._entry()
        if dispatcher is None or entry is None:
            return
        figures = f"{1e6 * compiled:.1f} us compiled, {1e6 * as_captured:.1f} as captured"
        is_compiled = chosen is not self._meanwhile
        entry.use(chosen)
        self._tell("is faster" if is_compiled else "is slower, and dropped", figures)
        if is_compiled:
            dispatcher.keep_later(entry)

    def _tell(self, what: str, why: str) -> None:
        events.record("background", name=self.name, what=what, why=why)


def _nothing(inputs: list[Any]) -> list[Any]:
    raise AssertionError("no graph was given")


class _Surroundings:
    """What a thread has of its own, and the compiler looks at: as it is in this thread."""

    def __init__(self) -> None:
        self._settings = [(one, one.read()) for one in OF_THREAD]
        self._inference = torch.is_inference_mode_enabled()
        modes = [torch_adapter.function_mode_at(i) for i in range(torch_adapter.count_function_modes())]
        self._device = next((one.device for one in reversed(modes) if isinstance(one, DeviceContext)), None)
        gpus = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._gpu = torch_adapter.current_gpu() if gpus else None

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The same in another thread."""
        with contextlib.ExitStack() as stack:
            if self._gpu is not None:
                torch.cuda.set_device(self._gpu)
            if self._inference:
                stack.enter_context(torch.inference_mode())
            if self._device is not None:
                stack.enter_context(torch.device(self._device))
            for one, value in self._settings:
                stack.callback(one.setter, *one.key, one.read())
                one.setter(*one.key, value)
            yield


# ---- the thread


def _serve_on() -> None:
    """Have a thread that compiles what waits."""
    global _serving
    with _state:
        starts, _serving = not _serving, True
    if starts and not background.start(_serve, "pliant-background"):
        with _state:  # the program has ended
            _serving = False
            _waiting.clear()
            _pending.clear()
            _changed.notify_all()


def _serve() -> None:
    global _serving
    while True:
        with _state:
            one = _waiting.popleft() if _waiting else None
            _serving = one is not None
        if one is None:
            return
        try:
            one.compile()
        finally:
            _done(one)


def _done(one: Behind) -> None:
    with _state:
        _pending.discard(one)
        _changed.notify_all()


def pending() -> int:
    """How many graphs are being compiled, or wait for that."""
    return len(_pending)


def wait(seconds: float | None = None) -> bool:
    """Wait until nothing is pending; whether that is so. `seconds`: at most."""
    with _state:
        return _changed.wait_for(lambda: not _pending, seconds)


def _in_forked_child() -> None:
    """The thread is not in it, and what it was about is half done: later calls compile anew."""
    global _changed, _serving
    _changed, _serving = threading.Condition(_state), False
    left = list(_pending)
    _waiting.clear()
    _pending.clear()
    for one in left:
        one.forget()


os.register_at_fork(after_in_child=_in_forked_child)

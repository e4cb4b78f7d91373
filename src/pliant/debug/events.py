"""The structured record of everything the compiler does.

In:     `record(kind, **fields)` and `with stage(name):` from any module and any thread.
Out:    `stats()`, `events()`, log lines (`PLIANT_LOGS`), and calls to subscribers.
Holds:  recording never raises and never looks into a tensor; the newest `HISTORY` events are kept, counts for good.

A kind belongs to a log channel. `PLIANT_LOGS=graph_breaks,+guards` prints the first at level INFO, the second with all
its fields (DEBUG). Long texts (`graph_code`, `output_code`) are built only if somebody listens: ask `wants(kind)`.
"""

import contextlib
import difflib
import logging
import sys
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from types import TracebackType
from typing import NamedTuple, Self

from pliant import background, config
from pliant.errors import ConfigError, PliantWarning
from pliant.interruptions import pass_on
from pliant.records import dataclass
from pliant.source import callers_to_program

HISTORY = 20_000  # events kept
PENDING = 1_000  # events that wait to be counted


@dataclass(frozen=True, slots=True)
class Kind:
    """How events of one kind are logged: channel, level, and a line made of their fields."""

    channel: str
    text: str
    level: int = logging.INFO


# kind -> channel and line. Fields that an event lacks print as `?`.
KINDS: dict[str, Kind] = {
    "capture": Kind("capture", "capturing {name} at {where}"),
    "graph": Kind("graphs", "compiled {name}: {nodes} operators in {seconds} s"),
    "found_graph": Kind("graphs", "found {name}, compiled by another process: {nodes} operators"),
    "graph_break": Kind("graph_breaks", "graph break [{reason}] {where}\n  why  {why}\n  do   {do}"),
    "recompile": Kind("recompiles", "recompiling {name}: {why}\n  {where}"),
    "recompile_limit": Kind("recompiles", "{name} reached {limit} entries and runs eagerly: {why}", logging.WARNING),
    "fallback": Kind("fallbacks", "{name} runs eagerly: {why}", logging.WARNING),
    "assumption": Kind("fallbacks", "a call of {name} runs eagerly, since its data is not as assumed: {why}"),
    "data_dependent_retry": Kind("fallbacks", "capturing {name} again with breaks at data-dependent values: {why}"),
    "numbers_retry": Kind("dynamic", "capturing {name} again with constants for symbols: {why}"),
    "package": Kind("fallbacks", "{name} runs its kernels for {processor}", logging.DEBUG),
    "extern": Kind("fallbacks", "operator {name} runs as an extern call: {why}"),
    "packed_weights": Kind("fallbacks", "a weight of {bytes} bytes is not packed: all copies may take {most}"),
    "auxiliary": Kind("fallbacks", "the native function {name} is not built, and what is faster with it does without: {why}"),
    "is_compiling": Kind("capture", "is_compiling() is {answer} at {where}{callers}"),
    "skip": Kind("capture", "not capturing {name}: {why}"),
    "guard": Kind("guards", "guard {text}    {where}"),
    "dynamic": Kind("dynamic", "{symbol} = {source}: {why}"),
    "specialize": Kind("dynamic", "{symbol} specialized to {value} at {where}"),
    "export_specialized": Kind("dynamic", "a size of an exported program is fixed: {why}"),
    "bytecode": Kind("bytecode", "{text}"),
    "graph_code": Kind("graph_code", "{text}"),
    "nodes": Kind("graph_code", "{count} nodes of the {level} graph {name}", logging.DEBUG),
    "joint": Kind("aot", "{text}"),
    "partition": Kind("aot", "{text}"),
    "loops": Kind("loops", "{text}"),
    "schedule": Kind("schedule", "{text}"),
    "kernels": Kind("schedule", "{count} steps of {name}", logging.DEBUG),
    "eager_memory": Kind("schedule", "{count} operators of {name} in eager's memory", logging.DEBUG),
    "output_code": Kind("output_code", "{text}"),
    "build": Kind("build", "built {name} in {seconds} s"),
    "cache": Kind("cache", "{what} {name}: {why}"),
    "unshared": Kind("build", "built alone: {why}"),
    "cuda_graph": Kind("cuda_graphs", "recorded {name}: {held} inputs are copied each call"),
    "cuda_graph_refused": Kind("cuda_graphs", "{name} is not recorded: {why}"),
    "cuda_graph_skipped": Kind("cuda_graphs", "a call of {name} runs as it is: {why}"),
    "entry": Kind("cache", "{name} is {what}: {why}"),
    "pattern": Kind("patterns", "{name} is replaced at {where}"),
    "pattern_left": Kind("patterns", "{name} is left as it is at {where}: {why}"),
    "background": Kind("background", "{name}, compiled behind its calls, {what}: {why}"),
    "stage": Kind("stages", "{path} {seconds} s"),
}

CHANNELS: tuple[str, ...] = tuple(sorted({k.channel for k in KINDS.values()}))
_PLAIN = Kind("other", "{text}")


class Event(NamedTuple):
    """One thing that happened. `time` is `time.perf_counter()` in seconds, `thread` its ident."""

    kind: str
    time: float
    thread: int
    fields: Mapping[str, object]

    @property
    def line(self) -> str:
        """The event as a person reads it."""
        return KINDS.get(self.kind, _PLAIN).text.format_map(_Blank(self.fields)).rstrip()


class _Blank(dict[str, object]):
    """Fields of an event; a missing one prints as `?`, a float shortly."""

    def __missing__(self, key: str) -> str:
        return "?"

    def __getitem__(self, key: str) -> object:
        value = super().__getitem__(key)
        return f"{value:.3g}" if isinstance(value, float) else value


@dataclass(slots=True)
class _Totals:
    """What is counted for good."""

    kinds: dict[str, int] = field(default_factory=dict)
    break_reasons: Counter[str] = field(default_factory=Counter)
    fallback_reasons: Counter[str] = field(default_factory=Counter)
    assumption_reasons: Counter[str] = field(default_factory=Counter)
    recompile_reasons: Counter[str] = field(default_factory=Counter)
    patterns: Counter[str] = field(default_factory=Counter)
    patterns_left: Counter[str] = field(default_factory=Counter)
    cache: Counter[str] = field(default_factory=Counter)
    entries: Counter[str] = field(default_factory=Counter)
    entry_reasons: Counter[str] = field(default_factory=Counter)
    background: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)


Subscriber = Callable[[Event], object]

_Raw = tuple[str, float, int, Mapping[str, object]]  # what an `Event` is made of

_now, _thread = time.perf_counter, threading.get_ident

_lock = background.lock()
_totals = _Totals()
_pending: deque[_Raw] = deque()
_history: deque[_Raw] = deque(maxlen=HISTORY)
_subscribers: dict[int, tuple[Subscriber, frozenset[str] | None]] = {}
_warned: set[str] = set()

# kind -> (total, field whose value is counted), ...
_REASONS = {
    "graph_break": (("break_reasons", "reason"),),
    "fallback": (("fallback_reasons", "why"),),
    "recompile_limit": (("fallback_reasons", "why"),),
    "assumption": (("assumption_reasons", "why"),),
    "recompile": (("recompile_reasons", "why"),),
    "cache": (("cache", "what"),),
    "pattern": (("patterns", "name"),),
    "pattern_left": (("patterns_left", "why"),),
    "entry": (("entries", "what"), ("entry_reasons", "reason")),
    "background": (("background", "what"),),
}


def record(kind: str, **fields: object) -> None:
    """Note one event: count it, keep it, log it, tell the subscribers."""
    raw = (kind, _now(), _thread(), fields)
    _pending.append(raw)  # atomic; counting waits, since a lock here would double the cost
    if _subscribers or _log_levels:
        _publish(Event._make(raw))
    if len(_pending) > PENDING:
        with _lock:
            _fold()


def _fold() -> None:
    """Move what is pending into the history and the counts. The lock is held."""
    kinds = _totals.kinds
    for _ in range(len(_pending)):
        raw = _pending.popleft()
        _history.append(raw)
        kind = raw[0]
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind in _REASONS:
            _count_reason(kind, raw[3])


def _count_reason(kind: str, fields: Mapping[str, object]) -> None:
    for total, name in _REASONS[kind]:
        reasons: Counter[str] = getattr(_totals, total)
        if reason := str(fields.get(name, "?")):
            reasons[reason] += 1


def _publish(event: Event) -> None:
    shape = KINDS.get(event.kind, _PLAIN)
    wanted = _log_levels.get(shape.channel)
    if wanted is not None and wanted <= shape.level:
        extra = f"\n  {dict(event.fields)}" if wanted <= logging.DEBUG else ""
        _logger(shape.channel).log(shape.level, "%s", event.line + extra)
    for subscriber, kinds in list(_subscribers.values()):
        if kinds is None or event.kind in kinds:
            _call_subscriber(subscriber, event)


def _call_subscriber(subscriber: Subscriber, event: Event) -> None:
    try:
        subscriber(event)
    except Exception as error:  # a listener's bug must not change what the compiled program does
        pass_on(error)
        warn_once(f"subscriber:{subscriber!r}", f"an event subscriber failed: {error!r}")


def wants(kind: str) -> bool:
    """Whether anybody listens to this kind, so that an expensive text is worth building."""
    level = _log_levels.get(KINDS.get(kind, _PLAIN).channel)
    if level is not None and level <= KINDS.get(kind, _PLAIN).level:
        return True
    return any(kinds is None or kind in kinds for _, kinds in list(_subscribers.values()))


def subscribe(subscriber: Subscriber, kinds: frozenset[str] | None = None) -> Callable[[], None]:
    """Call `subscriber` on each event (of these kinds) from now on; returns the function that ends it."""
    token = id(object.__new__(object)) ^ time.perf_counter_ns()
    _subscribers[token] = (subscriber, kinds)
    return lambda: _drop(token)


def _drop(token: int) -> None:
    _subscribers.pop(token, None)


@contextlib.contextmanager
def collect(*kinds: str) -> Iterator[list[Event]]:
    """A list that receives the events (of these kinds, or all) of every thread while the block runs."""
    found: list[Event] = []
    end = subscribe(found.append, frozenset(kinds) or None)
    try:
        yield found
    finally:
        end()


# ------------------------------------------------------------------------------------------------ stage times


class _Stack(threading.local):
    """Names of the stages that run in this thread, and the path of the innermost one that an exception left."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.failed: tuple[int, str] = (0, "")


_stack = _Stack()


class stage:
    """Time a part of the compiler: `with stage("lower", graph=3): ...`. Stages nest; `seconds` are inclusive.

    A stage inside one of the same name is not counted again.
    """

    __slots__ = ("fields", "name", "start")

    def __init__(self, name: str, /, **fields: object) -> None:
        self.name = name
        self.fields = fields
        self.start = 0.0

    def __enter__(self) -> Self:
        background.give_way()
        _stack.names.append(self.name)
        self.start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self.start
        names = _stack.names
        path = "/".join(names)
        names.pop()
        if self.name not in names:
            with _lock:
                _totals.seconds[self.name] = _totals.seconds.get(self.name, 0.0) + seconds
                _totals.calls[self.name] += 1
        failed = {"error": kind.__name__} if kind is not None else {}
        if error is not None and _stack.failed[0] != id(error):
            _stack.failed = (id(error), path)
        fields = {"name": self.name, "path": path, "seconds": seconds, "start": self.start, **failed}
        record("stage", **{**{f"of_{k}" if k in fields else k: v for k, v in self.fields.items()}, **fields})


def failed_stage(error: BaseException) -> str:
    """The path of the innermost stage that this exception left in this thread, or an empty string."""
    return _stack.failed[1] if _stack.failed[0] == id(error) else ""


# ------------------------------------------------------------------------------------------------ what was seen


def stats() -> dict[str, object]:
    """Totals since the start or the last `reset()`."""
    with _lock:
        _fold()
        kinds, t = Counter(_totals.kinds), _totals
        return {
            "graphs": kinds["graph"] + kinds["found_graph"],
            "graph_breaks": kinds["graph_break"],
            "break_reasons": dict(t.break_reasons),
            "recompiles": kinds["recompile"],
            "recompile_reasons": dict(t.recompile_reasons),
            "recompile_limits": kinds["recompile_limit"],
            "fallbacks": kinds["fallback"] + kinds["recompile_limit"],
            "assumptions": kinds["assumption"],
            "assumption_reasons": dict(t.assumption_reasons),
            "fallback_reasons": dict(t.fallback_reasons),
            "externs": kinds["extern"],
            "cache": dict(t.cache),
            "entries": dict(t.entries),
            "entry_reasons": dict(t.entry_reasons),
            "background": dict(t.background),
            "seconds": {name: round(s, 6) for name, s in t.seconds.items()},
            "calls": dict(t.calls),
        }


def events(kind: str | None = None) -> list[Event]:
    """The kept events, oldest first, of one kind or all."""
    with _lock:
        _fold()
        return [Event._make(raw) for raw in _history if kind is None or raw[0] == kind]


def reset() -> None:
    """Forget counts, times, kept events and which warnings were given."""
    global _totals
    with _lock:
        _totals = _Totals()
        _pending.clear()
        _history.clear()
        _warned.clear()


def warn_once(key: str, message: str, category: type[Warning] | None = None) -> bool:
    """Give a warning, at the program's line that led here, the first time this key is seen; whether it was new."""
    with _lock:
        if key in _warned:
            return False
        _warned.add(key)
    try:
        warnings.warn(message, category or PliantWarning, stacklevel=callers_to_program())
    except Warning:
        if background.is_heard():
            raise  # the program wants warnings as errors: it is told once
        with _lock:
            _warned.discard(key)  # nobody would hear of it in a thread of ours; who meets it again says it
    return True


# ------------------------------------------------------------------------------------------------ log channels

_log_levels: dict[str, int] = {}

_COLOURS = {"graph_breaks": 33, "recompiles": 35, "guards": 36, "fallbacks": 31, "dynamic": 34, "stages": 32}


class _Formatter(logging.Formatter):
    """`[pliant:channel] text`, the channel coloured on a terminal."""

    def __init__(self, colour: bool) -> None:
        super().__init__()
        self.colour = colour

    def format(self, record: logging.LogRecord) -> str:
        channel = record.name.rpartition(".")[2]
        tag = f"[pliant:{channel}]"
        if self.colour:
            tag = f"\x1b[{_COLOURS.get(channel, 90)}m{tag}\x1b[0m"
        return f"{tag} {record.getMessage()}"


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic only in stubs
    """Writes to whatever `sys.stderr` is at that time, so that captured output stays captured."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def set_logs(spec: str) -> None:
    """Log these channels: `graph_breaks,+guards`; `all` and `+all` mean each. Replaces what was set before."""
    levels: dict[str, int] = {}
    for word in spec.replace(",", " ").split():
        level, name = (logging.DEBUG, word[1:]) if word.startswith("+") else (logging.INFO, word)
        for channel in CHANNELS if name == "all" else (_channel(name),):
            levels[channel] = level
    for channel in {*_log_levels, *levels}:  # of no others: setting a level walks all loggers of the process
        _logger(channel).setLevel(levels.get(channel, logging.WARNING))
    _log_levels.clear()
    _log_levels.update(levels)
    root = logging.getLogger("pliant")
    for handler in [h for h in root.handlers if isinstance(h, _StderrHandler)]:
        root.removeHandler(handler)
    if levels:
        handler = _StderrHandler()
        handler.setFormatter(_Formatter(sys.stderr.isatty()))
        root.addHandler(handler)


def _logger(channel: str) -> logging.Logger:
    return logging.getLogger(f"pliant.{channel}")


def _channel(name: str) -> str:
    if name in CHANNELS:
        return name
    if name in KINDS:
        return KINDS[name].channel
    near = difflib.get_close_matches(name, CHANNELS, n=1)
    raise ConfigError(
        f"unknown log channel `{name}`",
        kind="unknown-log",
        where="PLIANT_LOGS",
        why="the channels are " + ", ".join(CHANNELS),
        do=f"did you mean `{near[0]}`?" if near else "pick from these, or `all`",
    )


config.follow("logs", set_logs)

"""Guards -> straight-line Python text that returns MISS at the first fact that does not hold.

In:     guards in the order capture found them, shape guards, and the sources of symbols.
Out:    `GuardWriter.steps` (text, guard); `compile_guards` makes a function `check(args, kwargs)` of them alone;
        `dispatch.entry_writer` goes on in the same function, so that values read for guards need not be read again.
Holds:  each source is read once, into a local variable; a read that fails (KeyError, AttributeError...) is a miss;
        modes and tracers come before facts about arguments, then other global state, held objects, relations. Checks
        run no user code.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from pliant import config
from pliant.guards import facts, kept_calls
from pliant.guards.evaluate import found_as_expected, owner_of
from pliant.guards.kinds import Guard, Kind, NumberOf, TensorFacts
from pliant.guards.names import Names
from pliant.guards.parts import Local, StoragesSource, root_of, shape_of, shared, stride_of
from pliant.guards.sources import (
    ArgSource,
    ChainedSource,
    HeldSource,
    ItemSource,
    KwargSource,
    Source,
    StateSource,
    TypeSource,
)
from pliant.guards.state import READERS, WATCHERS
from pliant.guards.steps import MISS as MISS
from pliant.guards.steps import READ_ERRORS as READ_ERRORS
from pliant.guards.steps import Step, lookup
from pliant.peer import EVAL_FRAME
from pliant.records import dataclass
from pliant.saved_hooks import changing_hook
from pliant.torch_adapter import (
    DUAL_LEVEL,
    FX_TRACING,
    any_autocast,
    count_dispatch_modes,
    count_function_modes,
    current_transform,
    deterministic_algorithms,
    dispatch_keys,
    is_script_tracing,
    saved_tensor_hooks,
)

if TYPE_CHECKING:
    from pliant.symbolic.expr import Expr


class Section(Protocol):
    """Text beside the writer's own that reads some of the sources (`held_section`)."""

    def read(self, source: Source) -> str | None:
        """The variable that will hold the source's value, or None if the section does not read it."""


class GuardWriter:
    """Writes guard statements; remembers which local variable holds which source."""

    def __init__(self, names: Names, symbol_sources: Mapping[Any, Source] | None = None) -> None:
        self.names = names
        self.steps: list[Step] = []
        self.locals: dict[Source, str] = {}
        self._by_id: dict[int, tuple[Source, str]] = {}  # hashing a source takes as long as its chain is deep
        self.section: Section | None = None
        # of guards that were looked at before this writes them, by their identity: the class' bases, and which had the name
        self.lookups: dict[int, tuple[tuple[type, ...], type | None]] = {}
        self._symbol_sources = symbol_sources or {}
        self._written: set[str] = set()
        self._proxies: dict[type, str] = {}
        self._classes: dict[Source, type] = {}  # classes that guards written so far fix

    def read(self, source: Source) -> str:
        """The local variable that holds the value of the source, reading it first if need be."""
        known = self._by_id.get(id(source))
        if known is not None:
            return known[1]
        name = self.locals.get(source)
        if name is None:
            name = self.section.read(source) if self.section is not None else None
            name = name or self._read_now(source)
            self.locals[source] = name
        self._by_id[id(source)] = (source, name)
        return name

    def _read_now(self, source: Source) -> str:
        step = shared(source)
        if step is not source:
            return self.read(step)
        if isinstance(source, StoragesSource):
            name = self.names.fresh("storages")
            tensors = "".join(f"{self.read(s)}, " for s in source.sources)
            self.steps.append(Step(f"{name} = {self.names(facts.storages, 'storages_of')}(({tensors}))", None))
            return name
        whole = source
        if isinstance(source, ChainedSource):
            source = source.below(Local(self.read(source.parent)))
        code = source.code(self.names)
        if code.isidentifier():
            return code  # held objects are globals of the generated function already
        name = self.names.fresh(code if isinstance(source, Local) else hint_of(source))
        self.steps.append(Step(f"{name} = {code}", None, whole))
        return name

    def add(self, guard: Guard) -> None:
        """Write the statement that checks one guard, unless the same test has been written."""
        test = _TESTS[guard.kind](self, guard)
        self._note_class(guard)
        if test:
            self.require(test, guard)

    def require(self, test: str, guard: Guard | None) -> None:
        """Write `if test: return MISS` once."""
        if test not in self._written:
            self._written.add(test)
            self.steps.append(Step(f"if {test}: return MISS", guard))

    def _note_class(self, guard: Guard) -> None:
        if guard.kind is Kind.TYPE:
            self._classes[TypeSource(guard.source)] = guard.expected
        elif guard.kind is Kind.IDENTITY and issubclass(type(guard.expected), type):
            self._classes[guard.source] = guard.expected

    def class_of(self, source: Source) -> type | None:
        """The class that the source is known to lead to."""
        value = source.held.value if isinstance(source, HeldSource) else self._classes.get(source)
        return value if isinstance(value, type) else None

    def class_dict(self, cls: type) -> str:
        """The held dictionary proxy of a class (a new proxy object at each access, all views of one dictionary)."""
        proxy = self._proxies.get(cls)
        if proxy is None:
            proxy = self._proxies[cls] = self.names(cls.__dict__, f"{cls.__name__}_dict")
        return proxy

    def add_each(self, guards: Iterable[Guard]) -> None:
        """Write guards in the order given."""
        for guard in guards:
            self.add(guard)

    def add_all(self, guards: Iterable[Guard]) -> None:
        """Write guards by rank."""
        self.add_each(sorted(guards, key=rank))

    def expression(self, expr: Expr) -> str:
        """Python text of a symbolic expression over variables that hold its symbols' values."""
        from pliant.symbolic.printer import to_python

        symbols = sorted(expr.free, key=lambda symbol: symbol.name)
        free = {symbol: self.read(self._symbol_sources[symbol]) for symbol in symbols}
        self.names.define("math", math)
        return to_python(expr, free)


def hint_of(source: Source) -> str:
    """What a variable of the source's value may be called."""
    if isinstance(source, ItemSource) and isinstance(source.key, str):
        return source.key
    if isinstance(source, ItemSource) and isinstance(source.key, int):
        return f"{source.parent.describe()}_{source.key}"
    return source.describe().rpartition(".")[2]


AROUND, ARGUMENT, STATE, HELD, SHAPE, RELATION = range(6)  # ranks


def rank(guard: Guard) -> int:
    """First who would see that tensors are looked at; then arguments (they change most), global state, held objects,
    sizes, relations between values."""
    if guard.kind is Kind.KEPT:
        return RELATION
    if guard.kind in (Kind.SAME_AS, Kind.DISTINCT, Kind.SEPARATE):
        return HELD if all(root_of(s).is_held for s in related(guard)) else RELATION
    if guard.kind in (Kind.SHAPE, Kind.EXPRESSION):
        return SHAPE
    match root_of(guard.source):
        case ArgSource() | KwargSource():
            return ARGUMENT
        case StateSource(name):
            return AROUND if name in WATCHERS else STATE
        case _:
            return HELD


def related(guard: Guard) -> tuple[Source, ...]:
    """The sources that a guard on several values relates."""
    match guard.kind:
        case Kind.SAME_AS:
            return guard.source, guard.expected
        case _:
            return (*guard.expected[0], *guard.expected[1])


# ---- one function a kind: the text of a test that is true when the guard FAILS


def _type(w: GuardWriter, g: Guard) -> str:
    return f"type({w.read(g.source)}) is not {w.names(g.expected)}"


def _identity(w: GuardWriter, g: Guard) -> str:
    v, e = w.read(g.source), g.expected
    return f"{v} is not {repr(e) if e is None or e is True or e is False else w.names(e)}"


def _literal(w: GuardWriter, value: Any) -> str:
    if type(value) is float and not math.isfinite(value):  # `inf` is a name
        return w.names(value)
    return repr(value) if type(value) in (int, bool, str, bytes, float, range) else w.names(value)


def _equals(w: GuardWriter, g: Guard) -> str:
    v, e = w.read(g.source), g.expected
    if e is None or e is True or e is False:
        return f"{v} is not {e!r}"
    if type(e) is facts.CacheToken:  # a name: another process counts otherwise
        return f"{v} != {w.names(e, 'registrations')}"
    if facts.spelled_exactly(e):
        return f"type({v}) is not {w.names(type(e))} or {v} != {_literal(w, e)}"
    return f"not {w.names(facts.same, 'same')}({v}, {w.names(e)})"


def _length(w: GuardWriter, g: Guard) -> str:
    return f"len({w.read(g.source)}) != {g.expected}"


def _keys(w: GuardWriter, g: Guard) -> str:
    v, e = w.read(g.source), tuple(g.expected)
    if all(type(k) is str for k in e):
        return f"tuple({v}) != {e!r}"
    return f"not {w.names(facts.same, 'same')}(tuple({v}), {w.names(e)})"


def _items(w: GuardWriter, g: Guard) -> str:
    return f"not {w.names(facts.has_items, 'has_items')}({w.read(g.source)}, {w.names(g.expected, 'items')})"


def _key_text(w: GuardWriter, key: Any) -> str:
    return repr(key) if type(key) in (str, int, bool) else w.names(key)


def _has_key(w: GuardWriter, g: Guard) -> str:
    return f"{_key_text(w, g.expected)} not in {w.read(g.source)}"


def _no_key(w: GuardWriter, g: Guard) -> str:
    return f"{_key_text(w, g.expected)} in {w.read(g.source)}"


def _empty(w: GuardWriter, g: Guard) -> str:
    return w.read(g.source)


def _all_empty(w: GuardWriter, g: Guard) -> str:
    return f"not {w.names(facts.all_empty, 'all_empty')}({w.read(g.source)}, {w.names(g.expected, 'hooks')})"


def _same_as(w: GuardWriter, g: Guard) -> str:
    return f"{w.read(g.source)} is not {w.read(g.expected)}"


def _distinct(w: GuardWriter, g: Guard) -> str:
    mine, others = ([w.read(source) for source in sources] for sources in g.expected)
    if len(mine) * (len(mine) - 1) // 2 + len(mine) * len(others) <= 3:
        return " or ".join(f"{a} is {b}" for i, a in enumerate(mine) for b in (*mine[i + 1 :], *others))
    own, rest = (", ".join(f"id({v})" for v in values) for values in (mine, others))
    tests = [f"len({{{own}}}) != {len(mine)}"] if len(mine) > 1 else []
    tests += [f"not {{{own}}}.isdisjoint(({rest},))"] if others else []
    return " or ".join(tests)


def _separate(w: GuardWriter, g: Guard) -> str:
    """Tensors of held objects enter as one set, which is looked at only when they change."""
    fixed: list[str] = []
    passed: list[str] = []
    for sources in g.expected:
        kept = tuple(s for s in sources if root_of(s).is_held)
        fixed.append(w.read(StoragesSource(kept)) if kept else "")
        passed.append("".join(f"{w.read(s)}, " for s in sources if not root_of(s).is_held))
    test = w.names(facts.separate, "separate")
    none = w.names(frozenset(), "nothing")
    if not any(passed):  # all held
        return f"not {fixed[0] or none}.isdisjoint({fixed[1] or none})"
    tests = [f"not {test}(({passed[0]}), ({passed[1]}), {fixed[0] or none})"]
    if passed[0] and fixed[1]:
        tests.append(f"not {test}(({passed[0]}), (), {fixed[1]})")
    return " or ".join(tests)


def _unset(w: GuardWriter, g: Guard) -> str:
    return f"not {w.names(facts.unset, 'unset')}({w.names(g.expected)}, {w.read(g.source)})"


def _state(w: GuardWriter, g: Guard) -> str:
    name = g.source.name
    if name == "deterministic" and not g.expected:
        return f"{w.names(deterministic_algorithms)}()"
    if name == "grad_enabled" or name == "inference_mode":
        call = f"{w.names(READERS[name].read)}()"
        return f"not {call}" if g.expected else call
    if name == "autocast" and not g.expected:
        return f"{w.names(any_autocast)}()"
    if name == "function_modes" and not g.expected:
        return f"{w.names(count_function_modes)}()"
    if name == "transforms" and not g.expected:
        return f"{w.names(current_transform)}() is not None"
    if name == "dual_level" and g.expected == -1:
        module, level = DUAL_LEVEL
        return f"{w.names(module, 'forward_ad')}.{level} >= 0"
    if name == "tracing" and not g.expected:
        module, flag = FX_TRACING
        return f"{w.names(is_script_tracing)}() or {w.names(module, 'fx_tracer')}.{flag}"
    if name == "stance":
        loaded = f"(_compiler := {w.names(sys.modules, 'modules')}.get({EVAL_FRAME!r})) is not None"
        return f"{loaded} and _compiler._stance.stance == 'force_eager'"
    if name == "dispatch_modes" and not g.expected:
        return f"{w.names(count_dispatch_modes)}()"
    if name == "config":
        patched, base = config.IN_FORCE
        where = w.names(config, "config")
        return f"({where}.{patched}.get() or {where}.{base}).code_key is not {w.names(g.expected)}"
    if name == "saved_hooks":
        return f"{w.names(saved_tensor_hooks)}(False) is not None and {w.names(changing_hook)}()"
    relation = "is not" if READERS[name].identity else "!="
    return f"{w.names(READERS[name].read, 'read_' + name)}() {relation} {_literal_state(w, g.expected)}"


def _literal_state(w: GuardWriter, value: Any) -> str:
    return repr(value) if type(value) is int else w.names(value)


def _range(w: GuardWriter, g: Guard) -> str:
    v = w.read(g.source)
    return f"type({v}) is not range or ({v}.start, {v}.stop, {v}.step) != {tuple(g.expected)!r}"


def _shape(w: GuardWriter, g: Guard) -> str:
    return f"not ({w.expression(g.expected)})"


def _expression(w: GuardWriter, g: Guard) -> str:
    return f"{w.read(g.source)} != {w.expression(g.expected)}"


def _type_lookup(w: GuardWriter, g: Guard) -> str:
    """A class' dictionary proxy is a live view, so it can be held; the classes before the one that has the name must
    lack it."""
    name, value = g.expected
    cls = w.class_of(g.source)
    if cls is None:
        found = f"{w.names(lookup, 'lookup')}({w.read(g.source)}, {name!r})"
        return _is_not(w, found, value)
    mro, owner = w.lookups.get(id(g)) or (cls.__mro__, owner_of(cls, name))
    w.require(f"{w.names(cls)}.__mro__ is not {w.names(mro, cls.__name__ + '_mro')}", g)
    if owner_of(cls, name) is not owner or not found_as_expected(cls, g.expected):  # changed since it was looked at
        return "True"
    tests = []
    for base in cls.__mro__:
        if not base.__flags__ & _HEAP_TYPE:  # classes implemented in C do not change
            if name in base.__dict__:
                break
            continue
        space = w.class_dict(base)
        if name in base.__dict__:
            tests.append(_is_not(w, f"{space}.get({name!r})", value))
            break
        tests.append(f"{name!r} in {space}")
    return " or ".join(tests)


def _is_not(w: GuardWriter, found: str, value: Any) -> str:
    if isinstance(value, NumberOf):
        return f"type({found}) is not {w.names(value.cls)}"
    return f"{found} is not {w.names(value, 'MISSING')}"


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def _tensor(w: GuardWriter, g: Guard) -> str:
    e: TensorFacts = g.expected
    v = w.read(g.source)
    tests = [f"type({v}) is not {w.names(e.cls)}", f"{v}.dtype is not {w.names(e.dtype)}"]
    tests.append(f"not {v}.is_cpu" if e.device.type == "cpu" else f"{v}.device != {w.names(e.device)}")
    tests.append(f"{'not ' * e.requires_grad}{v}.requires_grad")
    tests += [f"{v}.is_neg()"] if e.dtype.is_floating_point else []
    tests += [f"{v}.is_conj()", f"{v}.is_neg()"] if e.dtype.is_complex else []
    tests.append(f"{v}.layout is not {w.names(torch.strided, 'strided')}")
    if None in e.sizes:  # shape guards read the open sizes, and reading is safe only once the type is known
        w.require(" or ".join(tests), g)
        tests = _extents(e.sizes, w.read(shape_of(g.source)))
    else:
        tests.append(f"{v}.shape != {tuple(e.sizes)!r}")
    if e.strides is not None:
        if None in e.strides:
            w.require(" or ".join(tests), g)
            tests = _extents(e.strides, w.read(stride_of(g.source)))
        else:
            tests.append(f"{v}.stride() != {tuple(e.strides)!r}")
    if e.storage_offset_zero is not None:
        tests.append(f"{v}.storage_offset() {'!=' if e.storage_offset_zero else '=='} 0")
    if e.is_leaf is not None:
        tests.append(f"{'not ' * e.is_leaf}{v}.is_leaf")
    if e.dispatch_keys is not None:
        tests.append(f"{w.names(dispatch_keys)}({v}).raw_repr() != {e.dispatch_keys}")
    return " or ".join(tests)


def _extents(expected: Sequence[int | None], text: str) -> list[str]:
    """Tests on a shape or stride tuple of which some entries are open."""
    return [
        f"len({text}) != {len(expected)}",
        *(f"{text}[{i}] != {e}" for i, e in enumerate(expected) if e is not None),
    ]


_TESTS: dict[Kind, Callable[[GuardWriter, Guard], str]] = {
    Kind.TYPE: _type,
    Kind.IDENTITY: _identity,
    Kind.EQUALS: _equals,
    Kind.NUMBER_TYPE: _type,
    Kind.TENSOR: _tensor,
    Kind.LENGTH: _length,
    Kind.KEYS: _keys,
    Kind.ITEMS: _items,
    Kind.HAS_KEY: _has_key,
    Kind.NO_KEY: _no_key,
    Kind.EMPTY: _empty,
    Kind.ALL_EMPTY: _all_empty,
    Kind.SAME_AS: _same_as,
    Kind.DISTINCT: _distinct,
    Kind.SEPARATE: _separate,
    Kind.UNSET: _unset,
    Kind.STATE: _state,
    Kind.RANGE: _range,
    Kind.SHAPE: _shape,
    Kind.EXPRESSION: _expression,
    Kind.KEPT: kept_calls.test_of,
    Kind.TYPE_LOOKUP: _type_lookup,
}


# What tests call, that guards do not name.
HELPERS: tuple[Any, ...] = (facts.same, facts.has_items, facts.all_empty, facts.storages, facts.separate, facts.unset, lookup, frozenset())


@dataclass(frozen=True, slots=True)
class GuardCheck:
    """A compiled check: `check(args, kwargs)` is True or False; `text` its source."""

    check: Callable[[tuple[Any, ...], dict[str, Any]], bool]
    text: str


def compile_guards(
    guards: Iterable[Guard],
    shape_guards: Iterable[Expr] = (),
    symbol_sources: Mapping[Any, Source] | None = None,
    names: Names | None = None,
) -> GuardCheck:
    """The check alone, for tests, caches and explanations (entries put the same statements at their start)."""
    writer = GuardWriter(names or Names(), symbol_sources)
    writer.add_all([*guards, *(Guard(None, Kind.SHAPE, e) for e in shape_guards)])
    body = [step.text.replace("return MISS", "return False") for step in writer.steps]
    lines = ["def check(args, kwargs):", "    try:", *(f"        {line}" for line in body)]
    lines += ["        return True", "    except READ_ERRORS:", "        return False"]
    text = "\n".join(lines) + "\n"
    scope = {**writer.names.values, "READ_ERRORS": READ_ERRORS}
    exec(compile(text, "<pliant guards>", "exec"), scope)
    return GuardCheck(scope.pop("check"), text)

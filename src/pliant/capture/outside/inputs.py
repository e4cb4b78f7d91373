"""Inputs of the captured graph: real tensors become fake, numbers that vary become symbols.

In:     real values and their sources, from `World.bring`.
Out:    `FakeTensor`s and `SymInt`/`SymFloat`s, placeholders in the graph, tensor guards.
Holds:  a real tensor is one input, however many sources lead to it, where it can matter that it is one: it is written,
        compared by identity, or gradients are asked for it inside. Else it is an input a source, and no guard says that
        both are the same; a use by which it matters starts the capture again. (Autograd adds up what flows into several
        inputs that are one leaf.)
"""

from __future__ import annotations

import dataclasses
import itertools
import keyword
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from pliant.capture.graph_breaks import GraphBreak, StartAgain
from pliant.capture.numbers.element_rules import MOST_ELEMENTS, READABLE
from pliant.capture.outside.input_memory import InputMemory
from pliant.capture.recording.overrides import Overrides, has_own_dispatch, is_program_subclass
from pliant.capture.signatures import World
from pliant.capture.structures import is_list_or_tuple, several
from pliant.capture.value_kinds import ByKind, is_fixed_number, is_int, is_parameter, is_plain_tensor, is_symbolic
from pliant.dispatch.dynamic_policy import DynamicPolicy
from pliant.errors import Unsupported
from pliant.graph.contracts import GraphInput
from pliant.graph.fake_mode import FakeMode
from pliant.graph.fake_tensor import FakeTensor, is_fake, is_own_parameter
from pliant.graph.tensor_spec import row_major_strides
from pliant.graph.writes import is_written
from pliant.guards.kinds import Kind, TensorFacts
from pliant.guards.parts import root_of
from pliant.guards.sources import (
    AttributeSource,
    InMemorySource,
    ItemSource,
    MethodSource,
    PlainTensorSource,
    SizeSource,
    Source,
    StrideSource,
)
from pliant.regular import pattern
from pliant.symbolic.expr import Expr, Symbol
from pliant.symbolic.shape_env import ShapeEnv
from pliant.torch_adapter import (
    DisableTorchFunction,
    append_placeholder,
    as_in_memory,
    below_python_dispatch,
    lazy_views,
    plain_tensor,
)

_OTHERS = pattern(r"\W")  # characters that names have not
_MOST_LEFT = 64  # items of a list of which each is compared with what was there


_NUMERIC = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.float32, torch.float64)


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _elements(value: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and elements of a real tensor."""
    with DisableTorchFunction(), below_python_dispatch():
        return tuple(value.shape), tuple(value.flatten().tolist())


def _item(source: Source, index: tuple[int, ...]) -> Source:
    for place in index:
        source = ItemSource(source, place)
    return source


_FITS: ByKind[Callable[[Any], bool]] = ByKind(math.isfinite, families={int: lambda number: -(2**62) <= number <= 2**62})
_KIND: ByKind[type] = ByKind(float, families={int: int})


class Inputs(InputMemory):
    """Makes and remembers the inputs of one capture."""

    world: World
    overrides: Overrides
    record: Callable[[Any, Any, Any], Any]

    def __init__(self, graph: fx.Graph, mode: FakeMode, shape_env: ShapeEnv, policy: DynamicPolicy) -> None:
        self.graph = graph
        self.mode = mode
        self.shape_env = shape_env
        self.policy = policy
        self.inputs: list[GraphInput] = []
        self.node_of_symbol: dict[Symbol, fx.Node] = {}
        self._by_tensor: dict[int, tuple[torch.Tensor, list[FakeTensor]]] = {}
        self._examples: dict[int, torch.Tensor] = {}
        self._whole: list[GraphInput] = []
        self._as_given: dict[int, FakeTensor] = {}  # inputs that the program moves to other memory
        self.told: list[FakeTensor] = []  # inputs of which the program says whether they require gradients
        self.told_first: list[FakeTensor] = []  # those that are to, before the graph uses them
        self._last_placeholder: fx.Node | None = None
        self._names: set[str] = set()
        self._items: dict[Source, Any] = {}
        self._fixed: list[tuple[FakeTensor, Source]] = []  # elements that are constants

    def forget(self) -> None:
        """Let go of the program's objects."""
        for held_here in (self._by_tensor, self._examples, self._items):
            held_here.clear()
        self.inputs, self._whole, self._fixed = [], [], []  # a trace has the others
        self.__dict__.pop("policy", None)

    def counts(self) -> tuple[int, ...]:
        """How much is known beside tensors: equal as long as a trace only reads these."""
        return tuple(map(len, (self.told, self._items, self._fixed, self._whole, self._as_given, self.node_of_symbol)))

    def places_of(self, value: torch.Tensor) -> list[Source]:
        """The sources of the inputs that are a real tensor."""
        known = self._by_tensor.get(id(value), (value, []))[1]
        return [source for fake in known if (source := self.world.source_of(fake)) is not None]

    # ---- tensors
    def tensor(self, value: torch.Tensor, source: Source) -> FakeTensor:
        """The fake tensor of a real one; a second way to a tensor that is one input adds only a guard."""
        known = self._by_tensor.setdefault(id(value), (value, []))[1]
        for fake in known:
            first = self.world.source_of(fake)
            if first == source:
                return fake
            if self._is_one(value, source, first, fake):
                self.world.guard(source, Kind.SAME_AS, first)
                return fake
        if has_own_dispatch(type(value)):
            raise GraphBreak("unsupported-tensor", f"a {type(value).__qualname__}, which has a __torch_dispatch__")
        with DisableTorchFunction():
            lazy = value.layout is torch.strided and (value.is_conj() or value.is_neg())
            make = self._read_lazily if lazy else self._of_subclass if is_program_subclass(value) else self._make
            fake = make(value, source)
        known.append(fake)
        self._examples[id(fake)] = value
        self.world.set_origin(fake, source)
        return fake

    # ---- states
    def learns_from(self, source: Source, left: Any) -> bool:
        """The program leaves a value where the next call finds it. Where it found another here, which was a constant, and
        leaves a symbol or another size, the policy learns that it varies; whether that is news."""
        if is_list_or_tuple(left) and len(left) <= _MOST_LEFT:
            return True in [self.learns_from(ItemSource(source, i), item) for i, item in enumerate(left)]
        found = self.world.found_at(source)
        if is_fixed_number(found):
            return self._is_symbolic(left) and self.policy.note_varies(source, type(found))
        if not is_fake(found) or not is_fake(left) or found.dim() != left.dim():
            return False
        sizes = enumerate(zip(found.shape, left.shape, strict=True))
        dims = frozenset(d for d, (n, m) in sizes if not is_symbolic(n) and n > 1 and self._is_another(n, m))
        return bool(dims) and self.policy.note_dynamic(source, found.dim(), dims)

    def _is_another(self, found: int, left: Any) -> bool:
        return self._is_symbolic(left) if is_symbolic(left) else left != found and self.policy.follows_sizes()

    def _is_symbolic(self, value: Any) -> bool:
        return is_symbolic(value) and bool(self.shape_env.simplify(self.shape_env.expr_of(value)).free)

    def _of_subclass(self, value: torch.Tensor, source: Source) -> FakeTensor:
        """The graph gets a plain tensor on the same memory; facts are asked of it too, for they run no code of the class."""
        self.world.guard(source, Kind.TYPE, type(value))
        fake = self._make(plain_tensor(value), PlainTensorSource(source))
        fake.subclass_ = type(value)
        self.world.type_lookup(type(value), "__torch_function__")  # whichever it has, and if it is the disabled one
        self.overrides.has_subclasses = True
        return fake

    def _read_lazily(self, value: torch.Tensor, source: Source) -> FakeTensor:
        """The graph gets the tensor as its memory has it, and makes the view of it."""
        kept = value.requires_grad and torch.is_grad_enabled() and not value.is_leaf
        if not is_plain_tensor(value) or value.requires_grad and not kept:
            raise GraphBreak("unsupported-tensor", "a conjugated or negated leaf, or one with a history where none is recorded")
        self.world.guard(source, Kind.TYPE, torch.Tensor)
        for name in ("is_conj", "is_neg"):
            self.world.guard(MethodSource(source, name), Kind.EQUALS, getattr(value, name)())
        self.world.guard(AttributeSource(source, "requires_grad"), Kind.EQUALS, value.requires_grad)
        if value.requires_grad:
            self.world.guard(AttributeSource(source, "is_leaf"), Kind.EQUALS, False)
        place, example = InMemorySource(source), as_in_memory(value)
        plain = self._make(example, place)
        self._examples[id(plain)] = example
        self.world.set_origin(plain, place)
        for view in lazy_views(value):
            plain = self.record(view, (plain,), {})
        return plain

    def example_of(self, fake: FakeTensor) -> torch.Tensor | None:
        """The real tensor that an input stands for."""
        return self._examples.get(id(fake))

    def tell_to_require_gradients(self, fake: FakeTensor) -> bool:
        """Whether an input may require gradients from its first use on: a parameter or a plain one that nothing was computed of."""
        one = next((one for one in self.inputs if one.fake is fake), None)
        if one is None or fake.node.users:
            return False
        if not fake.is_parameter_ and (root_of(one.source).is_held or not is_plain_tensor(one.example)):
            return False
        with DisableTorchFunction(), below_python_dispatch():
            if one.example.is_inference() or not (fake.dtype_.is_floating_point or fake.dtype_.is_complex):
                return False
            detached = one.example.detach()
            flagged = torch.nn.Parameter(detached) if fake.is_parameter_ else detached.requires_grad_()
        with DisableTorchFunction():
            fake.requires_grad_()
        self.one_if_shared(fake)
        self.told.append(fake)
        self.told_first.append(fake)
        self.inputs[self.inputs.index(one)] = dataclasses.replace(one, example=flagged)
        return True

    def told_last(self) -> dict[int, FakeTensor]:
        """By position, the leaves among the inputs that are to require gradients behind the graph, or no longer."""
        told = set(map(id, self.told))
        return {
            i: one.fake
            for i, one in enumerate(self.inputs)
            if id(one.fake) in told and one.fake.is_leaf and one.fake.requires_grad is not one.example.requires_grad
        }

    def keep_description(self, fake: FakeTensor) -> None:
        """The program moves an input to other memory: the graph is given what it was."""
        if id(fake) not in self._as_given:
            self._as_given[id(fake)] = self.mode.described_as(fake)

    def as_given(self) -> list[GraphInput]:
        """The inputs as the graph finds them."""
        given = self._as_given
        return [
            GraphInput(one.name, one.kind, given.get(id(one.fake), one.fake), one.source, one.example, one.static) for one in self.inputs
        ]

    def _make(self, value: torch.Tensor, source: Source) -> FakeTensor:
        static = is_parameter(value) or source.is_buffer
        if value.is_nested:
            raise GraphBreak("unsupported-tensor", "a nested tensor")
        if value.requires_grad and not _tells_history(value):
            raise GraphBreak("unsupported-tensor", "a view of which autograd refuses to tell the history")
        if torch.nn.parameter.is_lazy(value):
            raise Unsupported("the first call of a lazy module, which makes its parameters", kind="lazy-module")
        sizes, strides = tuple(value.shape), tuple(value.stride()) if value.layout is torch.strided else ()
        dims: tuple[Any, ...] = self.policy.held_dims(source, value) if static else self.policy.tensor_dims(source, value)
        try:
            fake_sizes = tuple(self._size(sizes, d, source, i) for i, d in enumerate(dims))
            fake_strides = self._strides(sizes, strides, fake_sizes, source)
            fake = self.mode.from_real(value, sizes=fake_sizes, strides=fake_strides)
            fake.subclass_ = type(value) if is_own_parameter(type(value)) else None
        except Unsupported as error:
            raise GraphBreak("unsupported-tensor", str(error)) from None
        self._guard(value, source, fake_sizes, fake_strides)
        node = self._placeholder(source, fake)
        fake.node = node
        static = static and not any(map(is_symbolic, fake_sizes))
        self.inputs.append(GraphInput(node.name, "tensor", fake, source, value, static))
        return fake

    def drawn_tensor(self, example: torch.Tensor, source: Source, sizes: Sequence[Any] | None = None) -> FakeTensor:
        """A tensor that the entry makes behind its guards, without gaps, always of this size or of these sizes."""
        fake = self.mode.from_real(example, sizes, None if sizes is None else row_major_strides(sizes))
        fake.node = self._placeholder(source, fake)
        self.inputs.append(GraphInput(fake.node.name, "tensor", fake, source, example, sizes is None))
        self.world.set_origin(fake, source)
        return fake

    def _size(self, sizes: tuple[int, ...], how: Any, source: Source, dim: int) -> int | torch.SymInt:
        lo, hi, size = None, None, sizes[dim]
        if callable(how):
            return self.wrap(how(self.shape_env))  # type: ignore[no-any-return]
        if isinstance(how, tuple):
            how, lo, hi = how
        if how == "static":
            return size
        if how == "unbacked":
            return self._unbacked_size(source, dim, lo, hi)
        marked, before = how == "marked", self.policy.first_size(source, len(sizes), dim)
        expr = self.shape_env.create_symbol(
            size, SizeSource(source, dim), lo=lo, hi=hi, must_stay_dynamic=marked, before=before
        )
        return self.wrap(expr)  # type: ignore[no-any-return]

    def _unbacked_size(self, source: Source, dim: int, lo: int | None, hi: int | None) -> int | torch.SymInt:
        symbol = self.shape_env.create_unbacked_input(SizeSource(source, dim), f"{source.describe()}.size({dim})")
        if lo is not None:
            self.shape_env.expect_true(symbol.ge(lo))
        if hi is not None:
            self.shape_env.expect_true(symbol.le(hi))
        number: int | torch.SymInt = self.wrap(symbol)
        return number

    def _strides(
        self, sizes: tuple[int, ...], strides: tuple[int, ...], fake: tuple[Any, ...], source: Source
    ) -> tuple[Any, ...]:
        """Strides in terms of symbolic sizes where the tensor is dense. One with a gap is what it was at all earlier
        captures, a symbol if it was something else, and at first a number if the sizes inside it are.
        """
        out: list[Any] = [None] * len(strides)
        # Equal strides come from dimensions of size 1: the outer one (more elements inside) is visited last.
        order = sorted(range(len(strides)), key=lambda i: (strides[i], sizes[i] != 1, -i))
        real, expected = 1, 1
        for i in order:
            stride = strides[i]
            times = stride // real if real and stride > 0 and stride % real == 0 else None
            how = "static"
            if times != 1 and stride > 1 and sizes[i]:
                how = self.policy.stride(source, (len(sizes), i), stride, times)
            if times is not None and (times == 1 or how == "multiple"):
                out[i] = expected * times
            elif how == "static" or (how == "dynamic" and not is_symbolic(expected)):
                out[i] = stride
            else:
                out[i] = self.wrap(self.shape_env.create_symbol(stride, StrideSource(source, i), duck=False))
            real, expected = strides[i] * sizes[i], out[i] * fake[i]
        return tuple(out)

    def _guard(self, value: torch.Tensor, source: Source, sizes: tuple[Any, ...], strides: tuple[Any, ...]) -> None:
        if not self.world.is_asked:
            return

        def fixed(values: tuple[Any, ...]) -> tuple[int | None, ...]:
            return tuple(None if is_symbolic(v) else v for v in values)

        facts = TensorFacts(
            cls=type(value),
            dtype=value.dtype,
            device=value.device,
            requires_grad=value.requires_grad,
            sizes=fixed(sizes),
            strides=fixed(strides),
            is_leaf=value.is_leaf if value.requires_grad and not is_parameter(value) else None,
        )
        self.world.guard(source, Kind.TENSOR, facts)
        for dim, stride in enumerate(strides):
            if is_symbolic(stride):
                self.world.guard(StrideSource(source, dim), Kind.EXPRESSION, self.shape_env.expr_of(stride))

    def _placeholder(self, source: Source, value: Any) -> fx.Node:
        self._last_placeholder = placeholder_behind(self._last_placeholder, self.graph, self._fresh_name(source), value)
        return self._last_placeholder

    def _fresh_name(self, source: Source) -> str:
        base = _OTHERS.sub("_", source.describe()).strip("_")[-60:].lstrip("_0123456789") or "x"
        name, number = base, 0
        while name in self._names or keyword.iskeyword(name):
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        return name

    # ---- numbers
    def scalar(self, value: int | float, source: Source) -> Any:
        """A number read from outside: itself under an equality guard, or symbolic."""
        if not self.number_varies(value, source):
            self.world.guard(source, Kind.EQUALS, value)
            return value
        self.world.guard(source, Kind.NUMBER_TYPE, type(value))
        return self.symbolic(value, source)

    def number_varies(self, value: int | float, source: Source) -> bool:
        return _FITS.of(value)(value) and self.policy.scalar(source, value, self.world.is_of_module(source)) != "static"

    def symbolic(self, value: int | float, source: Source, least: int = -(2**62)) -> Any:
        """A number that varies, under no guard of its own."""
        kind = _KIND.of(value)
        lo = least if kind is int else None
        return self.wrap(self.shape_env.create_symbol(value, source, kind=kind, lo=lo, duck=False))

    def item(self, fake: FakeTensor) -> Any:
        """The element of a 0-d input in main memory, as if the caller had passed the number; None where the graph is to
        read it.
        """
        value = self._examples.get(id(fake))
        if (
            value is None
            or value.dim()
            or fake.device_.type != "cpu"
            or self.mode.writes
            or value.dtype not in _NUMERIC
        ):
            return None
        source = self._only_of(fake)
        if source not in self._items:
            with DisableTorchFunction(), below_python_dispatch():
                number = value.item()
            if not self.policy.element(source, number):
                return None
            return self._element(fake, number, source)
        return self._items[source]

    def has_elements(self, fake: FakeTensor) -> bool:
        """Whether guards may look at the elements of an input, a tensor of few integers."""
        value = self._examples.get(id(fake))
        if (
            value is None
            or value.dtype not in _INTEGERS
            or value.device.type not in READABLE
            or value.numel() > MOST_ELEMENTS
        ):
            return False
        if self.mode.writes and not self.is_apart_from_written(fake):
            return False
        return self.policy.elements(self._list_of(fake), _elements(value))

    def elements(self, fake: FakeTensor) -> list[Any]:
        """The elements of such an input in order, as if the caller had passed the numbers."""
        value, source = self._examples[id(fake)], self._list_of(fake)
        if source not in self._items:
            places = itertools.product(*map(range, value.shape))
            sources = [_item(source, place) for place in places] if value.dim() else [self._only_of(fake)]
            numbers = zip(sources, _elements(value)[1], strict=True)
            self._items[source] = [self._element(fake, number, one) for one, number in numbers]
        found: list[Any] = self._items[source]
        return found

    def _element(self, fake: FakeTensor, number: int | float, source: Source) -> Any:
        """An element as a number that varies. Those of a module's buffer configure it: they are constants until they change,
        as its Python numbers are.
        """
        if source not in self._items:
            place = self.world.place_of(fake)
            fixed = is_int(number) and place.is_buffer and self.world.guarded
            if fixed and self.policy.scalar(source, number, configures=True) == "static":
                self.world.guard(source, Kind.EQUALS, number)
                self._fixed.append((fake, source))
                self._items[source] = number
            else:
                self._items[source] = self.symbolic(number, source, -(2**63))
        return self._items[source]

    def check_fixed(self) -> None:
        """A buffer that the program writes, such as a counter, will change: its elements were no constants."""
        written = [self.policy.note_varies(source, int) for fake, source in self._fixed if is_written(fake)]
        if any(written):
            raise StartAgain

    def take_elements(self) -> None:
        """Elements in terms of which sizes of tensors are known become inputs, though no call was given them."""
        given = {
            symbol for one in self._items.values() for n in several(one) for symbol in self.shape_env.expr_of(n).free
        }
        if given:
            known = self.shape_env.facts.replacements.values()
            for symbol in sorted({s for e in known for s in e.free} & given, key=str):
                self.symbol_node(symbol)

    def _only_of(self, fake: FakeTensor) -> Source:
        return MethodSource(self.world.place_of(fake), "item")

    def _list_of(self, fake: FakeTensor) -> Source:
        return MethodSource(self.world.place_of(fake), "tolist")

    def wrap(self, expr: Expr) -> Any:
        """The number of an expression; its symbols become inputs when the graph first uses them."""
        return self.shape_env.wrap(expr)

    def symbol_node(self, symbol: Symbol) -> fx.Node:
        """The placeholder that carries a symbol's value."""
        node = self.node_of_symbol.get(symbol)
        if node is None:
            if symbol not in self.shape_env.sources:
                raise GraphBreak("data-dependent", f"the number {symbol} comes from another part of the program")
            source: Source = self.shape_env.sources[symbol][0]
            fake = self.shape_env.wrap(symbol)
            node = self._placeholder(source, fake)
            self.node_of_symbol[symbol] = node
            example = self.shape_env.hint(symbol)
            self.inputs.append(GraphInput(node.name, "symbol", fake, source, 2 if example is None else example))
        return node


def placeholder_behind(last: fx.Node | None, graph: fx.Graph, name: str, value: Any) -> fx.Node:
    """A new placeholder behind the earlier ones (computation may already have been recorded after them)."""
    with graph.inserting_before(None) if last is None else graph.inserting_after(last):
        node = append_placeholder(graph, name)
    node.meta["val"] = value
    return node


def _tells_history(value: torch.Tensor) -> bool:
    """Not so of a view made in inference mode whose memory was written outside."""
    try:
        return value.is_leaf in (True, False)
    except RuntimeError:
        return False

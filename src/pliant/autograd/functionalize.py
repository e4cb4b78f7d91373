"""Record a program's ATen calls as a functional graph: views and writes become values.

In:     ATen calls on fakes, as they arrive below autograd (`FunctionalMode` is the dispatch mode).
Out:    nodes in `FunctionalMode.graph`, `meta["val"]` on each; `read(fake.node)` is the node of a tensor's present
        value.
Holds:  the graph writes nothing. A write to a view goes through the chain of views to its base; other views of the
        base are made again when they are next read. A base's value has the strides of the base's own tensor.
Reads on: `call_kinds.py` (what each kind of call becomes), `aliases.py`, `scatter.py` (writes through views), `joint.py`.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from pliant import config
from pliant.autograd.aliases import COMPUTED, Alias, Base, alias_of, is_identity
from pliant.autograd.call_kinds import handler_of
from pliant.autograd.copies_in_doubt import CopiesInDoubt
from pliant.autograd.functional_ops import check_unseen
from pliant.autograd.history import Hook, functions_between, gradient_of, saves
from pliant.autograd.scatter import placed, write_through
from pliant.autograd.views import ViewStep
from pliant.background import give_way
from pliant.graph.call_plan import CallPlan
from pliant.graph.fake_mode import FakeMode
from pliant.graph.fake_tensor import FakeTensor, tensor_of_number
from pliant.graph.tensor_spec import same_known
from pliant.graph.unbacked import bindings_of
from pliant.symbolic.expr import Float
from pliant.symbolic.shape_env import ShapeEnv
from pliant.symbolic.traverse import substitute
from pliant.torch_adapter import OpOverload, append_node

_aten = torch.ops.aten
_COUNTS = frozenset({_aten.arange.default, _aten.arange.start, _aten.arange.start_step})


class FunctionalMode(FakeMode):  # type: ignore[no-untyped-call]  # torch's base has no types
    """The dispatch mode. `origin`, `stage`: noted on every node that is recorded while they are set. `differentiated`: tells
    the call whose derivative is traced, which is noted where somebody asks."""

    hands_on_sparse = True  # gradients; nothing else reads them (`joint.py`)

    def __init__(self, shape_env: Any, graph: fx.Graph) -> None:
        super().__init__(shape_env, allow_unbacked=True)
        self.graph = graph
        self.bitwise = config.get().bitwise
        self.stage = "forward"
        self.origin: Any = None
        self.differentiated: Callable[[], Any] | None = None
        self.constants: dict[int, tuple[torch.Tensor, FakeTensor]] = {}
        self.asked: list[tuple[Any, list[Any]]] = []  # for gradients: the node that does, what it leads through
        self.freed: set[Any] = set()  # functions that cannot run again: what they saved is gone
        self.written: list[tuple[Base, Any, bool]] = []  # what, by which node, whether its version shows it
        self.hooks: list[Hook] = []
        self.views: list[FakeTensor] = []
        self.in_doubt = CopiesInDoubt(shape_env.statically_known) if shape_env is not None and shape_env.takes_copies else None
        self.last_primal: fx.Node | None = None  # constants become placeholders after this one

    def close(self) -> None:
        """Nothing is recorded from here on. Tensors that autograd's nodes save hold the mode, unseen by garbage
        collection: it must not lead back to them. Nor must they themselves: a result that is saved is a view of it."""
        for view in self.views:
            view.node = None
        self.views.clear()
        self.graph, self.origin, self.differentiated, self.last_primal = fx.Graph(), None, None, None
        self.constants.clear()
        self.asked.clear()
        self.freed.clear()
        self.written.clear()
        self.hooks.clear()
        self.in_doubt = None

    def note_uncounted(self, plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """What is written is told by `write`."""

    def note_hook(self, tensor: FakeTensor) -> None:
        self.hooks.append(Hook(self.origin, gradient_of(tensor)))

    def note_gradients(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], keep: bool) -> bool:
        path = functions_between(outputs, inputs)
        self.asked.append((self.origin, path))
        if not keep:
            self.freed.update(filter(saves, path))
        return True  # other gradients are asked for behind the program's

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        give_way()
        func, args, kwargs = tensor_of_number(func, args, kwargs or {})
        env = self.shape_env
        if env is not None and env.lent is not None:
            args = _settled(env, func, args)
        handler = handler_of(func)
        return handler(self, func, args, kwargs)

    # -- recording ----------------------------------------------------------------------------------------------------
    def emit(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> fx.Node:
        """A node for a call on nodes whose results are the fakes `outputs`."""
        node = append_node(self.graph, "call_function", func, args, kwargs, _name(func))
        meta = node.meta
        meta["val"] = outputs
        meta["stage"] = self.stage
        env = self.shape_env
        if env is not None and env.fresh:
            meta.update(_bound(env, outputs))
        if self.origin is not None:
            meta["origin"] = self.origin
            if "recompute" in self.origin.meta:  # in an activation checkpoint
                meta["recompute"] = self.origin.meta["recompute"]
        elif self.differentiated is not None:
            meta["derivative_of"] = self.differentiated()
        return node

    def note_data(self, alone: Any) -> None:
        if type(alone) is FakeTensor:  # not so in transforms
            alias_of(alone).count_alone()

    def value_key(self, fake: FakeTensor) -> Any:
        return self.read(alias_of(fake))

    def check(self, target: Any, *args: Any) -> None:
        """Record a check of unbacked symbols."""
        self.emit(target, args, {}, None)

    def call(self, func: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Record a call on nodes, computing its description."""
        fakes = tuple(a.meta["val"] if type(a) is fx.Node else a for a in args)
        return self.emit(func, args, kwargs, self.compute(func, fakes, kwargs))

    def bind(self, node: fx.Node, outputs: Any) -> None:
        """Make each tensor of `outputs` a new base whose value is the node, or an item of it."""
        if type(outputs) is FakeTensor:
            outputs.node = self._made(node, outputs)
        elif isinstance(outputs, (list, tuple)):
            for index, output in enumerate(outputs):
                if type(output) is FakeTensor or isinstance(output, (list, tuple)):
                    self.bind(self.item(node, index, output), output)

    def _made(self, node: fx.Node, fake: FakeTensor) -> Alias:
        alias = _new_base(node, fake)
        alias.base.inference = self.origin is not None and bool(self.origin.meta.get("inference"))
        return alias

    def item(self, node: fx.Node, index: int, output: Any) -> fx.Node:
        """The node of one of a node's results."""
        return self.emit(operator.getitem, (node, index), {}, output)

    def lower(self, value: Any) -> Any:
        """An argument with nodes in place of tensors."""
        kind = type(value)
        if kind is FakeTensor:
            return self.read(alias_of(value))
        if kind is bool or value is None:
            return value
        if isinstance(value, (list, tuple)):
            return [self.lower(v) for v in value]
        if isinstance(value, torch.Tensor):
            return self.read(self.constant(value).node)
        return self._as_lent(value) if kind is float or kind is int or kind is torch.SymFloat else value

    def _as_lent(self, number: Any) -> Any:
        """A number with the symbols in it that C++ was lent plain ones for."""
        if (env := self.shape_env) is None or not env.loans:
            return number
        if type(number) is not torch.SymFloat:
            return number if (e := env.loans.get((type(number), number))) is None else env.wrap(e)
        e = env.expr_of(number)
        given = substitute(e, {Float(lent): symbol for (kind, lent), symbol in env.loans.items() if kind is float})
        return number if given is e else env.wrap(given)

    def lower_all(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        lower = self.lower
        return tuple([lower(a) for a in args]), {k: lower(v) for k, v in kwargs.items()}

    def constant(self, tensor: torch.Tensor) -> FakeTensor:
        """The fake of a real tensor that the program holds: a further input of the graph."""
        known = self.constants.get(id(tensor))
        if known is not None:
            return known[1]
        fake = self.from_real(tensor.detach())
        before = self.last_primal.next if self.last_primal is not None else next(iter(self.graph.nodes), None)
        with self.graph.inserting_before(before) if before is not None else contextlib.nullcontext():
            node = self.last_primal = self.graph.placeholder(f"constant_{len(self.constants)}")
        node.meta.update(val=fake, stage="forward")
        fake.node = _new_base(node, fake)
        self.constants[id(tensor)] = (tensor, fake)
        return fake

    # -- values -------------------------------------------------------------------------------------------------------
    def read(self, alias: Alias) -> fx.Node:
        """The node of the alias's present value; views that are out of date are made again."""
        base = alias.base
        if self.in_doubt is not None:
            self.in_doubt.note_read(alias)
        if alias.version != base.version:
            alias.node = self._made_again(alias)
            alias.version = base.version
        return alias.node

    def _made_again(self, alias: Alias) -> fx.Node:
        if alias.parent is None:
            return alias.base.node
        step = alias.step
        assert step is not None
        parent = self.read(alias.parent)
        if is_identity(step):
            return parent
        if step.index is None:
            func = COMPUTED.get(step.func, step.func)
            args = placed(step.func, step.args, alias.base, parent)
            return self.call(func, parent, *args, **step.kwargs)  # the value before may lie otherwise
        whole = self.call(step.func, parent, *step.args, **step.kwargs)
        return self.item(whole, step.index, whole.meta["val"][step.index])

    def view(self, output: FakeTensor, parent: Alias, step: ViewStep, node: fx.Node) -> None:
        """Make `output` the view of `parent` by `step`, whose value now is `node`."""
        version = parent.base.version
        output.node = Alias(parent.base, parent, step, output, node, version, born=version)
        self.views.append(output)

    def write(self, target: FakeTensor, value: fx.Node, counted: bool = True, is_kept: bool = True) -> None:
        """Give a tensor a new value, and with it everything that shares its memory. `counted`: its version shows it; `is_kept`:
        derivatives may read it."""
        alias = alias_of(target)
        value = self._fitted(target, value)
        own, base, place, whole = value, alias.base, alias, True
        while place.parent is not None:
            assert place.step is not None
            whole = whole and is_identity(place.step)
            counted = counted and place.step.counted
            value = write_through(self, place.step, place.parent, value)
            place = place.parent
        if not counted:
            check_unseen(base.node, self.origin)
        self.written.append((base, self.origin, counted or not is_kept))
        if self.in_doubt is not None:
            self.in_doubt.note_write(base)
        base.node = self._restrided(base, value)
        base.version += 1
        base.counted = base.version if counted else base.counted
        if whole or self._lies_as(own, target):
            alias.node, alias.version = (base.node if whole else own), base.version
        # else it is seen anew: random numbers come in the order of memory

    def _lies_as(self, value: fx.Node, target: FakeTensor) -> bool:
        """Whether operators do the same to the value as to the target. Eager's may compute the end of a row otherwise than what
        fills vectors, so for its bits rows begin as far apart."""
        found: FakeTensor = value.meta["val"]
        return _order(found) == _order(target) and (not self.bitwise or same_known(found.stride_, target.stride_))

    def _fitted(self, target: FakeTensor, value: fx.Node) -> fx.Node:
        """The value in the target's dtype; a different shape is the error that eager raises."""
        found: FakeTensor = value.meta["val"]
        if found.dtype_ != target.dtype_:
            if not torch.can_cast(found.dtype_, target.dtype_):
                raise RuntimeError(f"result type {found.dtype_} can't be cast to the desired output type {target.dtype_}")
            value = self.call(_aten._to_copy.default, value, dtype=target.dtype_)
        if not same_numbers(found.size_, target.size_):
            raise RuntimeError(
                f"output with shape {list(target.size_)} doesn't match the broadcast shape {list(found.size_)}"
            )
        return value

    def _restrided(self, base: Base, value: fx.Node) -> fx.Node:
        """The value laid out as the base's own tensor, so that views by strides mean the same."""
        wanted, found = base.fake, value.meta["val"]
        if same_known(wanted.stride_, found.stride_):
            return value
        return self.laid_out(value, wanted)

    def laid_out(self, value: fx.Node, like: FakeTensor) -> fx.Node:
        """The value with the strides of `like`: a dense copy in the order of its dimensions, else written into a
        template.
        """
        order = _order(like)
        expected: Any = 1
        for dim in reversed(order):
            if not same_known((like.stride_[dim],), (expected,)):
                return self._by_template(value, like)
            expected = expected * like.size_[dim]
        if order == list(range(len(order))):
            return self.call(_aten.clone.default, value, memory_format=torch.contiguous_format)
        ordered = self.call(_aten.permute.default, value, order)
        dense = self.call(_aten.clone.default, ordered, memory_format=torch.contiguous_format)
        return self.call(_aten.permute.default, dense, [order.index(d) for d in range(len(order))])

    def _by_template(self, value: fx.Node, like: FakeTensor) -> fx.Node:
        size, stride = list(like.size_), list(like.stride_)
        room = self.call(_aten.empty_strided.default, size, stride, dtype=like.dtype_, device=like.device_)
        described = self.new(like.size_, like.stride_, like.dtype_, like.device_)
        return self.emit(_aten.as_strided_scatter.default, (room, value, size, stride, 0), {}, described)


def _settled(env: ShapeEnv, func: Any, args: Sequence[Any]) -> Sequence[Any]:
    """The arguments of the first operator after C++ was lent a number: only an index of all elements takes it as it is."""
    if func in _COUNTS:
        return env.settle(args)
    env.settle()
    return args


def _order(fake: FakeTensor) -> list[int]:
    """Dimensions from the one with the largest stride inwards."""
    return sorted(range(len(fake.size_)), key=lambda d: _hint(fake.stride_[d]), reverse=True)


def _hint(number: Any) -> int:
    if type(number) is int:
        return number
    hint = number.node.hint
    return 0 if hint is None else int(hint)


def _bound(env: ShapeEnv, outputs: Any) -> dict[str, Any]:
    """What to note on a node with these outputs: which of the unbacked symbols made just now it defines."""
    found = bindings_of(env.fresh, outputs)
    env.fresh = [s for s in env.fresh if all(s is not one.symbol for one in found)]
    return {"binds": found} if found else {}


@functools.cache
def _name(func: Any) -> str:
    """What its nodes are called: the operator's name."""
    return func._schema.name.split("::")[-1] if isinstance(func, OpOverload) else func.__name__


def _new_base(node: fx.Node, fake: FakeTensor, input: int | None = None) -> Alias:
    return Alias(Base(node, fake, 0, input), None, None, fake, node, 0)


def new_input(node: fx.Node, fake: FakeTensor, position: int) -> None:
    """Make `fake` the tensor of an input's storage."""
    fake.node = _new_base(node, fake, position)


def same_numbers(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether the numbers are the same; asks the shape environment where that is not plain to see."""
    return len(one) == len(other) and (same_known(one, other) or all(bool(a == b) for a, b in zip(one, other)))

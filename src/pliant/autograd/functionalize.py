"""Record a program's ATen calls as a functional graph: views and writes become values.

In:     ATen calls on fakes, as they arrive below autograd (`FunctionalMode` is the dispatch mode).
Out:    nodes in `FunctionalMode.graph`, `meta["val"]` on each; `read(fake.node)` is the node of a tensor's present
        value.
Holds:  the graph writes nothing. A write to a view goes through the chain of views to its base; other views of the
        base are
        made again when they are next read. A base's value has the strides of the base's own tensor.
Reads on: `aliases.py`, `scatter.py` (writes through views), `functional_ops.py` (counterparts of writing operators),
`joint.py`.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from pliant.autograd import pooling
from pliant.autograd.aliases import COMPUTED, IDENTITY_VIEWS, Alias, Base, ViewStep
from pliant.autograd.functional_ops import FunctionalCall, UnsupportedMutation, check_unseen, functional_call
from pliant.autograd.history import Hook, freed_functions, functions_between, gradient_of
from pliant.autograd.scatter import placed, write_through
from pliant.errors import InternalError
from pliant.graph import collectives
from pliant.graph.call_plan import argument, decomposed, plan_of
from pliant.graph.concrete_sizes import QUESTIONS
from pliant.graph.fake_tensor import FakeMode, FakeTensor, counting_as, tensor_of_number
from pliant.graph.passes.purity import memory_root
from pliant.graph.tensor_spec import same_known
from pliant.graph.unbacked import bindings_of
from pliant.symbolic.shape_env import ShapeEnv
from pliant.torch_adapter import OpOverload, append_node

_aten = torch.ops.aten
_COUNTS = frozenset({_aten.arange.default, _aten.arange.start, _aten.arange.start_step})
Handler = Callable[["FunctionalMode", Any, Sequence[Any], dict[str, Any]], Any]


class FunctionalMode(FakeMode):  # type: ignore[no-untyped-call]  # torch's base has no types
    """The dispatch mode. `origin`, `stage`: noted on every node that is recorded while they are set."""

    def __init__(self, shape_env: Any, graph: fx.Graph) -> None:
        super().__init__(shape_env, allow_unbacked=True)
        self.graph = graph
        self.stage = "forward"
        self.origin: Any = None
        self.constants: dict[int, tuple[torch.Tensor, FakeTensor]] = {}
        self.asked: list[tuple[Any, list[Any]]] = []  # for gradients: the node that does, what it leads through
        self.freed: set[Any] = set()  # functions that cannot run again
        self.written: list[tuple[Base, Any]] = []  # what was written, and the node that did
        self.hooks: list[Hook] = []
        self.views: list[FakeTensor] = []
        self.last_primal: fx.Node | None = None  # constants become placeholders after this one

    def close(self) -> None:
        """Nothing is recorded from here on. Tensors that autograd's nodes save hold the mode, unseen by garbage
        collection: it must not lead back to them. Nor must they themselves: a result that is saved is a view of it."""
        for view in self.views:
            view.node = None
        self.views.clear()
        self.graph, self.origin, self.last_primal = fx.Graph(), None, None
        self.constants.clear()
        self.asked.clear()
        self.freed.clear()
        self.written.clear()
        self.hooks.clear()

    def note_hook(self, tensor: FakeTensor) -> None:
        self.hooks.append(Hook(self.origin, gradient_of(tensor)))

    def note_gradients(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], keep: bool) -> None:
        path = functions_between(outputs, inputs)
        self.asked.append((self.origin, path))
        if not keep:
            self.freed.update(freed_functions(outputs, path))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        func, args, kwargs = tensor_of_number(func, args, kwargs or {})
        env = self.shape_env
        if env is not None and env.lent is not None:
            args = _settled(env, func, args)
        handler = _handlers.get(func) or _classify(func)
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
        return node

    def note_saved(self, fake: FakeTensor, gradients: Sequence[Any]) -> None:
        given = [g for g in gradients if g is not None]
        if all(type(g) is FakeTensor for g in given):  # not so in transforms
            meta = memory_root(self.read(_alias_of(fake))).meta
            meta["eager_saves"] = True
            meta["kept_for"] = [*meta.get("kept_for", ()), *(self.read(_alias_of(g)) for g in given)]

    def value_key(self, fake: FakeTensor) -> Any:
        return self.read(_alias_of(fake))

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
                if type(output) is FakeTensor:
                    output.node = self._made(self.item(node, index, output), output)

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
            return self.read(_alias_of(value))
        if isinstance(value, (list, tuple)):
            return [self.lower(v) for v in value]
        if isinstance(value, torch.Tensor):
            return self.read(self.constant(value).node)
        if kind is float and (env := self.shape_env) is not None and (number := env.loans.get(value)) is not None:
            return env.wrap(number)
        return value

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
        if step.is_identity:
            return parent
        if step.index is None:
            func = COMPUTED.get(step.func, step.func)
            args = placed(step.func, step.args, alias.base, parent)
            return self.emit(func, (parent, *args), step.kwargs, alias.node.meta["val"])
        whole = self.call(step.func, parent, *step.args, **step.kwargs)
        return self.item(whole, step.index, whole.meta["val"][step.index])

    def view(self, output: FakeTensor, parent: Alias, step: ViewStep, node: fx.Node) -> None:
        """Make `output` the view of `parent` by `step`, whose value now is `node`."""
        version = parent.base.version
        output.node = Alias(parent.base, parent, step, output, node, version, born=version)
        self.views.append(output)

    def write(self, target: FakeTensor, value: fx.Node, counted: bool = True) -> None:
        """Give a tensor a new value, and with it everything that shares its memory. `counted`: its version shows it."""
        alias = _alias_of(target)
        value = self._fitted(target, value)
        own, base, place, whole = value, alias.base, alias, True
        while place.parent is not None:
            assert place.step is not None
            whole = whole and place.step.is_identity
            counted = counted and place.step.counted
            value = write_through(self, place.step, place.parent, value)
            place = place.parent
        if not counted:
            check_unseen(base.node, self.origin)
        base.counted = base.counted or counted
        self.written.append((base, self.origin))
        base.node = self._restrided(base, value)
        base.version += 1
        alias.node, alias.version = (base.node if whole else own), base.version

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
        order = sorted(range(len(like.size_)), key=lambda d: _hint(like.stride_[d]), reverse=True)
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


def _alias_of(fake: FakeTensor) -> Alias:
    alias = fake.node
    if type(alias) is not Alias:
        raise InternalError("a fake tensor of another trace reached this one", kind="functionalize")
    return alias


def same_numbers(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether the numbers are the same; asks the shape environment where that is not plain to see."""
    return len(one) == len(other) and (same_known(one, other) or all(bool(a == b) for a, b in zip(one, other)))


# ---------------------------------------------------------------------------------------------------- kinds of calls


def _pure(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    outputs = mode.compute(func, args, kwargs)
    node_args, node_kwargs = mode.lower_all(args, kwargs)
    mode.bind(mode.emit(func, node_args, node_kwargs, outputs), outputs)
    return outputs


def _view(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The first argument is what is viewed."""
    source = args[0] if type(args[0]) is FakeTensor else mode.constant(args[0])
    alias = _alias_of(source)
    with counting_as(source):
        outputs = mode.compute(func, (source, *args[1:]), kwargs)
    if outputs is source:
        return outputs
    if func is _aten.as_strided.default:  # it looks at the storage, whatever view it is called on
        size, stride = args[1], args[2]
        args, kwargs, alias = (source, size, stride, outputs.offset_), {}, _storage(source, alias)
    rest, grad = tuple(args[1:]), torch.is_grad_enabled()
    if func in IDENTITY_VIEWS:
        mode.view(outputs, alias, ViewStep(func, rest, kwargs, None, grad), mode.read(alias))
        return outputs
    if func in COMPUTED or source.spec.lazy:  # a node's value is the elements as they are read
        node = mode.call(COMPUTED.get(func, func), mode.read(alias), *rest, **kwargs)
    else:
        viewed = mode.read(alias)
        node = mode.emit(func, (viewed, *placed(func, rest, alias.base, viewed)), kwargs, outputs)
    if type(outputs) is FakeTensor:
        mode.view(outputs, alias, ViewStep(func, rest, kwargs, None, grad), node)
        return outputs
    for index, output in enumerate(outputs):
        item = mode.item(node, index, node.meta["val"][index])
        mode.view(output, alias, ViewStep(func, rest, kwargs, index, grad), item)
    return outputs


def _storage(source: FakeTensor, alias: Alias) -> Alias:
    """All that a tensor's memory holds, detached from its history if the tensor is, and counting writes as it does."""
    root, counted = alias.root(), all(step.counted for step in alias.steps())
    if counted and (source.requires_grad or not root.fake.requires_grad):
        return root
    step = ViewStep(_aten.detach.default, (), {}, None, True, counted)
    return Alias(root.base, root, step, source, root.node, root.version)


def _write(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    call = functional_call(func)
    targets = [argument(key, args, kwargs) for key in call.plan.written]
    given_args, given_kwargs = _arguments(call, args, kwargs)
    outputs = mode.compute(call.func, given_args, given_kwargs)
    node_args, node_kwargs = mode.lower_all(given_args, given_kwargs)
    node = mode.emit(call.func, node_args, node_kwargs, outputs)
    results = [(node, outputs)]
    if len(call.func._schema.returns) > 1:
        results = [(mode.item(node, i, output), output) for i, output in enumerate(outputs)]
    for result, output in results[: call.fresh]:
        mode.bind(result, output)
    for target, (result, output) in zip(targets, results[call.fresh :]):
        _write_result(mode, target, result, output, call.counted)
    return _returned(call, args, kwargs, [output for _, output in results[: call.fresh]])


def _write_result(mode: FunctionalMode, target: Any, result: fx.Node, output: Any, counted: bool) -> None:
    if target is None:
        return
    if isinstance(target, (list, tuple)):
        for index, (one, value) in enumerate(zip(target, output)):
            mode.write(one, mode.item(result, index, value), counted)
    else:
        mode.write(target if type(target) is FakeTensor else mode.constant(target), result, counted)


def _arguments(
    call: FunctionalCall, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the functional operator is given: everything, or everything but the tensors to write."""
    for position, name, default in call.defaults:
        if position >= len(args) and name not in kwargs:
            kwargs = {**kwargs, name: default}
    if call.keeps_written:
        return tuple(args), kwargs
    positions = {position for position, _ in call.plan.written}
    names = {name for _, name in call.plan.written}
    return (
        tuple(a for i, a in enumerate(args) if i not in positions),
        {k: v for k, v in kwargs.items() if k not in names},
    )


def _returned(call: FunctionalCall, args: Sequence[Any], kwargs: dict[str, Any], fresh: list[Any]) -> Any:
    """What the program gets back: fresh results, and the written arguments themselves."""
    rest = iter(fresh)
    found = [next(rest) if key is None else argument(key, args, kwargs) for key in call.plan.returned]
    if not found:
        return None
    return found[0] if len(found) == 1 else tuple(found)


def _composite(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    with mode:
        outputs = decomposed(func, args, kwargs)
    return _by_schema(func)(mode, func, args, kwargs) if outputs is NotImplemented else outputs


# ---------------------------------------------------------------------------------------------------- special calls


def _copy(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`target.copy_(source)`: the source is the new value, cast and expanded."""
    target, source = args[0], args[1]
    if type(source) is not FakeTensor:
        source = mode.constant(source)
    value = mode.read(_alias_of(source))
    if source.dtype_ != target.dtype_ or source.device_ != target.device_:
        value = mode.call(_aten._to_copy.default, value, dtype=target.dtype_, device=target.device_)
    if not same_known(source.size_, target.size_):
        value = mode.call(_aten.expand.default, value, list(target.size_))
    mode.write(target, value)
    return target


def _lift_fresh(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`torch.tensor(...)`: a number becomes `full`, larger data an input of the graph."""
    tensor = args[0]
    if type(tensor) is FakeTensor:
        return _view(mode, func, args, kwargs)
    if tensor.numel() != 1 or tensor.device.type != "cpu":
        return _view(mode, func, (mode.constant(tensor),), kwargs)
    output = mode.compute(func, args, kwargs)
    described = {"dtype": tensor.dtype, "device": tensor.device}
    mode.bind(mode.emit(_aten.full.default, (list(tensor.shape), tensor.item()), described, output), output)
    return output


def _batch_norm(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`native_batch_norm` writes its running statistics although its schema does not say so."""
    if args[3] is None or not args[5]:
        return _pure(mode, func, args, kwargs)
    functional = _aten._native_batch_norm_legit_functional.default
    outputs = mode.compute(functional, args, kwargs)
    node_args, node_kwargs = mode.lower_all(args, kwargs)
    node = mode.emit(functional, node_args, node_kwargs, outputs)
    mode.bind(node, outputs)
    for target, output in zip(args[3:5], outputs[3:]):
        mode.write(target, output.node.node)
    return outputs[:3]


def _cudnn_batch_norm(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A library's form of the same: it keeps what its own backward wants, which is not used here."""
    with mode:
        room = torch.empty(0, dtype=torch.uint8, device=args[0].device_)
    return (*_batch_norm(mode, _aten.native_batch_norm.default, args, kwargs), room)


def _cudnn_batch_norm_backward(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, grad, weight, _, _, mean, inverse_deviation, eps, _ = args
    asked = [True, weight is not None, weight is not None]
    given = (grad, x, weight, None, None, mean, inverse_deviation, True, eps, asked)
    return _batch_norm_backward(mode, _aten.native_batch_norm_backward.default, given, kwargs)


def _batch_norm_backward(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """In training the running statistics are not read: passing none of them saves copies of what the forward wrote."""
    if args[7]:
        args = (*args[:3], None, None, *args[5:])
    return _pure(mode, func, args, kwargs)


def _bernoulli(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Drawn in the order of positions, where `bernoulli_`, which becomes the same operator, draws in that of memory."""
    like = args[0]
    with mode:
        rowmajor = torch.empty(like.size_, dtype=like.dtype_, device=like.device_)
    return _pure(mode, func, (rowmajor, *args[1:]), kwargs)


def _max_pool_backward(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Positions that the pooling itself did not find may lie outside their windows, where kernels do not look for them."""
    if not kwargs and pooling.finds(mode.read(_alias_of(args[-1])), args[1], list(args[2:-1])):
        return _pure(mode, func, args, kwargs)
    like = mode.compute(func, args, kwargs)
    with mode:
        return pooling.gradient(args[0], args[-1], like)


def _restride(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`t_`, `as_strided_`...: an intermediate becomes the view that the operator's pure form gives."""
    tensor = args[0]
    if func is _aten.resize_.default and len(args) == 2 and not kwargs and tuple(args[1]) == tuple(tensor.size_):
        return tensor
    if type(tensor) is not FakeTensor or _alias_of(tensor).base.input is not None:
        raise UnsupportedMutation(f"`{func}` changes the shape of an input in place", kind="metadata-mutation")
    seen = _view(mode, _pure_form(func), args, kwargs)
    _keep_description(mode, tensor)
    tensor.node = seen.node
    return mode.restrided(tensor, seen.spec)


def _keep_description(mode: FunctionalMode, tensor: FakeTensor) -> None:
    """The node that made a tensor, which later writes may have left behind, keeps the description of its own result."""
    before = mode.new(tensor.size_, tensor.stride_, tensor.dtype_, tensor.device_, offset=tensor.offset_)
    for node in mode.graph.nodes:
        value = node.meta.get("val")
        if value is tensor:
            node.meta["val"] = before
        elif isinstance(value, (tuple, list)) and any(one is tensor for one in value):
            node.meta["val"] = type(value)([before if one is tensor else one for one in value])


def _pure_form(func: Any) -> Any:
    packet, _, overload = func.name().removeprefix("aten::").partition(".")
    pure = getattr(_aten, packet.removesuffix("_"))
    # `transpose_` has one overload, `transpose` has one for dimensions by number and one by name.
    return getattr(pure, overload or ("default" if "default" in pure.overloads() else "int"))


def _zeros(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Zeros without memory, which forward derivatives start from: kernels want memory."""
    return _pure(mode, _aten.zeros.default, args, kwargs)


# Operators whose results share memory though their schemas say nothing of it.
_DISGUISED_VIEWS = {
    _aten.unsafe_split.Tensor: _aten.split.Tensor,
    _aten.unsafe_split_with_sizes.default: _aten.split_with_sizes.default,
}


def _disguised_view(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return _view(mode, _DISGUISED_VIEWS[func], args, kwargs)


def _lazy_view(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if isinstance(args[0], torch.Tensor):
        return _view(mode, func, args, kwargs)
    # A number in a derivative's formula; the engine casts what it makes of it.
    number = -args[0] if func is _aten._neg_view.default else args[0].conjugate()
    return _pure(mode, _aten.full.default, ([], number), {"dtype": torch.complex128})


def _collective(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A functional collective: in the graph it has ended when it returns."""
    return _pure(mode, collectives.blocking(func), args, kwargs)


def _wait(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What this program sent for has arrived; what fills an input may still be under way."""
    tensor = args[0]
    if type(tensor) is FakeTensor and _alias_of(tensor).base.input is not None:
        mode.write(tensor, mode.call(collectives.waited(), mode.read(_alias_of(tensor))), counted=False)
    return tensor


def _question(mode: FunctionalMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return QUESTIONS[func](args[0])


_handlers: dict[Any, Handler] = {
    **dict.fromkeys(QUESTIONS, _question),
    **dict.fromkeys(_DISGUISED_VIEWS, _disguised_view),
    **dict.fromkeys(COMPUTED, _lazy_view),
    _aten._efficientzerotensor.default: _zeros,
    _aten.copy_.default: _copy,
    _aten.lift_fresh.default: _lift_fresh,
    _aten.bernoulli.p: _bernoulli,
    _aten.native_batch_norm.default: _batch_norm,
    _aten.native_batch_norm_backward.default: _batch_norm_backward,
    _aten.max_pool2d_with_indices_backward.default: _max_pool_backward,
    _aten.cudnn_batch_norm.default: _cudnn_batch_norm,
    _aten.cudnn_batch_norm_backward.default: _cudnn_batch_norm_backward,
}


def _classify(func: Any) -> Handler:
    handler = _handlers[func] = _composite if plan_of(func).composite else _by_schema(func)
    return handler


def _by_schema(func: Any) -> Handler:
    if collectives.described(func) is not None:
        return _wait if func._schema.name == collectives.WAIT else _collective
    if torch.Tag.inplace_view in func.tags:
        return _restride
    if plan_of(func).written:
        return _write
    aliased = any(value.alias_info is not None for value in func._schema.returns)
    return _view if aliased else _pure

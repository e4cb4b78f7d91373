"""Lower a functional ATen graph to a loop program.

In:     an `AtenGraph`.
Out:    a `LoopProgram` with the same results, strides of outputs included.
Holds:  no guard is added: what is not statically known is computed by code that is right for all sizes. An operator
        without a row in the registry, or with arguments that its row does not take, is an extern call of itself.
Reads on: `context.py` (when a value is kept in memory), `registry.py` (the rows), `fallback.py`.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from pliant import config
from pliant.background import give_way
from pliant.debug import events
from pliant.errors import InternalError, Unsupported
from pliant.graph.contracts import AtenGraph
from pliant.graph.unbacked import CHECKS, unlearnt, written
from pliant.ir.failing import value_may_fail
from pliant.ir.loops import Buffer, Computation, Extern, LoopProgram, Origin, Pointwise, Reduction, Scan, View, whole
from pliant.ir.scalar import Scalar, cast, clear_interned, const, loads
from pliant.lowering import fallback, matmul
from pliant.lowering.context import Lowering
from pliant.lowering.factors import factors_of, row_bytes
from pliant.lowering.host_numbers import HostNumbers, is_host_number
from pliant.lowering.joining import CHOOSING
from pliant.lowering.matmul import product_read_by_loops
from pliant.lowering.readers import chosen_by, count_uses
from pliant.lowering.registry import VIEW_OPS, find_rule
from pliant.lowering.tensors import COMPUTED, Index, Tensor, contiguous_strides, is_unaligned
from pliant.symbolic.expr import ONE, ZERO, Symbol
from pliant.targets.registry import has_target

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_CHAIN = 40  # values one computed from the other, none of them in memory
_COPY = torch.ops.aten.copy_.default
_ADDMM = torch.ops.aten.addmm.default
_AS_STRIDED = torch.ops.aten.as_strided.default


def lower(aten: AtenGraph, kernels_on: Callable[[torch.device], bool] = has_target) -> LoopProgram:
    """The loop program of `aten`; what is computed on devices that `kernels_on` denies is calls."""
    try:
        return _GraphLowering(aten, kernels_on).run()
    finally:
        clear_interned()  # the table would keep the buffers, and with them constants, alive


def _bits() -> types.ModuleType:
    from pliant.lowering import bits

    return bits


class _GraphLowering:
    def __init__(self, aten: AtenGraph, kernels_on: Callable[[torch.device], bool]) -> None:
        self.aten, self.kernels_on = aten, kernels_on
        self.bits = _bits() if config.get().bitwise else None  # what programs that need each bit of eager's load
        self.low = Lowering(aten.shape_env)
        self.env: dict[fx.Node, Any] = {}
        self.uses = count_uses(aten.graph)
        self.chosen_by = chosen_by(aten.graph)
        self.moved: set[fx.Node] = set()  # not in memory, and nothing is computed for their elements
        self.factors = {} if self.bits is not None else factors_of(aten.graph)  # by how rows lie the library chooses how it adds
        self.inputs: list[Buffer | Symbol | None] = []
        self.epilogue: list[tuple[Tensor, Tensor]] = []
        # How many values before it are not in memory, one computed from the other; how many in memory end with it.
        self.waiting: dict[fx.Node, int] = {}
        self.told: set[Symbol] = set()  # symbols that inputs are, and that operators return
        self.ends: dict[fx.Node, int] = {}
        self.host_numbers = HostNumbers(self.low)

    def run(self) -> LoopProgram:
        outputs: Sequence[Any] = ()
        for node in self.aten.graph.nodes:
            give_way()
            match node.op:
                case "placeholder":
                    self.env[node] = self._placeholder(node)
                case "get_attr":
                    self.env[node] = self.low.constant(_attribute(self.aten.graph, node))
                case "output":
                    outputs = node.args[0] if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
                case "call_function":
                    self._call(node)
                case other:
                    raise InternalError(f"a `{other}` node in an ATen graph", kind="lower")
        results = self._finish(outputs)
        live = list(self.host_numbers.read_late(_live(self.low.computations, results, self.inputs)))
        estimates = self.low.shape_env.hints, self.aten.held_inputs
        return LoopProgram(self.inputs, live, results, self.aten.name, self.low.constants, *estimates)

    # -- inputs -------------------------------------------------------------------------------------------------------
    def _placeholder(self, node: fx.Node) -> Any:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            shape, strides = self.low.shape_of(value), self.low.strides_of(value)
            buffer = self.low.buffer(value.dtype, shape, strides, value.device, "input")
            self.inputs.append(buffer)
            t = Tensor(self.low, value.dtype, shape, view=whole(buffer))
            t.fake = value
            return self._with_aligned_rows(node, t) if node in self.factors else t
        if isinstance(value, _NUMBERS):
            e = self.low.shape_env.expr_of(value)
            own = written(value)  # may be known to equal another symbol, which the graph checks
            self.inputs.append(own if isinstance(own, Symbol) else None)
            self.told |= own.free
            return self.low.size(e)
        self.inputs.append(None)
        return value

    def _with_aligned_rows(self, node: fx.Node, t: Tensor) -> Tensor:
        """The input, or a copy of a factor that products would read slowly from where it lies, if they read it often enough."""
        value = node.meta["val"]
        factor = self.factors[node]
        whole_rows = row_bytes(value, factor.times)
        apart = whole_rows and (factor.zeros or is_unaligned(t.shape, t.dtype.itemsize, whole_rows))
        if not apart or self.low.strides_of(value) != contiguous_strides(t.shape) or not _is_only_read(node):
            return t
        self.low.device = value.device
        copy = self.low.pointwise(t.dtype, t.shape, t.at, 1)
        copy.fake, copy.uses, copy.row_bytes, copy.zeros = value, 2, whole_rows, factor.zeros
        self.low.realize(copy)
        return copy

    # -- calls --------------------------------------------------------------------------------------------------------
    def _call(self, node: fx.Node) -> None:
        value = node.meta.get("val")
        if node.target is operator.getitem:
            source: Any = node.args[0]
            result = self.env[source][node.args[1]]
        else:
            self.low.origin, self.low.binds = _origin(node), node.meta.get("binds", ())
            self.told.update([one.symbol for one in self.low.binds])
            self.low.device = _device(value) or self.low.device
            result = self._result(node, value)
        if isinstance(result, Tensor):
            result.uses = max(result.uses, 1 if self._is_chosen(node, result) else self.uses[node])
            if result.fake is None and node.target not in VIEW_OPS:
                result.fake = value
            if node in self.factors and result.view is None and isinstance(value, torch.Tensor):
                result.row_bytes, result.zeros = row_bytes(value), self.factors[node].zeros
            self._note_ends(node, result)
        self._bound_chain(node, result)
        self.env[node] = result

    def _is_chosen(self, node: fx.Node, t: Tensor) -> bool:
        """Whether the elements of a value that is only put together from others are chosen among by one value more: read
        there several times they cost no more than kept in memory, and one pass less."""
        if t.view is not None or t.materialize is not None:
            return False
        moves = node.target in CHOOSING or node.target in VIEW_OPS
        parts = [self.env[a] for a in node.all_input_nodes if a not in self.moved] if moves else []
        if t.weight and not (moves and all(isinstance(one, Tensor) and one.view is not None for one in parts)):
            return False
        self.moved.add(node)
        return node in self.chosen_by

    def _note_ends(self, node: fx.Node, t: Tensor) -> None:
        """Have a value kept that is the last to read several others as large: computed anew, it would keep them all."""
        if t.view is not None or t.materialize is not None:
            return
        last = [a for a in node.all_input_nodes if next(reversed(a.users)) is node]
        alike = [a for a in last if isinstance(self.env[a], Tensor) and self.env[a].shape == t.shape]
        count = sum([self.ends.get(a, 1) for a in alike if a.op != "placeholder"])
        if count > 1 and t.uses > 1:
            t.weight = max(t.weight, self.low.share_limit + 1)
        elif t.is_cheap or t.uses == 1:
            self.ends[node] = count

    def _bound_chain(self, node: fx.Node, result: Any) -> None:
        """Values that wait to be put in memory until they are read would be put there recursively."""
        if isinstance(result, Tensor) and result.view is not None:
            return
        waiting = 1 + max([self.waiting.get(n, 0) for n in node.all_input_nodes], default=0)
        if waiting > _CHAIN and isinstance(result, Tensor) and not result.is_cheap:
            self.low.realize(result)
        else:
            self.waiting[node] = waiting

    def _result(self, node: fx.Node, value: Any) -> Any:
        if node.target in CHECKS:
            return self._check(node)
        args = tuple([self._argument(a) for a in node.args])
        kwargs = {k: self._argument(v) for k, v in node.kwargs.items()} if node.kwargs else {}
        if node.target is _COPY and isinstance(args[0], Tensor) and args[0].view is not None:
            if args[0].view.buffer.role == "input":
                return self._update_input(args[0], args[1])
        if isinstance(value, (*_NUMBERS, int, float)) and not self.low.binds:
            return self.low.size(value) if isinstance(value, _NUMBERS) else value
        if node.target is _AS_STRIDED and isinstance(args[0], Tensor) and args[0].fake is None:
            args[0].fake = node.args[0].meta["val"]  # type: ignore[union-attr]  # its rule asks for the layout
        rule = find_rule(node.target) if node.users else None  # a call that nothing reads is there for what it does
        why = "no loops are written for it"
        if self.bits is not None and rule is not None:
            rule = self.bits.rule_for(node.target, rule, value, args, kwargs)
            why = why if rule is not None else self.bits.WHY
        elif node.target is _ADDMM and _read_by_loops(node):
            rule = product_read_by_loops
        if (
            rule is not None
            and not self.low.binds
            and self._computable(value)
            and all(map(self._computable_argument, (*args, *kwargs.values())))
        ):
            try:
                made = rule(self.low, value, *map(self._here, args), **{k: self._here(v) for k, v in kwargs.items()})
                return made if self.bits is None else self.bits.rounded(made)
            except (Unsupported, NotImplementedError):
                pass
        events.record("extern", name=str(node.target), why=why)
        read = value if self.low.binds else _read_results(node, value)
        lays = self._as_eager_lays_it if fallback.asks_strides(node.target) else self._with_strides_beside_one
        args = tuple([lays(given, arg) for given, arg in zip(node.args, args)])
        kwargs = {k: lays(node.kwargs[k], arg) for k, arg in kwargs.items()}
        return fallback.lower_call(self.low, node.target, read, args, kwargs)

    def _check(self, node: fx.Node) -> None:
        condition: Any = node.args[0]
        rest = [self._argument(a) for a in node.args[1:]]
        self.low.computations.append(Extern(node.target, (unlearnt(condition), *rest), {}, (), origin=self.low.origin))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self.env[value]
        if isinstance(value, (list, tuple)):
            return [self._argument(v) for v in value]
        if isinstance(value, _NUMBERS):
            return self.low.size(value)
        if isinstance(value, slice):
            return slice(self._argument(value.start), self._argument(value.stop), self._argument(value.step))
        return value

    # -- the end ------------------------------------------------------------------------------------------------------
    def _update_input(self, target: Tensor, source: Tensor) -> Tensor:
        self.epilogue.append((target, self._here(source)))
        return target

    def _finish(self, outputs: Sequence[Any]) -> list[Any]:
        """Outputs in memory first, then the stores to inputs, which nothing may read after."""
        updated = {_buffer(target) for target, _ in self.epilogue}
        self.low.exact_layout = True
        nodes = dict.fromkeys(o for o in outputs if isinstance(o, fx.Node))
        found = {node: self._output(node, updated) for node in nodes}  # what is returned twice is one tensor
        results = [found[o] if isinstance(o, fx.Node) else self._output(o, updated) for o in outputs]
        self.low.exact_layout = False
        pending = [(target, self._ready_source(target, source, updated)) for target, source in self.epilogue]
        for target, source in pending:
            if source.view is not target.view:
                self._store_update(target, source)
        return results

    def _store_update(self, target: Tensor, source: Tensor) -> None:
        assert target.view is not None
        low = self.low
        low.origin = Origin("copy_")
        if not self._in_kernels(target, source) or source.device != target.device:
            views = (target.view, low.realize(source))
            low.computations.append(Extern(_COPY, views, {}, (), mutates=(target.view.buffer,), origin=low.origin))
            return

        def at(index: Index) -> Scalar:
            return cast(source.exact_at(_aligned(source, target, index)), target.dtype)

        low.store_into(target.view, at, low.origin)

    def _ready_source(self, target: Tensor, new: Any, updated: set[Buffer]) -> Tensor:
        """The new value, put in memory unless storing it cannot fail and reads no updated buffer except its own element."""
        number = None if isinstance(new, Tensor) else new
        self.low.device = target.device
        source = new if isinstance(new, Tensor) else Tensor(self.low, target.dtype, (), lambda i: literal)
        literal = const(0 if number is None else number, target.dtype)
        if source.view is not None and source.view.buffer not in updated:
            return source
        if not self._in_kernels(target, source):
            return self._copy(source, source.fake)
        if source.view is None:
            axes, index = self.low.axes(target.shape)
            with self.low.ranges.over(axes):
                value = source.exact_at(_aligned(source, target, index))
                assert target.view is not None
                own = self.low.load(target.view, index)
            read = [x for x in loads(value) if x.buffer in updated]
            if source.view is None and all(x is own for x in read) and not value_may_fail(value):
                return source
        copy = Tensor(self.low, source.dtype, source.shape, source.exact_at)
        copy.view = self.low.store(copy)
        return copy

    def _output(self, value: Any, updated: set[Buffer]) -> Any:
        if isinstance(value, _NUMBERS):
            return self._returned_number(value)
        if not isinstance(value, fx.Node):
            return value
        result = self.env[value]
        if not isinstance(result, Tensor):
            return result
        self.low.origin, self.low.device = Origin("output"), result.device
        view = self.low.realize(result)
        copied = value.target is not _COPY and view.buffer in updated
        return self._with_eager_strides(result, view, value.meta["val"], copied)

    def _returned_number(self, value: Any) -> Any:
        """A number as the graph computed it, if that is known: another graph may have to check what it is assumed to equal."""
        e = unlearnt(value)
        return e if self.low.shape_env.unbacked_symbols(e) <= self.told else self.low.size(value)

    def _as_eager_lays_it(self, given: Any, argument: Any) -> Any:
        """The argument of a call, in memory with the strides that eager's has, in dimensions of one element too."""
        if not isinstance(argument, Tensor) or not isinstance(given, fx.Node):
            return argument
        self.low.exact_layout = True
        view = self.low.realize_readable(argument)
        self.low.exact_layout = False
        return self._with_eager_strides(argument, view, given.meta["val"], False)

    def _with_strides_beside_one(self, given: Any, argument: Any) -> Any:
        """The argument of a call, with eager's strides in dimensions of one element too, if it lies as eager's otherwise:
        by them C++ chooses how results are laid out."""
        if not isinstance(argument, Tensor) or not isinstance(given, fx.Node) or ONE not in argument.shape:
            return argument
        view, strides = self.low.realize_readable(argument), self.low.strides_of(given.meta["val"])
        if view.strides == strides or not all(a is b or n is ONE for n, a, b in zip(view.shape, view.strides, strides)):
            return argument
        return Tensor(
            self.low, view.dtype, view.shape, view=View(view.buffer, view.shape, strides, view.offset, view.dtype)
        )

    def _with_eager_strides(self, t: Tensor, view: View, fake: torch.Tensor, copied: bool) -> View:
        strides = self.low.strides_of(fake)
        if not copied and all(a is b or n is ONE for n, a, b in zip(view.shape, view.strides, strides)):
            return View(view.buffer, view.shape, strides, view.offset, view.dtype)
        if ZERO in view.shape:
            return View(view.buffer, view.shape, strides, view.offset, view.dtype)
        if not self._in_kernels(t):
            return self.low.realize(self._copy(t, fake))
        # Dimensions of stride 0 hold one element.
        extents = tuple([ONE if s is ZERO else n for n, s in zip(t.shape, strides)])
        copy = Tensor(self.low, t.dtype, extents, t.exact_at)
        copy.fake = fake
        stored = self.low.store(copy, strides)
        return View(stored.buffer, t.shape, strides, stored.offset, stored.dtype)

    def _copy(self, t: Tensor, fake: torch.Tensor) -> Tensor:
        """The same values in memory of their own, by a call."""
        (copy,) = self.low.extern(torch.ops.aten.clone.default, (t,), {}, [fake])
        assert copy is not None
        return copy

    def _in_kernels(self, *tensors: Tensor) -> bool:
        return all(t.dtype in COMPUTED and self.kernels_on(t.device) for t in tensors)

    def _computable(self, value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            return value.dtype in COMPUTED and value.layout is torch.strided and self.kernels_on(value.device)
        if isinstance(value, (list, tuple)):
            return all(map(self._computable, value))
        return True

    def _computable_argument(self, value: Any) -> bool:
        if isinstance(value, Tensor):
            if is_host_number(value, self.low.device):
                return True
            return self._in_kernels(value) and (value.device == self.low.device or _is_number(value))
        if isinstance(value, list):
            return all(map(self._computable_argument, value))
        return not isinstance(value, complex)

    def _here(self, value: Any) -> Any:
        """The argument of a rule, numbers of other devices as this device's own: put in memory there later, they could not be
        read from here."""
        if isinstance(value, list):
            return [self._here(v) for v in value]
        if is_host_number(value, self.low.device) and not _is_number(value):
            return self.host_numbers.of(value)
        if not isinstance(value, Tensor) or value.device == self.low.device or not _is_number(value):
            return value
        number = value.at(())
        return Tensor(self.low, value.dtype, (), lambda index: number)


def _read_by_loops(node: fx.Node) -> bool:
    """Whether something that is written as loops reads the result, perhaps through views."""
    for user in node.users:
        if user.target in VIEW_OPS:
            if _read_by_loops(user):
                return True
        elif user.target not in matmul.RULES and find_rule(user.target) is not None:
            return True
    return False


def _aligned(source: Tensor, target: Tensor, index: Index) -> Index:
    skip = len(target.shape) - len(source.shape)
    return [ZERO if n is ONE else index[skip + k] for k, n in enumerate(source.shape)]


def _device(value: Any) -> torch.device | None:
    """Where a call computes: its results' device; None where they lie on several."""
    found = {v.device for v in fallback.flatten(value) if isinstance(v, torch.Tensor)}
    return found.pop() if len(found) == 1 else None


def _is_number(t: Tensor) -> bool:
    """Whether it is a number that kernels of any device compute: it reads no memory."""
    return not t.shape and t.is_cheap and t.view is None and not any(loads(t.at(())))


def _buffer(t: Tensor) -> Buffer:
    assert t.view is not None
    return t.view.buffer


def _origin(node: fx.Node) -> Origin:
    where = node.meta.get("origin") or node.meta.get("stack_trace")
    return Origin(f"{node.target} {where}" if where else str(node.target), node.name)


def _attribute(graph: fx.Graph, node: fx.Node) -> torch.Tensor:
    owner: Any = graph.owning_module
    for name in str(node.target).split("."):
        owner = getattr(owner, name)
    assert isinstance(owner, torch.Tensor)
    return owner


def _is_only_read(node: fx.Node) -> bool:
    """Whether an input is neither written nor given back, nor a view of it."""
    return all(
        user.op != "output" and user.target is not _COPY and (user.target not in VIEW_OPS or _is_only_read(user))
        for user in node.users
    )


def _read_results(node: fx.Node, value: Any) -> Any:
    """The results of a call with None for those that nothing reads: they need not be what was expected of them."""
    if not isinstance(value, (list, tuple)) or any(user.target is not operator.getitem for user in node.users):
        return value
    read = {user.args[1] for user in node.users}
    return [one if k in read or isinstance(one, (list, tuple)) else None for k, one in enumerate(value)]


def _live(computations: list[Computation], outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Computation]:
    """The computations that an output, an input's update or an effect needs."""
    needed = {o.buffer for o in outputs if isinstance(o, View)} | {b for b in inputs if isinstance(b, Buffer)}
    kept: list[Computation] = []
    for c in reversed(computations):
        match c:
            case Pointwise() | Reduction() | Scan():
                if c.out not in needed:
                    continue
                needed.update(x.buffer for x in loads(c.value))
                if isinstance(c, Pointwise):
                    needed.update(x.buffer for _, value in c.indirect for x in loads(value))
            case Extern():
                needed.update(v.buffer for v in _views((c.args, list(c.kwargs.values()))))
        kept.append(c)
    kept.reverse()
    return kept


def _views(tree: Any) -> list[View]:
    if isinstance(tree, View):
        return [tree]
    if isinstance(tree, (list, tuple)):
        return [v for item in tree for v in _views(item)]
    return []

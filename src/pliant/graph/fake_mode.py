"""The dispatch mode that computes the sizes, strides, dtypes and devices of tensors without data.

In:     real tensors (`FakeMode.from_real`) or descriptions (`FakeMode.new`), and ATen calls on the results.
Out:    `FakeTensor`s as eager would return them; sizes and strides may be `torch.SymInt`.
Holds:  nothing is ever computed on data; what cannot be known without data raises a typed error.
        Every view is a fresh fake: who needs aliasing tracks it in `FakeMode.record`.
        The result of a rule is remembered per mode and description of its arguments: repeated layers cost a look-up.
Reads on: `shape_rules/`, `special_calls.py`, `fallback.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from pliant import torch_adapter
from pliant.graph.call_plan import CallPlan, argument, decomposed, plan_of
from pliant.graph.concrete_sizes import QUESTIONS
from pliant.graph.devices import refuse_mixed_devices
from pliant.graph.fake_tensor import (
    AS_IT_IS,
    NON_STRIDED,
    FakeTensor,
    base_of,
    check_supported,
    counting_as,
    is_fake,
    is_on_constant,
    memory_of,
    tensor_of_number,
)
from pliant.graph.kernel_warnings import ROWS as KERNEL_WARNINGS
from pliant.graph.kernel_warnings import tell as tell_warnings
from pliant.graph.overlaps import refuse_overlap
from pliant.graph.passes.purity import draws
from pliant.graph.shape_rules import DependsOnValues, Rule, find_rule
from pliant.graph.shape_rules.indexing import GIVES_SPARSE
from pliant.graph.special_calls import SPECIAL
from pliant.graph.strided import BY_STRIDES, refuse_outside
from pliant.graph.tensor_spec import CONJUGATED, NEGATED, Interner, TensorSpec
from pliant.graph.unfit_numbers import refuse_unfit_numbers
from pliant.graph.unsupported import UnsupportedOperator
from pliant.graph.writes import note_statistics, note_store
from pliant.records import dataclass
from pliant.torch_adapter import DisableTorchFunction, make_wrapper_subclass

if TYPE_CHECKING:
    from pliant.symbolic.shape_env import ShapeEnv

_make_wrapper = make_wrapper_subclass
_DETACH = torch.ops.aten.detach.default
_DETACH_IN_PLACE = torch.ops.aten.detach_.default


class FakeMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes on fakes; factory functions called under it make fakes."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch wraps the dispatch method of modes that say yes, and imports the peer at the first call."""
        return False

    # Whether an operator may return a sparse tensor, of which a fake tells the size alone; who allows it lets nothing read it.
    hands_on_sparse = False

    def __init__(self, shape_env: ShapeEnv | None = None, allow_unbacked: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shape_env = shape_env
        self.allow_unbacked = allow_unbacked
        self.intern = Interner()
        self.unbacked_made = 0
        self.writes = 0
        self.under_results: set[int] = set()  # ids of constants that results of custom functions are views of
        self.viewed_unrecorded: set[int] = set()  # ids of bases of which views were made while nothing was recorded
        self.apart: dict[int, list[FakeTensor]] = {}  # by id: tensors in one memory whose writes count apart
        self.draws = False  # whether random numbers were drawn
        self.drawn_into: list[FakeTensor] = []  # memories that were filled with random numbers, as by a dropout
        self.counts: dict[
            Any, tuple[Any, Any]
        ] = {}  # of a tensor's elements that are not zero: value -> (count, tensor)
        self._shape_only: ShapeOnlyMode | None = None
        self._remembered: dict[tuple[Any, ...], Any] = {}

    # -- making fakes -------------------------------------------------------------------------------------------------
    def new(
        self,
        size: Sequence[Any],
        stride: Sequence[Any],
        dtype: torch.dtype,
        device: torch.device,
        requires_grad: bool = False,
        offset: Any = 0,
    ) -> FakeTensor:
        """A fake leaf of this description."""
        spec = TensorSpec(tuple(size), tuple(stride), dtype, device, offset)
        if self.shape_env is None or not self.shape_env.fresh:  # else its sizes are to be found by their own names
            spec = self.intern(spec)
        return self._fake(spec, requires_grad)

    def like(self, fake: FakeTensor) -> FakeTensor:
        """Another leaf of the same description and class."""
        made = self._fake(fake.spec, fake.requires_grad)
        made.is_parameter_, made.subclass_ = fake.is_parameter_, fake.subclass_
        return made

    def _fake(self, spec: TensorSpec, requires_grad: bool = False) -> FakeTensor:
        fake: FakeTensor = _make_wrapper(
            FakeTensor, spec.size, strides=spec.stride, storage_offset=spec.offset, dtype=spec.dtype,
            device=spec.device, requires_grad=requires_grad, storage_size=spec.storage_bytes(),
        )  # fmt: skip
        fake.fake_mode = self
        fake.spec = spec
        if spec.lazy:
            torch_adapter.set_lazy(fake, bool(spec.lazy & CONJUGATED), bool(spec.lazy & NEGATED))
        return fake

    def from_real(
        self, tensor: torch.Tensor, sizes: Sequence[Any] | None = None, strides: Sequence[Any] | None = None
    ) -> FakeTensor:
        """The fake of a real tensor: same description, `requires_grad`, leaf or not, parameter or not."""
        check_supported(tensor)
        with counting_as(tensor):
            return self._from_real(tensor, sizes, strides)

    def _from_real(self, tensor: torch.Tensor, sizes: Sequence[Any] | None, strides: Sequence[Any] | None) -> FakeTensor:
        if sizes is not None and strides is None:
            raise ValueError("from_real: give strides together with sizes")
        size = tuple(tensor.shape) if sizes is None else sizes
        stride = tensor.stride() if strides is None else strides
        fake = self.new(size, stride, tensor.dtype, tensor.device, tensor.requires_grad, tensor.storage_offset())
        return self._like(fake, tensor, isinstance(tensor, torch.nn.Parameter))

    def another(self, fake: FakeTensor) -> FakeTensor:
        """A tensor of the same description that has no history."""
        return self._fake(fake.spec)

    def view_as(self, base: FakeTensor, view: FakeTensor) -> FakeTensor:
        """A view of the base that has the description of another one's view."""
        with self.shape_only(), DisableTorchFunction():
            return self.restrided(torch.ops.aten.alias.default(base), view.spec)

    def described_as(self, fake: FakeTensor) -> FakeTensor:
        """Another fake of the same real tensor."""
        return self._like(self._fake(fake.spec, fake.requires_grad), fake, fake.is_parameter_)

    def _like(self, fake: FakeTensor, described: torch.Tensor, is_parameter: bool) -> FakeTensor:
        _, made = self.with_state(fake, described)
        made.is_parameter_ = is_parameter
        return made

    def with_state(self, fake: FakeTensor, described: torch.Tensor) -> tuple[FakeTensor, FakeTensor]:
        """(the leaf, the tensor that stands in autograd's graph as the described one does): the same one for a leaf."""
        constant = self._fake(fake.spec) if is_on_constant(described) else None
        if not described.is_leaf:
            self.under_results.update([id(constant)] if constant is not None else ())
            return fake, self._as_non_leaf(fake, constant)
        if constant is not None:
            with self.shape_only():
                fake = torch.ops.aten.alias.default(constant).requires_grad_()
        return fake, fake

    def _as_non_leaf(self, fake: FakeTensor, constant: FakeTensor | None = None) -> FakeTensor:
        """A fake with a `grad_fn`, as real intermediate results have; a view of the constant, if one is given."""
        with torch.enable_grad():
            made: FakeTensor = _Identity.apply(fake, constant)  # type: ignore[no-untyped-call]
        return made

    # -- calls --------------------------------------------------------------------------------------------------------
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in QUESTIONS:
            return QUESTIONS[func](args[0])
        kwargs = kwargs or {}
        func, args, kwargs = tensor_of_number(func, args, kwargs)
        if func in KERNEL_WARNINGS:
            tell_warnings(func, args, kwargs)
        plan = plan_of(func)
        if plan.written:
            self.writes += 1
            for key in plan.written if func is not _DETACH_IN_PLACE else ():  # which writes no elements
                found = argument(key, args, kwargs)
                for fake in filter(is_fake, found if isinstance(found, (list, tuple)) else (found,)):
                    note_store(fake)
            refuse_overlap(plan, args, kwargs)
        note_statistics(func, args)
        if func in BY_STRIDES:
            refuse_outside(*args, **kwargs, memory=memory_of(args[0]))
        if torch.Tag.nondeterministic_seeded in plan.tags and draws(func, args, kwargs):
            self.draws = True
            if plan.written and is_fake(args[0]):
                self.drawn_into.append(memory_of(args[0]))
        if plan.composite:
            with self:
                outputs = decomposed(func, args, kwargs)
            if outputs is not NotImplemented:
                return outputs
        if plan.uncounted:
            self.note_uncounted(plan, args, kwargs)
        with counting_as(args[0]) if plan.views and is_fake(args[0]) else AS_IT_IS:
            outputs = self.compute(func, args, kwargs)
        if plan.views and not torch.is_grad_enabled() and func is not _DETACH:
            self.viewed_unrecorded.add(id(base_of(args[0])))
        if plan.views and is_fake(args[0]) and (torch.is_inference_mode_enabled() or args[0].is_inference()):
            for fake in filter(is_fake, outputs if isinstance(outputs, (list, tuple)) else (outputs,)):
                fake.viewed = args[0]
        return self.record(func, args, kwargs, outputs)

    def note_data(self, alone: Any) -> None:
        """Told of each `tensor.data`: on the same memory, but its writes do not count as the tensor's."""

    def note_uncounted(self, plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Told of each call whose writes are counted by its kernel, if at all: here as one write."""
        written = tree_leaves([argument(key, args, kwargs) for key in plan.uncounted])
        torch.autograd.graph.increment_version([one for one in written if is_fake(one) and not one.is_inference()])

    def value_key(self, fake: FakeTensor) -> Any:
        """Equal for a tensor of which it is known that it has the same elements."""
        return id(fake), self.writes

    def note_hook(self, tensor: FakeTensor) -> None:
        """Told of each hook that the program puts on a tensor."""

    def note_gradients(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], keep: bool) -> bool:
        """Hook of tracers: the program asks for gradients of `outputs`. Whether what their history saved is kept."""
        return keep

    def record(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], outputs: Any) -> Any:
        """Hook of tracers: sees every computed call, returns what the program gets."""
        return outputs

    def compute(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Fakes of what `func(*args, **kwargs)` returns; nothing is recorded."""
        try:
            key = call_key(func, args, kwargs)
        except UnknownArgument:
            return self._compute_unkeyed(func, args, kwargs)
        outcome = self._remembered.get(key)
        if outcome is None:
            return self._compute_first(func, args, kwargs, key)
        return self._fake(outcome) if type(outcome) is TensorSpec else self._instantiate(outcome, args, kwargs)

    def _compute_unkeyed(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Real tensors become fakes of theirs; a call with arguments of unknown types is not remembered."""
        fake_args, fake_kwargs = self._fakes_only((tuple(args), kwargs))
        try:
            call_key(func, fake_args, fake_kwargs)
        except UnknownArgument:
            return self._compute_first(func, fake_args, fake_kwargs, None)
        outputs = self.compute(func, fake_args, fake_kwargs)
        return _with_originals(plan_of(func), outputs, args, kwargs)

    def _compute_first(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], key: Any) -> Any:
        """The call worked out by a rule, or by torch's own functions, and remembered if it may be."""
        plan = plan_of(func)
        refuse_mixed_devices(plan, args, kwargs)
        rule = find_rule(func)
        if rule is None:
            return self._compute_unruled(plan, args, kwargs, key)
        if func in GIVES_SPARSE and not self.hands_on_sparse:
            raise UnsupportedOperator(f"`{func}` returns a {NON_STRIDED} tensor", kind="undescribed-result")
        try:
            outcome = self._outcome(plan, rule, args, kwargs)
        except DependsOnValues:
            return SPECIAL[func](self, func, *args, **kwargs)
        result = self._instantiate(outcome, args, kwargs)
        refuse_unfit_numbers(plan, args, kwargs, result)
        if key is not None:
            self._remembered[key] = outcome
        return result

    def _outcome(self, plan: CallPlan, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What the rule says, its specs interned, written arguments in place of results that they are."""
        specs = [_spec_of(a) for a in args]
        result = rule(*specs, **{k: _spec_of(v) for k, v in kwargs.items()})
        if not plan.views and any(type(s) is TensorSpec and s.lazy for s in specs):
            result = tree_map_only(TensorSpec, _computed, result)
        if not plan.written:
            return self._interned(result)
        if len(plan.returned) == 1:
            return _Argument(plan.returned[0]) if plan.returned[0] is not None else self._interned(result)
        if not plan.returned:
            return _NOTHING
        pairs = zip(plan.returned, result)
        return tuple([_Argument(where) if where is not None else self._interned(one) for where, one in pairs])

    def _interned(self, result: Any) -> Any:
        if type(result) is TensorSpec:
            return self.intern(result)
        if isinstance(result, (tuple, list)):
            return type(result)(map(self._interned, result))
        return _NOTHING if result is None else result

    def _instantiate(self, outcome: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        kind = type(outcome)
        if kind is TensorSpec:
            return self._fake(outcome)
        if kind is _Argument:
            return argument(outcome.where, args, kwargs)
        if kind is list or kind is tuple:
            return kind([self._instantiate(one, args, kwargs) for one in outcome])
        return None if outcome is _NOTHING else outcome

    def _compute_unruled(self, plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any], key: Any) -> Any:
        """Calls that no rule describes."""
        if plan.views and any(type(a) is FakeTensor and a.spec.lazy for a in args):
            raise UnsupportedOperator(f"`{plan.func}` of a tensor that is read lazily", kind="lazy-view")
        special = SPECIAL.get(plan.func)
        if special is not None:
            return special(self, plan.func, *args, **kwargs)
        made = self.unbacked_made
        if plan.composite:
            with self.shape_only():
                outputs = decomposed(plan.func, args, kwargs)
            if outputs is not NotImplemented:
                return outputs
        from pliant.graph import fallback  # most operators have a rule

        outputs = fallback.run(self, plan, args, kwargs)
        if key is not None and not plan.written and made == self.unbacked_made:
            self._remembered[key] = _description(outputs)
        return outputs

    def restrided(self, fake: FakeTensor, spec: TensorSpec) -> FakeTensor:
        """Give a fake another size and strides in place."""
        spec = self.intern(spec)
        with torch_adapter.below_python_dispatch(), torch.no_grad():
            torch_adapter.set_geometry(fake, spec.size, spec.stride, spec.offset)
        fake.spec = spec
        return fake

    def _fakes_only(self, tree: Any) -> Any:
        """The arguments with real tensors replaced by fakes of theirs."""

        def convert(tensor: torch.Tensor) -> torch.Tensor:
            return tensor if type(tensor) is FakeTensor else self.from_real(tensor.detach())

        return tree_map_only(torch.Tensor, convert, tree)

    def shape_only(self) -> ShapeOnlyMode:
        """A context in which calls compute fakes and are not recorded."""
        if self._shape_only is None:
            self._shape_only = ShapeOnlyMode(self)
        return self._shape_only


class _Identity(torch.autograd.Function):
    """A result of the same description (overlapping strides too), whose gradient is its input's."""

    @staticmethod
    def forward(ctx: Any, fake: FakeTensor, constant: FakeTensor | None) -> FakeTensor:
        if constant is not None:
            with fake.fake_mode.shape_only():
                return torch.ops.aten.alias.default(constant)  # type: ignore[no-any-return]
        return fake.fake_mode.new(fake.size_, fake.stride_, fake.dtype_, fake.device_, offset=fake.offset_)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


class ShapeOnlyMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sends every call to `compute` of a fake mode."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch wraps the dispatch method of modes that say yes, and imports the peer at the first call."""
        return False

    def __init__(self, owner: FakeMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.owner = owner

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in QUESTIONS:
            return QUESTIONS[func](args[0])
        return self.owner.compute(func, args, kwargs or {})


class UnknownArgument(Exception):
    """An argument that is no part of a key: a real tensor, a generator..."""


@dataclass(frozen=True, slots=True)
class _Argument:
    """The result that is the argument at a (position, name)."""

    where: tuple[int, str]


_NOTHING = object()


def _computed(spec: TensorSpec) -> TensorSpec:
    """A result with memory of its own: its elements are as they were computed, whatever the rule took the spec from."""
    return spec.read_as(0)


def call_key(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """What the description of a call's results depends on."""
    try:
        if kwargs:
            items = [(name, _KEYS[type(value)](value)) for name, value in kwargs.items()]
            return (func, *[_KEYS[type(a)](a) for a in args], *items)
        return (func, *[_KEYS[type(a)](a) for a in args])
    except KeyError:
        raise UnknownArgument from None


def _itself(value: Any) -> Any:
    return value


def _typed(value: Any) -> Any:
    return type(value), value  # 1, 1.0 and True are equal but promote differently


def _symbolic(value: Any) -> Any:
    return type(value), value.node.expr


def _each(values: Any) -> Any:
    return tuple([_KEYS[type(value)](value) for value in values])


_KEYS: dict[type, Callable[[Any], Any]] = {
    FakeTensor: lambda fake: fake.spec,
    **dict.fromkeys((int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format), _itself),
    **dict.fromkeys((float, bool, complex), _typed),
    **dict.fromkeys((torch.SymFloat, torch.SymBool, torch.SymInt), _symbolic),
    **dict.fromkeys((list, tuple, torch.Size), _each),
}


def _spec_of(value: Any) -> Any:
    kind = type(value)
    if kind is FakeTensor:
        return value.spec
    return [_spec_of(one) for one in value] if kind is list or kind is tuple else value


def _description(outputs: Any) -> Any:
    """The outcome that instantiates to outputs like these."""
    if type(outputs) is FakeTensor:
        return outputs.spec
    if isinstance(outputs, (list, tuple)):
        return (list if isinstance(outputs, list) else tuple)(map(_description, outputs))
    return _NOTHING if outputs is None else outputs


def _with_originals(plan: CallPlan, outputs: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The outputs, with the caller's own tensors where the operator returns its arguments."""
    if not plan.written or not plan.returned:
        return outputs
    if len(plan.returned) == 1:
        return outputs if plan.returned[0] is None else argument(plan.returned[0], args, kwargs)
    pairs = zip(plan.returned, outputs)
    return tuple([one if where is None else argument(where, args, kwargs) for where, one in pairs])

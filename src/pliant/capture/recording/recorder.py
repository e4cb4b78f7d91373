"""Records calls of PyTorch functions on fake tensors as nodes of a torch-level fx graph.

In:     every call of a torch function while the trace runs, from the interpreter or from C code in between.
Out:    nodes (`call_function`, `call_method`) whose `meta["val"]` is the fake result and `meta["origin"]` the user's line.
Holds:  the graph run on the inputs makes the same calls in the same order, in-place ones included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from pliant.capture.graph_breaks import GraphBreak, needs_value
from pliant.capture.numbers import ranges
from pliant.capture.numbers.elements import Elements
from pliant.capture.outside.inputs import Inputs
from pliant.capture.protocols.rewritten import FACTORS, into_out, refuse_cast, with_factor
from pliant.capture.recording.nodes import Nodes, has_tensor
from pliant.capture.recording.overrides import Overrides
from pliant.capture.recording.stand_ins import Checkpointed, set_apart
from pliant.capture.signatures import Args, Kwargs
from pliant.capture.structures import leaves, mapped, several
from pliant.capture.value_kinds import concrete, is_constant, is_of_program, is_symbolic, is_tensor, varying
from pliant.errors import DataDependentError, Unsupported
from pliant.graph.fake_tensor import CONSTANT_NUMEL, FakeTensor, is_fake
from pliant.graph.given_warnings import GivenWarning, paused
from pliant.graph.lent_numbers import call_on_fakes
from pliant.graph.opaque_derivatives import differentiable_form
from pliant.graph.passes.purity import is_random
from pliant.graph.unbacked import OPERATORS, call_numbering, numbering, written
from pliant.graph.writes import data_of
from pliant.source import SourceLocation
from pliant.torch_adapter import DisableTorchFunction, TensorBase, below_python_dispatch

Tensor = torch.Tensor
# Calls that read an element: what follows depends on data.
_DATA_DEPENDENT = frozenset(
    (
        Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.__complex__, Tensor.tolist,
        Tensor.numpy, Tensor.__array__, Tensor.__contains__,
    )
)
_READS = _DATA_DEPENDENT | {Tensor.item, Tensor.is_nonzero, torch.is_nonzero, torch.equal, Tensor.equal}
_MADE_OF_NUMBERS = frozenset((torch.tensor, torch.as_tensor))
_NOT_RECORDED = frozenset(
    (Tensor.__hash__, Tensor.__len__, Tensor.__reversed__, Tensor.__dir__)
)
_REFUSED = {
    Tensor.backward: ("unsupported-operator", "Tensor.backward called by C code"),
    torch.autograd.backward: ("unsupported-operator", "torch.autograd.backward called by C code"),
    Tensor.register_hook: ("backward-hook", "a tensor hook registered by C code"),
    Tensor.retain_grad: ("backward-hook", "Tensor.retain_grad"),
    Tensor.data_ptr: ("data-dependent", "Tensor.data_ptr"),
    getattr(Tensor, "const_data_ptr", Tensor.data_ptr): ("data-dependent", "Tensor.data_ptr"),  # not in PyTorch 2.11
    Tensor.untyped_storage: ("unsupported-operator", "Tensor.untyped_storage"),
    Tensor.apply_: ("data-dependent", "Tensor.apply_"),  # C code of these would read memory that fakes lack
    Tensor.map_: ("data-dependent", "Tensor.map_"),
    Tensor.map2_: ("data-dependent", "Tensor.map2_"),
    Tensor.share_memory_: ("side-effect-call", "Tensor.share_memory_"),
    Tensor.is_shared: ("unsupported-operator", "Tensor.is_shared"),  # a fake has no storage that these could ask
    Tensor.is_pinned: ("unsupported-operator", "Tensor.is_pinned"),
    Tensor.__reduce_ex__: ("data-dependent", "Tensor.__reduce_ex__"),
    Tensor.__repr__: ("data-dependent", "repr of a tensor"),
    Tensor.__format__: ("data-dependent", "format of a tensor"),
    Tensor.__deepcopy__: ("unknown-call", "deepcopy of a tensor"),
    torch.manual_seed: ("random-state", "torch.manual_seed"),
    torch.sparse_coo_tensor: ("unsupported-tensor", "a sparse tensor is made"),
}


class Recorder(Nodes, TorchFunctionMode):
    """The torch function mode that is active during a capture."""

    def __init__(self, graph: fx.Graph, inputs: Inputs, location: Callable[[], SourceLocation | None]) -> None:
        super().__init__(graph, inputs, location)
        self.default_dtype = torch.get_default_dtype()
        self.overrides = Overrides()
        self.handle_override: Callable[[Any, Any, Any], Any]
        self.warned: Callable[[list[GivenWarning]], None]
        self.checkpointed: list[Checkpointed] = []
        self.used_up: set[fx.Node] = set()  # what was computed with histories that a `backward()` has walked and not kept
        self.histories: dict[int, FakeTensor] = {}  # tensors with other data -> what stands for them as they were first
        self.elements = Elements(inputs, self.symbols)
        inputs.record = self._dispatch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_of_program(func):
            func = _method_of_pytorch(func)
        try:
            if (types or self.overrides.modes or self.overrides.has_subclasses) and self.overrides.apply(args, kwargs):
                with self, paused():
                    return self.handle_override(func, args, kwargs)
            return self._dispatch(func, args, kwargs)
        except DataDependentError as error:
            self.inputs.shape_env.take_fresh()
            raise needs_value(error) from None
        except Unsupported as error:
            self.inputs.shape_env.take_fresh()
            kind = "unsupported-operator" if "perator" in type(error).__name__ else "unsupported-tensor"
            raise GraphBreak(kind, str(error).splitlines()[0]) from None

    def _dispatch(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        if func in _REFUSED:
            raise GraphBreak(*_REFUSED[func])
        if func is Tensor.requires_grad_ and (told := self._flag_of_input(*args, **kwargs)) is not None:
            return told
        if (made := self._by_other_calls(func, args, kwargs)) is not None:
            return made
        if func in _READS and (known := self._constants((args, kwargs))) is not None:
            with DisableTorchFunction(), below_python_dispatch():
                return func(*known[0], **known[1])
        if func is Tensor.tolist and self.inputs.mode.allow_unbacked:
            return self._to_list(args[0])
        if func in _DATA_DEPENDENT:
            raise GraphBreak("data-dependent", f"{func.__name__} of a tensor whose value is being computed")
        name = getattr(func, "__name__", "")
        lasting = self.inputs.policy.lasting
        if lasting and _may_write(func, name, kwargs) and str(self.location()) in lasting:
            raise GraphBreak("lasting-write", "what comes after may fail on its data")
        if name in _SIZED:
            first = 0 if name in _MAKE else 1
            args = (*args[:first], *self._with_numbers(name, args[first:]))
            if kwargs and "out" not in kwargs:
                kwargs = dict(zip(kwargs, self._with_numbers(name, tuple(kwargs.values()))))
        if name == "__get__":
            return self._get_attribute(func, args)
        if name == "__set__":
            return self._set_attribute(func, args)
        if func is Tensor.__iter__:
            return iter(self._dispatch(Tensor.unbind, (args[0], 0), {}))
        if func is Tensor.item:
            number = self._number(args[0])
            return self._item(func, args) if number is args[0] else number
        return self._run_and_record(func, args, kwargs)

    def _by_other_calls(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        """The result of a call that the graph has as others, None if it has the call itself."""
        if func is torch.as_tensor and len(args) == 1 and varying(args[0]) in _TENSOR_TYPES and is_symbolic(args[0]):
            dtype = kwargs.get("dtype") or _TENSOR_TYPES[varying(args[0])] or torch.get_default_dtype()
            return self._dispatch(torch.full, ((), *args), {**kwargs, "dtype": dtype})  # which need not ask for its value
        if kwargs.get("out") is not None:
            with self.inputs.mode.shape_only(), torch.no_grad():
                refuse_cast(func, args, kwargs)
        if func is Tensor.resize_ and self.marks.get("inference") and args[0].requires_grad:
            raise GraphBreak("unsupported-operator", "resize_ in inference mode of a tensor that requires gradients")
        if func is Tensor.resize_ or "out" in kwargs:
            made = self._onto_new_memory(func, args, kwargs)
            if made is not None:
                return made
        rewrite = with_factor if kwargs and func in FACTORS else into_out if "out" in kwargs else None
        if rewrite is None:
            return None
        with self:
            return rewrite(func, args, kwargs)

    def _run_and_record(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        mode = self.inputs.mode
        name = getattr(func, "__name__", "")
        if writes := _may_write(func, name, kwargs):
            written = kwargs.get("out", args[0] if args else None)
            self.inputs.check_write(written)
            for one in filter(is_fake, several(written) if self.checkpointed else ()):
                set_apart(self.checkpointed, self.graph, one)
        before, mode.draws = mode.draws, False
        try:
            result = self._run(func, args, kwargs)
        finally:
            drew, mode.draws = mode.draws, before or mode.draws
        is_operator = type(func) in OPERATORS
        if is_operator:
            func = differentiable_form(mode, func, args, kwargs, result)
        if func in _MADE_OF_NUMBERS and self.default_dtype is not torch.get_default_dtype():
            kwargs = {"dtype": result.dtype_, **kwargs}  # chosen while another dtype was the default
        if not drew and not writes and "empty" not in name:
            self.elements.constants.note(result)
        returns = func not in _NOT_RECORDED and has_tensor(result) or self.inputs.shape_env.fresh
        if returns or result is None and (has_tensor(args) or is_random(func) or is_operator):
            self.record(func, args, kwargs, result)
            self.elements.learn_sizes(result)
        return result

    def become(self, tensor: FakeTensor, made: FakeTensor) -> None:
        """The tensor is from here on what was made for it, on other memory. Its own stays what others lie in."""
        self.elements.forget(tensor)
        if tensor.node is not None:
            former = tensor.fake_mode.like(tensor)
            former.node, tensor.node.meta["val"] = tensor.node, former
        with DisableTorchFunction(), below_python_dispatch():
            Tensor.data.__set__(tensor, made)  # type: ignore[attr-defined]
        tensor.spec, tensor.node = made.spec, made.node
        if made.viewed is not None:  # in inference mode, where its writes are those of what it was given
            tensor.viewed = made.viewed

    def _onto_new_memory(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        """The result of an operator that gives an empty tensor of the trace memory; None if it is not such a call."""
        target = kwargs["out"] if "out" in kwargs else args[0]
        if not is_fake(target) or target.size_ != (0,) or self.inputs.example_of(target) is not None:
            return None
        if target.requires_grad or target._is_view() or "out" not in kwargs and (kwargs or len(args) < 2):
            return None
        with self:
            if "out" in kwargs:
                made = func(*args, **{name: value for name, value in kwargs.items() if name != "out"})
                fits = is_tensor(made) and torch.can_cast(made.dtype, target.dtype) and made.device == target.device
                if not fits or made.requires_grad:  # autograd has no derivative of `out=`, and says so
                    return None
                made = made.to(target.dtype)
            else:
                made = torch.empty(*args[1:], dtype=target.dtype, device=target.device)
        self.become(target, made)
        return target

    def _run(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        if (operator := numbering(func)) is not None:
            return call_numbering(operator, self.inputs.mode, args, kwargs)
        return call_on_fakes(func, args, kwargs, self.warned)

    def as_class(self, value: FakeTensor, cls: type) -> FakeTensor:
        """The same memory under another class."""
        with DisableTorchFunction():  # nothing that the program's classes hear of
            made: FakeTensor = self._dispatch(Tensor.view_as, (value, value), {})
        made.subclass_ = None if cls is Tensor else cls
        self.overrides.has_subclasses = True
        return made

    def _constants(self, value: Any) -> Any:
        """The arguments with constants in place of fakes; None if one is not known."""
        given = list(leaves(value))
        known = {id(one): self.elements.constants.of(one) for one in given if is_fake(one)}
        if any(one is None for one in known.values()) or not all(id(one) in known or is_constant(one) for one in given):
            return None
        return mapped(value, lambda one: known.get(id(one), one))

    def _number(self, value: Any) -> Any:
        """The integer that a 0-d tensor is known to hold; any other value as it is."""
        if not is_fake(value) or value.dtype_ is torch.bool:
            return value
        known = self.elements.number(value, ask=False)
        return value if known is None else known

    def _size(self, value: Any, dtypes: frozenset[torch.dtype]) -> Any:
        """The number that a 0-d tensor holds, which the graph reads where it is not known: C++ would read it unseen."""
        number = self._number(value)
        if not is_fake(number) or number.dim() or number.dtype_ not in dtypes:
            return number
        return self._dispatch(Tensor.item, (number,), {}) if self.inputs.mode.allow_unbacked else number

    def _with_numbers(self, name: str, values: Any) -> Any:
        """The arguments with numbers in place of the 0-d tensors that hold them."""
        dtypes = _BOUNDS if name in _COUNT else _INTEGERS
        return mapped(values, lambda value: self._size(value, dtypes))

    def _item(self, func: Any, args: tuple[Any, ...]) -> Any:
        if (number := self.inputs.item(args[0])) is not None:
            return number
        if not self.inputs.mode.allow_unbacked:
            raise GraphBreak("data-dependent", "Tensor.item")
        number = self.record(func, args, {}, self._run(func, args, {}))
        if ranges.is_drawn(args[0]):
            self.inputs.shape_env.limit(written(number), 0.0, math.nextafter(1.0, 0.0))
        return number

    def _to_list(self, tensor: Any) -> Any:
        """Every element as a number."""
        if tensor.dim() == 0:
            return self._dispatch(Tensor.item, (tensor,), {})
        if math.prod(map(concrete, tensor.size_)) > CONSTANT_NUMEL:
            return self._known_list(tensor)
        return [self._to_list(part) for part in self._dispatch(Tensor.unbind, (tensor, 0), {})]

    def _known_list(self, tensor: Any) -> Any:
        """The numbers of a tensor of more elements than the graph is to read one by one."""
        numbers = self.elements.flat(tensor) if tensor.dtype_ in _INTEGERS else None
        if numbers is None:
            raise GraphBreak("data-dependent", f"tolist of a tensor with more than {CONSTANT_NUMEL} elements")
        for size in map(concrete, reversed(tensor.size_[1:])):
            numbers = [numbers[i : i + size] for i in range(0, len(numbers), size)]
        return numbers

    def _get_attribute(self, func: Any, args: tuple[Any, ...]) -> Any:
        name = func.__self__.__name__
        # A write of the data counts as one of the tensor: it is how writes are known while the program is followed.
        result = data_of(args[0]) if name == "data" else call_on_fakes(func, args, {}, self.warned)
        if not is_tensor(result):
            return result
        if name == "grad":
            raise GraphBreak("unsupported-operator", "Tensor.grad of a tensor computed here")
        self.elements.constants.note(result)
        return self.record(getattr, (args[0], name), {}, result)

    def _flag_of_input(self, tensor: Any, flag: Any = True, **_: Any) -> Any:
        """An argument that is to require gradients, or no longer, is the caller's own: it is told so before the graph, if nothing
        was computed of it yet, else between graphs.

        Parameters, which are many, are told behind the graph: it does so itself with those that it is given.
        """
        given = is_fake(tensor) and self.inputs.example_of(tensor) is not None
        if given and tensor.requires_grad is not bool(flag):
            if flag and self.region is None and self.inputs.tell_to_require_gradients(tensor):
                return tensor
            if not tensor.is_parameter_:
                raise GraphBreak("unsupported-operator", "requires_grad_() of a tensor from outside", _FLAG_BEFORE)
            if self.region is None:
                self.inputs.told.append(tensor)
        return None

    def _set_attribute(self, func: Any, args: tuple[Any, ...]) -> None:
        name = func.__self__.__name__
        if name == "requires_grad":
            self._dispatch(Tensor.requires_grad_, args, {})
            return
        raise GraphBreak("unsupported-operator", f"assignment to Tensor.{name}")


def _method_of_pytorch(function: Any) -> Any:
    """What C code calls that names the function: it looks for its name among the methods of tensors, where the program may have
    put one of its own that calls PyTorch's."""
    for name, method in vars(Tensor).items():
        if method is function:
            return getattr(TensorBase, name, None) or _METHODS.get(name, function)
    return function


_METHODS = {name: method for name, method in vars(Tensor).items() if not is_of_program(method)}
# Functions whose arguments, but for the first, are sizes: 0-d tensors of integers among them are numbers.
_COUNT = frozenset(("arange", "range"))  # their size is told by bounds and a step, which need not be integers
_MAKE = _COUNT | frozenset("zeros ones empty full rand randn".split())  # their first argument is one, too
_SIZED = _MAKE | frozenset(
    """view reshape expand repeat tile resize_ unflatten narrow as_strided broadcast_to new_zeros new_ones new_empty new_full
    split chunk unfold pad interpolate""".split()
)
_TENSOR_TYPES: dict[Any, torch.dtype | None] = {int: torch.int64, float: None}
_INTEGERS = frozenset((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8))
_FLAG_BEFORE = "call requires_grad_() before the compiled function, or of a tensor that is made in it: x.detach().requires_grad_()"
_BOUNDS = _INTEGERS | {torch.float64, torch.float32, torch.bfloat16, torch.float16}


def _may_write(func: Any, name: str, kwargs: dict[str, Any]) -> bool:
    """Whether the function changes its first argument, or `out`."""
    if "out" in kwargs or name == "__setitem__" or name.startswith("__i") and name != "__invert__":
        return True
    if name.rstrip("_") != name and not name.endswith("__"):
        return True
    return "inplace" in getattr(getattr(func, "__code__", None), "co_varnames", ())

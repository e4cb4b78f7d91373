"""Tensors that the program makes into parameters and buffers, tensors whose `requires_grad` it sets, and lazy modules.

In:     `nn.Parameter(data)`, `nn.Buffer(data)`, `tensor.requires_grad = True`, copies of leaves; the call of the hook that infers
        the parameters of a lazy module.
Out:    recorded calls that make a new leaf on the same memory. A lazy module is made an ordinary one while capturing, and the
        capture starts again.
Holds:  a parameter that leaves the trace is given its class by the entry; one that does not is a leaf of the graph only.
        A lazy module gets what eager would make at this call: nothing that the program did before has drawn random numbers or
        written what the module reads. One of the program's own infers from tensors that the caller passed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from pliant.autograd.history import is_refused
from pliant.capture.graph_breaks import GraphBreak, StartAgain
from pliant.capture.handlers.table import Rows
from pliant.capture.recording.regions import grad_recorded, tensors_in
from pliant.capture.recording.stand_ins import AssignedData, is_detached
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_several
from pliant.capture.trace import BreakReason
from pliant.capture.value_kinds import concrete, is_symbolic
from pliant.errors import Unsupported
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.tensor_spec import keys_of
from pliant.graph.writes import note_shared
from pliant.guards.standard import standard_globals
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch, infer_parameters

ROWS = Rows()
handles, CLASSES = ROWS.handles, ROWS.classes


def new_leaf(t: Tracer, data: Any, requires_grad: bool, is_parameter: bool) -> Any:
    """A leaf on the memory of `data`."""
    made = t.native(torch.Tensor.detach, data)
    if requires_grad:
        t.native(torch.Tensor.requires_grad_, made)
    made.is_parameter_ = is_parameter
    return made


def _construct_parameter(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    given = dict(zip(("data", "requires_grad"), args)) | kwargs
    data = given.get("data")
    if not is_fake(data) or data.subclass_ is not None:
        raise GraphBreak("unsupported-tensor", f"a parameter made of a {data.__class__.__name__}")
    needs = bool(t.truth(given.get("requires_grad", True)))
    if needs and not (data.is_floating_point() or data.is_complex()):  # the error is worded by the class, not by a tensor
        t.native(torch.nn.Parameter, torch.empty(0, dtype=data.dtype))
    return new_leaf(t, data, needs, True)


CLASSES[torch.nn.Parameter] = _construct_parameter


class _Replaced(torch.autograd.Function):
    """A tensor that was given other data lies in the memory of that; its gradient is the tensor's."""

    @staticmethod
    def forward(ctx: Any, old: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        return data.data

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


def _is_recorded(t: Tracer, tensor: FakeTensor) -> bool:
    """Whether something was computed of it with a history that no `backward()` has used up. A view that was made while nothing
    is recorded requires gradients like what it is a view of, and has none."""
    left, seen = [tensor], {id(tensor)}  # what writes a tensor is a user of it, and gives it
    while left:
        values = [user.meta.get("val") for user in left.pop().node.users if user not in t.recorder.used_up]
        if any(one.requires_grad for one in tensors_in([*filter(is_several, values)])):
            return True
        views = [one for one in values if is_fake(one) and one.requires_grad and id(one) not in seen]
        if any(is_refused(one) or one.grad_fn is not None for one in views):
            return True
        left += views
        seen.update(map(id, views))
    return False


def _is_own(tensor: FakeTensor, data: Any) -> bool:
    """Whether these are all elements of the tensor's own memory, as it lies: what `tensor.data *= 2` assigns."""
    own = is_fake(data) and is_detached(data) and data.node.args[0] is tensor.node
    return own and _lies_as(tensor) == _lies_as(data)


def _lies_as(tensor: FakeTensor) -> tuple[Any, ...]:
    spec = tensor.spec
    return spec.dtype, spec.size_key, spec.stride_key, keys_of((spec.offset,))


def set_data(t: Tracer, tensor: FakeTensor, data: Any) -> None:
    """tensor.data = data: the same object on other memory. What was computed of it, and its views, stay as they are, but
    gradients that read the tensor read the other memory from here on. Its own memory (a module's `to`) changes nothing."""
    if data is tensor or _is_own(tensor, data):
        return
    outside = t.inputs.example_of(tensor) is not None
    same_kind = is_fake(data) and (data.dtype_, data.device_) == (tensor.dtype_, tensor.device_)
    same_kind = same_kind and (data.shape == tensor.shape or not tensor.requires_grad)
    made_leaf = not outside and tensor.is_leaf and is_fake(data)
    if not (same_kind or made_leaf) or tensor.subclass_ is not None:
        raise GraphBreak("unsupported-operator", "assignment to Tensor.data of another kind or size")
    if tensor.requires_grad and _is_recorded(t, tensor):
        what = "assignment to Tensor.data of a tensor whose gradients may read it"
        if outside:  # what was compiled before the break has kept the tensor itself
            raise GraphBreak("unsupported-operator", what)
        raise Unsupported(what, kind="unsupported-operator")
    made = t.native(torch.Tensor.detach, data)
    if not same_kind:  # with the old one, no gradient would fit
        made = new_leaf(t, made, tensor.requires_grad, False)
    elif tensor.requires_grad:
        first = t.recorder.histories.setdefault(id(tensor), tensor.fake_mode.new((), (), tensor.dtype_, tensor.device_))
        first.node = first.node or tensor.node
        with grad_recorded(t, True):
            made = t.call(_Replaced.apply, (tensor, made), {})
    if outside:
        t.inputs.keep_description(tensor)
        t.world.slot_set(tensor, "data", t.native(torch.Tensor.detach, made), "plain")
    t.recorder.become(tensor, made)
    note_shared(tensor, data)
    if outside:
        what = "assignment to Tensor.data of a tensor of which autograd then records a write"
        why = BreakReason("unsupported-operator", what, t.location())
        t.stand_ins.append(AssignedData(t.frames[-1].steps_at_op, why, tensor))


def copied(t: Tracer, value: FakeTensor, shares_memory: bool) -> Any:
    """What `copy` and `deepcopy` make of a tensor."""
    if value.subclass_ is not None:
        raise GraphBreak("unknown-call", f"a copy of a {value.subclass_.__name__}")
    if value.requires_grad and not value.is_leaf:
        raise GraphBreak("unknown-call", "a copy of a tensor that requires grad and is no leaf")
    if not value.requires_grad and not value.is_parameter_ and not shares_memory:
        return t.native(torch.Tensor.clone, value)
    memory = value if shares_memory else t.native(torch.Tensor.clone, t.native(torch.Tensor.detach, value))
    return new_leaf(t, memory, value.requires_grad, value.is_parameter_)


# ---- lazy modules
@handles(infer_parameters)
def _infer_parameters(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    owner, module, *given = args
    own = not standard_globals(type(module).initialize_parameters.__globals__)
    if t.has_effects() or owner is not module or not t.world.is_foreign(module):
        raise Unsupported("the first call of a lazy module, which makes its parameters", kind="lazy-module")
    real = tree_map(lambda value: _real(t, value, own), [t.internalize(one) for one in given])
    with DisableTorchFunction(), below_python_dispatch():
        infer_parameters(module, module, *real)
    raise StartAgain


def _real(t: Tracer, value: Any, own: bool) -> Any:
    """A tensor with the sizes of the one in the program; that one itself where elements may matter."""
    if is_symbolic(value):
        return concrete(value)
    if not is_fake(value):
        return value
    example = t.inputs.example_of(value)
    if example is not None:
        return example
    if own:
        raise Unsupported("a lazy module of the program infers from what the program computed", kind="lazy-module")
    sizes = [concrete(n) for n in value.size_]
    with DisableTorchFunction(), below_python_dispatch():
        return torch.zeros(sizes, dtype=value.dtype_, device=value.device_)

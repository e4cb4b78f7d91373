"""Private names of torch that Pliant needs, in one place, so that a new torch release breaks one file.

In:     torch.
Out:    small functions and aliases, each with the reason why the public interface does not do.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FunctionType
from typing import Any, TypeVar

import torch
import torch.fx
import torch.fx._symbolic_trace as _fx_tracer
from torch._ops import HigherOrderOperator as HigherOrderOperator  # types without a public name: what operators are
from torch._ops import OpOverload as OpOverload
from torch._ops import OpOverloadPacket as OpOverloadPacket
from torch.optim import optimizer as _optimizer
from torch.utils import _foreach_utils
from torch.utils._device import DeviceContext as DeviceContext  # the mode behind `torch.set_default_device`

from pliant import interruptions

VERSION = torch.__version__
PACKAGE = os.path.dirname(torch.__file__)  # the folder of PyTorch's Python code

Function = TypeVar("Function", bound=Callable[..., Any])


def dlpack_exchange_capsule() -> Any | None:
    """The capsule of DLPack's C exchange table (torch >= 2.10): reads a tensor's address without a Python call."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


def torch_library_folders() -> tuple[str, ...]:
    """Folders of the shared objects that torch's wheel brings: `torch/lib` and the `torch.libs` beside the package."""
    package = os.path.realpath(PACKAGE)
    return (os.path.join(package, "lib"), package + ".libs")


def is_composite(func: Any) -> bool:
    """Whether calling the operator only calls others (its CompositeImplicitAutograd kernel).

    `OpOverload._can_decompose` looks at the same registration, and has no public form. Where an operator has a kernel for
    descriptions of tensors as well, devices have kernels of their own, which eager prefers (silu_backward).
    """
    kernels: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key
    return kernels(func.name(), "CompositeImplicitAutograd") and not kernels(func.name(), "Meta")


def below_python_dispatch() -> AbstractContextManager[Any]:
    """Calls reach kernels directly: no dispatch mode and no `__torch_dispatch__` sees them (no public form)."""
    guard: AbstractContextManager[Any] = torch._C._DisableTorchDispatch()
    return guard


def python_kernels() -> AbstractContextManager[Any]:
    """The dispatcher takes kernels that `torch._decomp` registers in Python before those in C++ (no public form)."""
    guard: AbstractContextManager[Any] = torch._C._EnablePythonDispatcher()
    return guard


_BATCHED = torch._C.DispatchKey.FuncTorchBatched


def give_batched_kernel(op: Any, kernel: Callable[..., Any]) -> None:
    """What computes the operator on tensors with a batch of `vmap` while `python_kernels` are taken (no public form)."""
    op.py_impl(_BATCHED)(kernel)


def batched_kernel_in_c(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """PyTorch's own kernel for them."""
    return op._op_dk(_BATCHED, *args, **kwargs)


def below_batches() -> AbstractContextManager[Any]:
    """Inside a batched kernel: operators are those of the transforms around `vmap` (no public form)."""
    guard: AbstractContextManager[Any] = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_BATCHED))
    return guard


def taken_apart(tensor: torch.Tensor, level: int) -> tuple[torch.Tensor, int | None]:
    """A tensor with the batch of a `vmap`, and the place of the batch; itself and None if it has none."""
    inside = torch._C._functorch
    if inside.is_batchedtensor(tensor) and inside.maybe_get_level(tensor) == level:
        return inside.get_unwrapped(tensor), inside.maybe_get_bdim(tensor)
    return tensor, None


def below_transforms(tensor: torch.Tensor) -> torch.Tensor:
    """What the tensor is outside of all transforms."""
    while is_functorch_wrapped(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def with_batch(tensor: torch.Tensor, level: int) -> torch.Tensor:
    """Dimension 0 as the batch of a `vmap`."""
    found: torch.Tensor = torch._C._functorch._add_batch_dim(tensor, 0, level)
    return found


@functools.cache
def numpy_on_tensors() -> Any:
    """PyTorch's implementation of NumPy's functions over tensors; importing it takes a while."""
    import torch._numpy as found

    return found


# The module whose frames a traceback shows where an operator was called, of the program's own in Python too.
OPERATORS = "torch._ops"

# The names of modules of PyTorch's own compiler, which is never loaded from here, and of packages that are no API.
PEER = "torch._dynamo"
NUMPY, HIGHER_ORDER, TRANSFORMS, LEGACY_VMAP = (
    "torch._numpy",
    "torch._higher_order_ops",
    "torch._functorch",
    "torch._vmap_internals",
)
# Python functions of these modules ask the active torch function mode first, or are made of such calls.
OVERRIDABLE_MODULES = (
    "torch._tensor",
    "torch._VF",
    "torch._ops",
    "torch._refs",
    "torch._linalg_utils",
    "torch._lobpcg",
)
C_NN = "torch._C._nn"
TRANSFORMS_IN_C = "torch._C._functorch"  # the module of the C functions that enter and leave transforms


# ---- types that public functions give and take, without a public name of their own (and those of operators, above)
TensorBase = torch._C.TensorBase  # the class in C that `torch.Tensor` is made from
ParameterMeta: type = torch.nn.parameter._ParameterMeta  # type: ignore[attr-defined]
InferenceModeGuard = torch._C._InferenceMode  # what `torch.inference_mode` enters

# ---- contexts and classes that hide what would look on
# `__torch_function__` of no class and no mode is asked. The second hides classes alone and is the documented one.
DisableTorchFunction = torch._C.DisableTorchFunction
DisableTorchFunctionSubclass = torch._C.DisableTorchFunctionSubclass
# PyTorch's own Python enters these two around its work.
DisableTorchDispatch = torch._C._DisableTorchDispatch
DisableFuncTorch = torch._C._DisableFuncTorch
no_torch_function: Any = torch._C._disabled_torch_function_impl  # a `__torch_function__` that is never asked

# ---- modes and state: one C call each, as the public forms are objects with blocks
# What `torch.no_grad` and `torch.enable_grad` call, and graphs record.
set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled
pop_function_mode = torch._C._pop_torch_function_stack
function_mode_at = torch._C._get_function_stack_at
dispatch_mode_at = torch._C._get_dispatch_stack_at
push_mode_object = torch.overrides._push_mode  # what a function mode's block calls
pop_mode_object = torch.overrides._pop_mode
current_transform: Callable[[], int | None] = torch._C._functorch.maybe_current_level  # of `torch.func`: None outside
dispatch_keys = torch._C._dispatch_keys  # of a tensor: what the dispatcher goes by
mkldnn_enabled: Callable[[], bool] = (
    torch._C._get_mkldnn_enabled
)  # `torch.backends.mkldnn.flags` sets it, nothing tells it


def dual_level() -> int:
    """Depth of the `forward_ad.dual_level` blocks around the call, from -1 (no public form)."""
    return torch.autograd.forward_ad._current_level


# The module and the name of that depth, for generated code that reads it without a call.
DUAL_LEVEL = (torch.autograd.forward_ad, "_current_level")

# Setters of settings beside their getters. `torch.backends` asks them under names that differ from release to release.
_C = torch._C
ATTENTION_SETTINGS = (
    (_C._get_flash_sdp_enabled, _C._set_sdp_use_flash),
    (_C._get_mem_efficient_sdp_enabled, _C._set_sdp_use_mem_efficient),
    (_C._get_math_sdp_enabled, _C._set_sdp_use_math),
    (_C._get_cudnn_sdp_enabled, _C._set_sdp_use_cudnn),
    (_C._get_overrideable_sdp_enabled, _C._set_sdp_use_overrideable),
)
CUDNN_SETTINGS = tuple(
    (getattr(_C, f"{owner}_get_cudnn_{name}"), getattr(_C, f"{owner}_set_cudnn_{name}"))
    for owner, names in (
        ("", ("enabled", "benchmark", "deterministic", "allow_tf32", "depthwise_kernel")),
        ("_cuda", ("benchmark_limit",)),  # in builds for GPUs only
    )
    for name in names
    if hasattr(_C, f"{owner}_set_cudnn_{name}")
)
PRECISION_SETTING = (_C._get_fp32_precision_getter, _C._set_fp32_precision_setter)  # of a backend and an operation

# ---- functions that PyTorch's Python calls, so that programs come to them
# C functions by the namespace that holds them.
VARIABLE_FUNCTIONS: Any = torch._C._VariableFunctions
C_OPERATORS: tuple[Any, ...] = (VARIABLE_FUNCTIONS, _C._nn, _C._linalg, _C._special, _C._fft, _C._sparse, _C._nested)  # type: ignore[attr-defined]
C_NAMESPACES = (*C_OPERATORS, _C, _C._autograd)
has_torch_function = _C._has_torch_function
OVERRIDE_TESTS = frozenset((has_torch_function, _C._has_torch_function_unary, _C._has_torch_function_variadic))
SAVED_TENSOR_HOOKS = (_C._autograd._push_saved_tensors_default_hooks, _C._autograd._pop_saved_tensors_default_hooks)
group_tensors_by_device_and_dtype = _C._group_tensors_by_device_and_dtype
check_and_unscale: Any = torch._amp_foreach_non_finite_check_and_unscale_
foreach_pow: Any = torch._foreach_pow
assert_async: Any = torch._assert_async
make_subclass: Any = torch.Tensor._make_subclass
make_wrapper_subclass: Any = torch.Tensor._make_wrapper_subclass
module_call: Any = torch.nn.Module._call_impl
wrapped_module_call: Any = torch.nn.Module._wrapped_call_impl
infer_parameters: Any = torch.nn.modules.lazy.LazyModuleMixin._infer_parameters
scaler_step: Any = torch.amp.GradScaler._maybe_opt_step
without_setup: Any = torch.autograd.function._SingleLevelFunction.__dict__["setup_context"]
value_of_optimizer: Any = _optimizer._get_value
differentiable_step: Any = _optimizer._use_grad_for_differentiable
kept_from_the_peer: Any = torch._compile._disable_dynamo
devices_of_foreach: Callable[[], list[str]] = _foreach_utils._get_foreach_kernels_supported_devices
# Documented under these names, underscore and all.
check, check_with, check_is_size = torch._check, torch._check_with, torch._check_is_size
CHECK = "torch._check"  # as messages write it
# What tensors and modules do for Python's own protocols: programs may put others there.
store_in_module, member_of_module = torch.nn.Module.__setattr__, torch.nn.Module.__getattr__
hash_of_tensor, array_of_tensor = torch.Tensor.__hash__, torch.Tensor.__array__
copy_of_tensor, dlpack_of_tensor = torch.Tensor.__deepcopy__, torch.Tensor.__dlpack__
override_of_tensor: Any = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
dispatch_of_tensor: Any = torch.Tensor.__torch_dispatch__
apply_function: Any = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]
BYTES_OF_TENSOR = torch.Tensor.__basicsize__  # of its Python object
# Operators of collectives, which `torch.distributed` records in its functional form.
COLLECTIVES: Any = torch.ops._c10d_functional
# Copies on write; none where this torch cannot make them.
lazy_clone: Callable[[torch.Tensor], torch.Tensor] | None = getattr(torch, "_lazy_clone", None)
# Dispatch modes as `TorchDispatchMode` (whose module is no public one) has them.
current_dispatch_mode: Callable[[], Any] = torch.utils._python_dispatch._get_current_dispatch_mode
without_dispatch_modes: Callable[[], AbstractContextManager[Any]] = torch.utils._python_dispatch._disable_current_modes
broadcast_to_tree: Any = torch.utils._pytree._broadcast_to_and_flatten


def packed_size(packed: torch.Tensor) -> int:
    """Bytes of a weight that oneDNN has laid out (its operators are missing where PyTorch is built without it)."""
    return int(torch.ops.mkldnn._nbytes(packed))


def are_laid_out_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the memory of two such weights is the same, byte for byte."""
    size, place = packed_size(one), torch.ops.mkldnn.data_ptr
    return size == packed_size(other) and ctypes.string_at(place(one), size) == ctypes.string_at(place(other), size)


def packed_convolution() -> Callable[..., torch.Tensor]:
    """The convolution with such a weight."""
    found: Callable[..., torch.Tensor] = torch.ops.mkldnn._convolution_pointwise.default
    return found


def reorder_convolution_weight(*args: Any) -> torch.Tensor:
    """Such a weight."""
    result: torch.Tensor = torch.ops.mkldnn._reorder_convolution_weight.default(*args)
    return result


def optimizer_hooks() -> tuple[Any, Any]:
    """Hooks around the steps of all optimizers (registered by public functions, read by none)."""
    return _optimizer._global_optimizer_pre_hooks, _optimizer._global_optimizer_post_hooks


def has_schema(name: str) -> bool:
    """Whether there is an operator of PyTorch's own of this name, whose schema says what it writes (no public form)."""
    return bool(_C._jit_get_schemas_for_operator(f"aten::{name}"))


def answers_of_torch() -> Iterator[tuple[Any, str, Any]]:
    """(owner, name, answer) of questions about the mode of execution that PyTorch's Python asks; a release may lack one."""
    yield torch._jit_internal, "is_scripting", False
    yield torch._C, "_get_tracing_state", None
    yield torch._C, "_is_tracing", False
    yield torch.jit, "_is_tracing", False
    yield torch._C, "_len_torch_dispatch_stack", 0  # calls in dispatch modes run eagerly


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A plain tensor on the memory of one of a subclass, whose `__torch_function__` is not asked."""
    with torch._C.DisableTorchFunction():
        return tensor.as_subclass(torch.Tensor)


def as_in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as its memory has it: what is conjugated or negated only when it is read, without that."""
    with torch._C.DisableTorchFunction(), below_python_dispatch():
        for view in lazy_views(tensor):
            tensor = view(tensor)
    return tensor


def lazy_views(tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], ...]:
    """What makes a tensor of its memory, and its memory of the tensor."""
    return (torch._neg_view,) * tensor.is_neg() + (torch.conj,) * tensor.is_conj()


def is_functorch_wrapped(tensor: torch.Tensor) -> bool:
    """Whether `vmap` or `grad` wrapped the tensor (no public test exists)."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


_is_wrapped: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor
_is_batched: Callable[[torch.Tensor], bool] = torch._C._functorch.is_legacy_batchedtensor


def is_transformed(tensor: torch.Tensor | None) -> bool:
    """Whether the tensor stands for others inside a transform, `is_grads_batched` among them (no public form)."""
    return tensor is not None and (_is_wrapped(tensor) or _is_batched(tensor))


def append_node(
    graph: torch.fx.Graph, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> torch.fx.Node:
    """A node at the graph's insertion point; what `Graph.create_node` does, less its look at every argument.

    `create_node` flattens all arguments and warns of symbolic numbers among them, which our graphs hold by design.
    """
    namespace = graph._graph_namespace
    unique = namespace.create_name(name, None)
    node = torch.fx.Node(graph, unique, op, target, args, kwargs, None)
    namespace.associate_name_with_obj(unique, node)
    graph._insert(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    return node


def append_call(graph: torch.fx.Graph, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.fx.Node:
    """The same, under the name that `create_node` gives a call of the target."""
    name = _node_names.get(target) if isinstance(target, _NAMED) else None
    if name is None:
        name = graph._target_to_str(target)
        if isinstance(target, _NAMED):
            _node_names[target] = name
    return append_node(graph, op, target, args, kwargs, name)


def append_placeholder(graph: torch.fx.Graph, target: str) -> torch.fx.Node:
    """A placeholder at the graph's insertion point, under the name that `Graph.placeholder` gives it."""
    return append_node(graph, "placeholder", target, (), {}, graph._target_to_str(target))


_NAMED = (str, types.BuiltinFunctionType)  # which live as long as PyTorch
_node_names: dict[Any, str] = {}


def opaque_to_the_peer(function: Function) -> Function:
    """The function, with the mark that `torch.compiler.disable` leaves: PyTorch's compiler calls it, not following it."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


def shielded(function: Function) -> Function:
    """The function; what it runs is not compiled by PyTorch's compiler either, which may be on around the call once it
    is loaded (the decorator would load it)."""
    if "torch._dynamo" not in sys.modules:
        return function
    if isinstance(function, FunctionType):  # of a module or a class, which stays: hiding it anew would cost 20 us a call
        hidden: Function = _hidden_for_good(function)
    else:
        hidden = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return hidden


@functools.cache
def _hidden_for_good(function: FunctionType) -> Any:
    return torch.compiler.disable(function)  # type: ignore[no-untyped-call]


# The innermost `saved_tensors_hooks` (no public form); True: also where they are hidden while tracing.
saved_tensor_hooks: Callable[[bool], tuple[Any, Any] | None] = torch._C._autograd._top_saved_tensors_default_hooks

# How many torch dispatch modes, and torch function modes, are around the call (no public form).
count_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
count_function_modes: Callable[[], int] = torch._C._len_torch_function_stack

# Whether TorchScript's tracer records what this thread runs (`torch.jit.is_tracing` is the same, less direct).
is_script_tracing: Callable[[], bool] = torch._C._is_tracing


# Where `torch.fx.symbolic_trace` notes that it runs (the public forms warn, or answer for the peer's compiler too).
FX_TRACING = (_fx_tracer, "_is_fx_tracing_flag")


def is_fx_tracing() -> bool:
    """Whether `torch.fx.symbolic_trace` runs."""
    return bool(getattr(*FX_TRACING))


# Whether `torch.autocast` is on for any device: one C call, where the public form asks device by device.
any_autocast = torch._C._is_any_autocast_enabled

# A context in which no autocast kernel is reached; the public form needs a device and costs ten times as much.
no_autocast = torch._C._DisableAutocast


def set_geometry(tensor: torch.Tensor, size: Any, stride: Any, offset: Any) -> None:
    """Give a tensor without storage other sizes in place, below autograd (public code has no such call)."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        torch.ops.aten.as_strided_.default(tensor, size, stride, offset)


def set_lazy(tensor: torch.Tensor, conjugated: bool, negated: bool) -> None:
    """Say whether a tensor's elements are conjugated or negated when they are read."""
    torch._C._set_conj(tensor, conjugated)
    torch._C._set_neg(tensor, negated)


def shape_functions() -> tuple[dict[Any, Any], ...]:
    """Python functions that run on symbolic sizes, by operator: meta functions first, then decompositions.

    `torch._decomp.decomposition_table` is the documented half; the meta functions live beside it without a public name.
    """
    global _shape_functions
    if _shape_functions is None:
        import torch._decomp as decompositions
        import torch._meta_registrations  # noqa: F401  # fills the table of meta functions

        tables = decompositions.global_decomposition_table
        _shape_functions = (tables["meta"], tables["post_autograd"], tables["pre_autograd"])
    return _shape_functions


_shape_functions: tuple[dict[Any, Any], ...] | None = None


def gradients(
    outputs: list[torch.Tensor],
    inputs: list[torch.Tensor],
    tangents: list[torch.Tensor],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    allow_unused: bool = True,
) -> tuple[Any, ...]:
    """`torch.autograd.grad` of tensors whose tangents fit; the public function checks that by importing the peer's shape engine."""
    from torch.autograd.graph import _engine_run_backward

    return _engine_run_backward(
        tuple(outputs), tuple(tangents), retain_graph, create_graph, tuple(inputs), allow_unused, accumulate_grad=False
    )


def uncounted_writes() -> AbstractContextManager[Any]:
    """Writes do not change the versions of tensors, as those through `.data` (no public form)."""
    guard: AbstractContextManager[Any] = torch._C._AutoDispatchBelowADInplaceOrView()
    return guard


@contextmanager
def recording() -> Iterator[None]:
    """Autograd records, be it within `uncounted_writes` (no public form)."""
    keys = torch._C.DispatchKey
    hidden = torch._C._dispatch_tls_local_exclude_set()
    for key in (keys.ADInplaceOrView, keys.AutogradFunctionality, keys.AutogradOther, keys.AutogradNestedTensor):
        hidden = hidden.remove(key)
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), hidden), torch.enable_grad():
        yield


# tensor -> the number of its storage object (`untyped_storage()._cdata`, without making an object for it).
storage_of: Callable[[torch.Tensor], int] = torch._C._storage_id  # type: ignore[attr-defined]  # not in its stubs


def tied_by_writes(written: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether autograd minds, at `other`, a write of `written` in the same storage, though they share no element.

    Empty tensors share their versions; one of several views of a call may not be used after a write (no public form).
    """
    if not written.numel() or not other.numel():
        return True
    several: Any = torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE
    return other.requires_grad and other._is_view() and bool(torch._C._autograd._get_creation_meta(other) == several)


def forbids_writes(tensor: torch.Tensor) -> bool:
    """Whether autograd refuses the tensor once its version is another: views of several results, those that custom functions
    return, or that were made where nothing is recorded (no public form)."""
    usual: Any = torch._C._autograd.CreationMeta.DEFAULT
    return tensor._is_view() and bool(torch._C._autograd._get_creation_meta(tensor) != usual)


def without_base(tensor: Any) -> Any:
    """The tensor, or one in the same memory that autograd does not take for a view of another.

    Views made while nothing records have rules of their own for writes; public code cannot make one without them.
    """
    if type(tensor) is not torch.Tensor or not tensor._is_view():
        return tensor
    with torch._C._AutoDispatchBelowADInplaceOrView():
        return torch.ops.aten.alias.default(tensor)


is_view = torch.Tensor._is_view


def without_bases(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """`without_base` of each; that none is a view is seen in half the time."""
    return tuple(map(without_base, tensors)) if any(map(is_view, tensors)) else tuple(tensors)


def direct_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` less its search for `torch.func` transforms, half of its time: where guards say there are none."""
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply


def give_to_records(function: type[torch.autograd.Function], **values: Any) -> None:
    """Attributes that the record of every call of `function` has before any is set (no public form names its class)."""
    for name, value in values.items():
        setattr(function._backward_cls, name, value)


def autograd_time() -> int:
    """The number that the next function of autograd's graph gets in this thread (no public form)."""
    return int(torch._C._autograd._get_sequence_nr())


def running_function() -> Any:
    """The function of autograd's graph whose derivative this thread computes, or None (no public form)."""
    return torch._C._current_autograd_node()


# Its global `_is_profiler_enabled` tells whether one records (no public form).
profiler: Any = torch.autograd.profiler


def engine_needs(node: Any) -> bool:
    """Whether the running backward pass wants a gradient for this function of autograd's graph (no public form)."""
    leaf = getattr(node, "variable", None)  # of what ends the graph at a leaf
    if leaf is not None and id(leaf) in _asked_leaves.ids and _asked_leaves.task == torch._C._current_graph_task_id():
        return True
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # a leaf that `autograd.grad` was asked for
        _asked_leaves.note(leaf)
        return True


class _AskedLeaves(threading.local):
    """Leaves that this thread's latest pass was found to be asked for: the error by which PyTorch says so is slow. Who asked
    holds them until the pass ends."""

    def __init__(self) -> None:
        self.task, self.ids = -1, set[int]()

    def note(self, leaf: object) -> None:
        task = torch._C._current_graph_task_id()
        if task != self.task:
            self.task, self.ids = task, set()
        self.ids.add(id(leaf))


_asked_leaves = _AskedLeaves()


# Whether the running backward pass was called with `retain_graph` (no public form).
engine_keeps_graph: Callable[[], bool] = torch._C._autograd._get_current_graph_task_keep_graph


def dtype_of_gradient(node: Any, number: int) -> torch.dtype:
    """The dtype of the gradient that a function of autograd's graph takes for its result of this number."""
    return node._input_metadata[number].dtype  # type: ignore[no-any-return]


def saved_one_by_one(ctx: Any) -> list[torch.Tensor | None]:
    """The saved tensors of a function, None for those that unpacking refuses (there is no public form for one of them)."""
    found: list[torch.Tensor | None] = []
    for one in ctx._raw_saved_tensors:
        try:
            found.append(one.unpack())
        except (RuntimeError, AttributeError):  # PyTorch 2.11 unpacks all or none: then none is known to be good
            found.append(None)
    return found


def register_hooks_of(tensor: Any) -> None:
    """Tell the tensor's function of its dict of hooks (what `register_hook` does when it makes that dict)."""
    if tensor.grad_fn is not None:
        tensor.grad_fn._register_hook_dict(tensor)


def after_backward(call: Callable[[], None]) -> None:
    """Have the running backward pass call this when it ends (no public form)."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def has_mkl() -> bool:
    """Whether this build transforms with MKL, whose results have other strides than pocketfft's."""
    return bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]


def flash_attention_enabled() -> bool:
    """Whether the program lets attention use its fused kernel (the CPU's too, in spite of its name)."""
    return bool(torch.backends.cuda.flash_sdp_enabled())  # type: ignore[no-untyped-call]


@contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """Hides all `saved_tensors_hooks`, which would be given tensors without data (no public form).

    Hooks that change nothing, around the innermost, would not do: under any hooks autograd no longer notices that a
    saved tensor was written.
    """
    before = torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    try:
        yield
    finally:
        torch._C._autograd._saved_tensors_hooks_set_tracing(before)


class Beginning(interruptions.Beginning):
    """Also which modes are entered, and whether autograd records (the stacks of modes have no public form).

    `torch.set_flush_denormal` acts on this thread's arithmetic: constants are not to be computed with it.
    """

    __slots__ = ("_dispatch_modes", "_flushes", "_function_modes", "_grad")

    def __init__(self) -> None:
        super().__init__()
        self._function_modes, self._dispatch_modes = _mode_counts()
        self._grad = torch.is_grad_enabled()
        self._flushes = flushes_denormals()
        if self._flushes:
            torch.set_flush_denormal(False)

    def restore(self) -> None:
        super().restore()
        functions, dispatches = _mode_counts()
        for _ in range(functions - self._function_modes):
            torch._C._pop_torch_function_stack()
        for _ in range(dispatches - self._dispatch_modes):
            torch._C._pop_torch_dispatch_stack()
        torch._C._set_grad_enabled(self._grad)
        if self._flushes:
            torch.set_flush_denormal(True)


def flushes_denormals() -> bool:
    """Whether numbers close to zero become zero in this thread (PyTorch does not say)."""
    return _SMALLEST * 0.5 == 0.0


_SMALLEST = sys.float_info.min


def _mode_counts() -> tuple[int, int]:
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()


@contextmanager
def no_anomaly_mode() -> Iterator[None]:
    """`torch.autograd.detect_anomaly` would look for NaN in tensors without data."""
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    torch.set_anomaly_enabled(False)
    try:
        yield
    finally:
        torch.set_anomaly_enabled(*before)


def _rnn_layer(*args: Any) -> Any:
    """oneDNN's layer keeps the workspace that its backward reads only in grad mode, which compiled code runs without."""
    with torch._C._AutoDispatchBelowAutograd(), torch.enable_grad():
        return torch.ops.aten.mkldnn_rnn_layer.default(*args)


def _bernoulli(x: torch.Tensor, p: float = 0.5, *, generator: Any = None) -> torch.Tensor:
    """As `bernoulli_` draws, which it stands for: in the order of memory, not of positions."""
    return torch.empty_like(x).bernoulli_(p, generator=generator)


def _as_strided_scatter(
    room: torch.Tensor, value: torch.Tensor, size: Any, stride: Any, offset: int | None = None
) -> torch.Tensor:
    """Inside transforms, where the operator refuses, or writes the first of many values alone."""
    if is_transformed(room):
        written = room.clone()
        written.as_strided(size, stride, (offset or 0) - room.storage_offset()).copy_(value)
        return written
    count = room.untyped_storage().nbytes() // room.itemsize
    memory = room.as_strided((count,), (1,), 0) + value.new_zeros(())
    memory.as_strided(size, stride, offset or 0).copy_(value)
    return memory.as_strided(room.shape, room.stride(), room.storage_offset())


def _scattered(view: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """What gives a tensor with other values in its view. The operators give the copy the tensor's place in memory that is as
    large; what reads graphs takes results to begin where their memory does."""

    def run(room: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        made = _copy_from_start(room)
        view(made, *args, **kwargs).copy_(value)
        return made

    return run


def _copy_from_start(tensor: torch.Tensor) -> torch.Tensor:
    """A copy, with what lies between the elements."""
    if is_transformed(tensor) or not tensor.numel() or any(size > 1 and not step for size, step in zip(tensor.shape, tensor.stride())):
        return tensor.clone()
    count = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    memory = tensor.as_strided((count,), (1,), tensor.storage_offset()).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), 0)


# What runs, inside transforms, in place of operators that do other work there.
TRANSFORMED: dict[Any, Callable[..., Any]] = {torch.ops.aten.as_strided_scatter.default: _as_strided_scatter}
# What compiled code calls in place of an operator that does other work: without grad mode, or as its own pure form.
RUNS_AS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.mkldnn_rnn_layer.default: _rnn_layer,
    torch.ops.aten.bernoulli.p: _bernoulli,
    torch.ops.aten.diagonal_scatter.default: _scattered(torch.ops.aten.diagonal.default),
    torch.ops.aten.select_scatter.default: _scattered(torch.ops.aten.select.int),
    torch.ops.aten.slice_scatter.default: _scattered(torch.ops.aten.slice.Tensor),
}
# (operator, position) of results whose size only the operator itself knows.
OPAQUE_RESULTS = frozenset([(torch.ops.aten.mkldnn_rnn_layer.default, 3)])


def registered_fake(func: Any) -> Callable[..., Any] | None:
    """The Python function that `torch.library.register_fake` was given for an operator (stored without a public form)."""
    import torch._library.simple_registry as registry

    entry = registry.singleton.find(func.name().removesuffix(".default"))
    kernel = entry.fake_impl.kernel
    return None if kernel is None else kernel.func


def has_derivative(func: Any) -> bool:
    """Whether autograd has a kernel for an operator (no public form)."""
    kernels: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(kernels(func.name(), key) for key in ("Autograd", "AutogradCPU", "CompositeImplicitAutograd"))


CustomOperator: type = torch.library.CustomOpDef  # type: ignore[attr-defined]  # public, and not exported


def opoverload_of(made: Any) -> OpOverload[..., Any]:
    """The operator that `custom_op` made (no public form)."""
    found: OpOverload[..., Any] = made._opoverload
    return found


def custom_operator(func: Any) -> Any:
    """What `torch.library.custom_op` made of an operator, which holds its Python functions (no public form); None if it was
    made otherwise."""
    import torch._library.custom_ops as custom_ops

    return custom_ops.OPDEFS.get(func.name().removesuffix(".default"))


def has_only_kernels_of_its_own(func: Any) -> bool:
    """Whether `custom_op` alone registered kernels for an operator, and no effect or rule beside it (no public forms)."""
    import torch._library.custom_ops as custom_ops
    import torch._library.simple_registry as registry

    entry = registry.singleton.find(func.name().removesuffix(".default"))
    beside = (entry.effect._effect, entry.torch_dispatch_rules._data, len(entry.fake_impl.kernels) > 1)
    said = re.findall(r"registered at (.*?):\d+", torch._C._dispatch_dump(func.name()))
    return not any(beside) and set(said) == {custom_ops.__file__}


def python_derivative(func: Any) -> tuple[Callable[..., Any] | None, Callable[..., Any]] | None:
    """What `torch.library.register_autograd` was given for an operator made by `custom_op` (stored without a public form):
    how the context is set up, and the backward."""
    import torch._library.custom_ops as custom_ops

    made = custom_ops.OPDEFS.get(func.name().removesuffix(".default"))
    backward = getattr(made, "_backward_fn", None)
    return None if backward is None else (getattr(made, "_setup_context_fn", None), backward)


def counts_writes(func: Any) -> bool:
    """Whether PyTorch raises the versions of what an operator writes, whatever its kernel does (no public form)."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "ADInplaceOrView"))


def fake_context(getter: Callable[[], Any]) -> AbstractContextManager[Any]:
    """What `torch.library.get_ctx` returns meanwhile."""
    import torch._library.fake_impl as fake_impl

    context: AbstractContextManager[Any] = fake_impl.set_ctx_getter(getter)
    return context


def packed_layers(name: str) -> Callable[..., Any]:
    """Recurrent layers over packed sequences in Python ("lstm", "gru", "rnn_tanh", "rnn_relu"), which have no public name."""
    from torch._decomp import decompositions

    names = {"lstm": "lstm_data_impl", "gru": "gru_impl_data", "rnn_tanh": "rnn_tanh_data", "rnn_relu": "rnn_relu_data"}
    found: Callable[..., Any] = getattr(decompositions, names[name])
    return found


def is_distributed() -> bool:
    """Whether this process is one of a group that works together."""
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def default_group_facts() -> tuple[str, int, int] | None:
    """(name, size, this process's rank) of the default process group; None before there is one."""
    group = torch.distributed.group.WORLD if torch.distributed.is_available() else None
    return None if group is None else (group.group_name, group.size(), group.rank())


def group_name(group: Any) -> str | None:
    """The name by which a process group is found again; None if it is no group of this process."""
    return group.group_name if isinstance(group, torch.distributed.ProcessGroup) else None


def process_group(name: str) -> Any:
    """The process group of this name (no public form)."""
    namespace: Any = torch.distributed.distributed_c10d
    return namespace._resolve_process_group(name)


def reduction_name(reduction: Any) -> str:
    """The name of a reduction of `torch.distributed`; "" of one that has a factor."""
    named = torch.distributed.ReduceOp.RedOpType.__members__
    return next((name for name, one in named.items() if name != "PREMUL_SUM" and reduction == one), "")


def coalesces() -> bool:
    """Whether calls of `torch.distributed` are put together, to be made at the end of a block (no public form)."""
    return bool(torch.distributed.distributed_c10d._world.pg_coalesce_state)


def current_gpu() -> int:
    """Which GPU "cuda" means in this thread; 0 before the program uses any."""
    return torch.cuda.current_device() if torch.cuda.is_initialized() else 0  # type: ignore[no-untyped-call]


def current_stream_of() -> Callable[[int], int]:
    """Device's index -> its current stream as the driver's handle (CUDA builds alone have it; `torch.cuda.current_stream`
    makes an object, which takes as long as a launch)."""
    found: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
    return found


# number of a storage (see `storage_of`) -> how many tensors and others hold it (no public form).
storage_users: Callable[[int], int] = torch._C._storage_Use_Count


def end_allocations(device: torch.device, pool: Any) -> None:
    """Take a capture that failed from the allocator's list (`CUDAGraph.capture_end` leaves it there), as the end of
    `torch.cuda.use_mem_pool` does: while it is there, no capture may use the pool and memory is kept back."""
    torch._C._cuda_endAllocateToPool(device.index, pool)
    torch._C._cuda_releasePool(device.index, pool)


def copy_all(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Copy each source to its target: of many in a few launches (documented for other operators alone)."""
    if len(targets) == 1:
        targets[0].copy_(sources[0])
    elif targets:
        torch._foreach_copy_(list(targets), list(sources))


def copy_uncounted(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """The same, of writes that nobody is to notice. Kernels of GPUs for lists count theirs whoever calls them, so versions are
    set back (no public form)."""
    counted = tuple([target for target in targets if not target.is_inference()])
    versions = tuple([target._version for target in counted])
    with uncounted_writes():
        copy_all(targets, sources)
    if counted:
        torch._C._autograd._unsafe_set_version_counter(counted, versions)


def python_kernels_of_aten() -> list[str]:
    """Kernels that programs registered in Python for PyTorch's own operators: not shape functions, nor those of transforms,
    which PyTorch registers itself where it loads them and no entry serves."""
    others = ("/Meta", "/CUDA", "/MPS", "/XPU", "/FuncTorchBatched")
    return sorted(name for name in torch.library._impls if name.startswith("aten/") and not name.endswith(others))

"""Private names of torch that Pliant needs, in one place, so that a new torch release breaks these files alone.

In:     torch.
Out:    small functions and aliases, each with the reason why the public interface does not do; those of two themes have files
        of their own, and are imported from here too.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
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
from pliant.autograd_torch_adapter import DUAL_LEVEL as DUAL_LEVEL
from pliant.autograd_torch_adapter import SAVED_TENSOR_HOOKS as SAVED_TENSOR_HOOKS
from pliant.autograd_torch_adapter import after_backward as after_backward
from pliant.autograd_torch_adapter import autograd_time as autograd_time
from pliant.autograd_torch_adapter import call_backward_directly as call_backward_directly
from pliant.autograd_torch_adapter import copy_all as copy_all
from pliant.autograd_torch_adapter import copy_uncounted as copy_uncounted
from pliant.autograd_torch_adapter import direct_apply as direct_apply
from pliant.autograd_torch_adapter import dtype_of_gradient as dtype_of_gradient
from pliant.autograd_torch_adapter import dual_level as dual_level
from pliant.autograd_torch_adapter import engine_keeps_graph as engine_keeps_graph
from pliant.autograd_torch_adapter import engine_needs as engine_needs
from pliant.autograd_torch_adapter import forbids_writes as forbids_writes
from pliant.autograd_torch_adapter import give_to_records as give_to_records
from pliant.autograd_torch_adapter import gradients as gradients
from pliant.autograd_torch_adapter import is_view as is_view
from pliant.autograd_torch_adapter import minds_writes as minds_writes
from pliant.autograd_torch_adapter import no_anomaly_mode as no_anomaly_mode
from pliant.autograd_torch_adapter import recording as recording
from pliant.autograd_torch_adapter import register_hooks_of as register_hooks_of
from pliant.autograd_torch_adapter import running_function as running_function
from pliant.autograd_torch_adapter import saved_one_by_one as saved_one_by_one
from pliant.autograd_torch_adapter import saved_tensor_hooks as saved_tensor_hooks
from pliant.autograd_torch_adapter import seen_written as seen_written
from pliant.autograd_torch_adapter import uncounted_writes as uncounted_writes
from pliant.autograd_torch_adapter import without_base as without_base
from pliant.autograd_torch_adapter import without_saved_tensor_hooks as without_saved_tensor_hooks
from pliant.distributed_torch_adapter import AROUND_DATA_PARALLEL as AROUND_DATA_PARALLEL
from pliant.distributed_torch_adapter import COLLECTIVES as COLLECTIVES
from pliant.distributed_torch_adapter import FORWARD_OF_DATA_PARALLEL as FORWARD_OF_DATA_PARALLEL
from pliant.distributed_torch_adapter import coalesces as coalesces
from pliant.distributed_torch_adapter import default_group_facts as default_group_facts
from pliant.distributed_torch_adapter import gradient_bytes_at_a_time as gradient_bytes_at_a_time
from pliant.distributed_torch_adapter import group_name as group_name
from pliant.distributed_torch_adapter import is_distributed as is_distributed
from pliant.distributed_torch_adapter import process_group as process_group
from pliant.distributed_torch_adapter import reduction_name as reduction_name
from pliant.operators_torch_adapter import OPAQUE_RESULTS as OPAQUE_RESULTS
from pliant.operators_torch_adapter import RUNS_AS as RUNS_AS
from pliant.operators_torch_adapter import TRANSFORMED as TRANSFORMED
from pliant.operators_torch_adapter import CustomOperator as CustomOperator
from pliant.operators_torch_adapter import are_laid_out_alike as are_laid_out_alike
from pliant.operators_torch_adapter import batched_kernel_in_c as batched_kernel_in_c
from pliant.operators_torch_adapter import below_batches as below_batches
from pliant.operators_torch_adapter import counts_writes as counts_writes
from pliant.operators_torch_adapter import custom_operator as custom_operator
from pliant.operators_torch_adapter import fake_context as fake_context
from pliant.operators_torch_adapter import give_batched_kernel as give_batched_kernel
from pliant.operators_torch_adapter import give_differentiable_kernel as give_differentiable_kernel
from pliant.operators_torch_adapter import has_derivative as has_derivative
from pliant.operators_torch_adapter import has_only_kernels_of_its_own as has_only_kernels_of_its_own
from pliant.operators_torch_adapter import has_schema as has_schema
from pliant.operators_torch_adapter import is_composite as is_composite
from pliant.operators_torch_adapter import is_functorch_wrapped as is_functorch_wrapped
from pliant.operators_torch_adapter import is_transformed as is_transformed
from pliant.operators_torch_adapter import opoverload_of as opoverload_of
from pliant.operators_torch_adapter import packed_convolution as packed_convolution
from pliant.operators_torch_adapter import packed_layers as packed_layers
from pliant.operators_torch_adapter import packed_size as packed_size
from pliant.operators_torch_adapter import python_derivative as python_derivative
from pliant.operators_torch_adapter import python_kernels as python_kernels
from pliant.operators_torch_adapter import python_kernels_of_aten as python_kernels_of_aten
from pliant.operators_torch_adapter import registered_fake as registered_fake
from pliant.operators_torch_adapter import reorder_convolution_weight as reorder_convolution_weight
from pliant.operators_torch_adapter import shape_functions as shape_functions

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


def below_python_dispatch() -> AbstractContextManager[Any]:
    """Calls reach kernels directly: no dispatch mode and no `__torch_dispatch__` sees them (no public form)."""
    guard: AbstractContextManager[Any] = torch._C._DisableTorchDispatch()
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
DisableTorchDispatch = torch._C._DisableTorchDispatch  # PyTorch's own Python enters these two around its work
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
# `torch.backends.mkldnn.flags` sets it, nothing tells it
mkldnn_enabled: Callable[[], bool] = torch._C._get_mkldnn_enabled


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
hash_of_tensor = torch.Tensor.__hash__
copy_of_tensor, dlpack_of_tensor = torch.Tensor.__deepcopy__, torch.Tensor.__dlpack__
override_of_tensor: Any = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
dispatch_of_tensor: Any = torch.Tensor.__torch_dispatch__
apply_function: Any = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]
BYTES_OF_TENSOR = torch.Tensor.__basicsize__  # of its Python object
# Copies on write; none where this torch cannot make them.
lazy_clone: Callable[[torch.Tensor], torch.Tensor] | None = getattr(torch, "_lazy_clone", None)
# Dispatch modes as `TorchDispatchMode` (whose module is no public one) has them.
current_dispatch_mode: Callable[[], Any] = torch.utils._python_dispatch._get_current_dispatch_mode
without_dispatch_modes: Callable[[], AbstractContextManager[Any]] = torch.utils._python_dispatch._disable_current_modes
broadcast_to_tree: Any = torch.utils._pytree._broadcast_to_and_flatten


def optimizer_hooks() -> tuple[Any, Any]:
    """Hooks around the steps of all optimizers (registered by public functions, read by none)."""
    return _optimizer._global_optimizer_pre_hooks, _optimizer._global_optimizer_post_hooks


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


# Whether classes' `__torch_function__` is asked, whether modes' is not; how many modes are around the call.
asks_overrides = torch._C._is_torch_function_enabled
asks_no_modes = torch._C._is_torch_function_all_disabled
asks_for_modes: Callable[[], bool] = torch._C._is_torch_function_mode_enabled
count_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
count_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
# What this thread's calls pass in C++, by dispatch key, and the keys of dispatch modes.
KEY_QUESTIONS = (torch._C._dispatch_tls_is_dispatch_key_included, torch._C._dispatch_tls_is_dispatch_key_excluded)
KEYS_OF_MODES = (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot)

# Whether TorchScript's tracer records what this thread runs (`torch.jit.is_tracing` is the same, less direct).
is_script_tracing: Callable[[], bool] = torch._C._is_tracing


# Where `torch.fx.symbolic_trace` notes that it runs (the public forms warn, or answer for the peer's compiler too).
FX_TRACING = (_fx_tracer, "_is_fx_tracing_flag")


def is_fx_tracing() -> bool:
    """Whether `torch.fx.symbolic_trace` runs."""
    return bool(getattr(*FX_TRACING))


# Whether `torch.autocast` is on for any device: one C call, where the public form asks device by device.
any_autocast = torch._C._is_any_autocast_enabled
deterministic_algorithms = torch._C._get_deterministic_algorithms  # the public form calls it

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


# tensor -> the number of its storage object (`untyped_storage()._cdata`, without making an object for it).
storage_of: Callable[[torch.Tensor], int] = torch._C._storage_id  # type: ignore[attr-defined]  # not in its stubs


profiler: Any = torch.autograd.profiler  # its global `_is_profiler_enabled` tells whether one records


def has_mkl() -> bool:
    """Whether this build transforms with MKL, whose results have other strides than pocketfft's."""
    return bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]


def flash_attention_enabled() -> bool:
    """Whether the program lets attention use its fused kernel (the CPU's too, in spite of its name)."""
    return bool(torch.backends.cuda.flash_sdp_enabled())  # type: ignore[no-untyped-call]


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



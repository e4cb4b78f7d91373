"""Names of PyTorch's that programs come to, or that say what something is: modules, classes, functions, marks.

In:     torch.
Out:    aliases, and small functions over them.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeVar

import torch
import torch.fx
from torch._ops import HigherOrderOperator as HigherOrderOperator  # types without a public name: what operators are
from torch._ops import OpOverload as OpOverload
from torch._ops import OpOverloadPacket as OpOverloadPacket
from torch.optim import optimizer as _optimizer
from torch.utils import _foreach_utils
from torch.utils._device import DeviceContext as DeviceContext  # the mode behind `torch.set_default_device`

_C = torch._C
VERSION = torch.__version__
PACKAGE = os.path.dirname(torch.__file__)  # the folder of PyTorch's Python code

Function = TypeVar("Function", bound=Callable[..., Any])


@functools.cache
def numpy_on_tensors() -> Any:
    """PyTorch's implementation of NumPy's functions over tensors; importing it takes a while."""
    import torch._numpy as found

    return found


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


# Types that public functions give and take, without a public name of their own (and those of operators, above).
TensorBase = torch._C.TensorBase  # the class in C that `torch.Tensor` is made from
ParameterMeta: type = torch.nn.parameter._ParameterMeta  # type: ignore[attr-defined]

# Functions that PyTorch's Python calls, so that programs come to them: those in C by the namespace that holds them.
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

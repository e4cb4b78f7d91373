"""Functions of PyTorch that are written in C: which ones a capture may call.

In:     a builtin function, or a method of a tensor.
Out:    `is_known`: an operator, which the graph records as its schema says, or a function listed here.
Holds:  what is in no list is refused: called while capturing, it would act once and never again. The lists are names of
        functions without a schema; `tests/graph/test_torch_functions.py` tells what a new release adds.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from pliant.torch_adapter import C_NAMESPACES, C_OPERATORS, TensorBase, has_schema

# Questions about the build, the machine, and settings: their answers are guarded where a program can change them.
READS = frozenset(
    """
    _accelerator_getAccelerator _accelerator_getDeviceIndex _accelerator_hooks_device_count
    _accelerator_hooks_get_current_device _accelerator_isAllocatorInitialized _are_functorch_transforms_active
    _autocast_supported_devices _check_sparse_tensor_invariants _cxx_flags
    _debug_only_are_vmap_fallback_warnings_enabled _dispatch_find_schema_or_throw _dispatch_get_all_op_names
    _dispatch_has_backend_fallback _dispatch_has_computed_kernel_for_dispatch_key _dispatch_has_kernel
    _dispatch_has_kernel_for_any_dispatch_key _dispatch_has_kernel_for_dispatch_key _dispatch_is_alias_key
    _dispatch_is_included_in_alias _dispatch_key_for_device _dispatch_key_name _dispatch_key_parse
    _dispatch_num_backends _dispatch_tls_is_dispatch_key_excluded _dispatch_tls_is_dispatch_key_included
    _get_accelerator _get_all_dtypes _get_autograd_fallback_mode _get_backcompat_broadcast_warn
    _get_backcompat_keepdim_warn _get_blas_default_backend _get_blas_preferred_backend
    _get_cpu_allow_fp16_reduced_precision_reduction _get_cpu_capability _get_cublas_allow_bf16_reduced_precision_reduction
    _get_cublas_allow_fp16_accumulation _get_cublas_allow_fp16_reduced_precision_reduction _get_cublas_allow_tf32
    _get_cudnn_allow_tf32 _get_cudnn_batch_norm_reserve_space_size _get_cudnn_benchmark _get_cudnn_benchmark_limit
    _get_cudnn_depthwise_kernel _get_cudnn_deterministic _get_cudnn_enabled _get_cudnn_sdp_enabled
    _get_current_graph_task_keep_graph _get_default_device _get_deterministic_algorithms
    _get_deterministic_algorithms_warn_only _get_deterministic_fill_uninitialized_memory
    _get_dtensor_allow_implicit_replication _get_fa3_sdp_enabled _get_file_format _get_flash_sdp_enabled
    _get_float32_matmul_precision _get_fp32_precision_getter _get_function_stack_at
    _get_linalg_preferred_backend _get_math_sdp_allow_fp16_bf16_reduction _get_math_sdp_enabled
    _get_max_operator_version _get_mem_efficient_sdp_enabled _get_miopen_immediate _get_mkldnn_deterministic
    _get_mkldnn_enabled _get_nnpack_enabled _get_onednn_allow_tf32 _get_operation_overload _get_operator_version_map
    _get_overrideable_sdp_enabled _get_privateuse1_backend_name _get_qengine _get_rocm_fa_preferred_backend _get_schema
    _get_sdp_priority_order _get_sm_carveout_experimental _get_torch_function_state _get_tracing_state
    _get_version_calculator_flag _get_warnAlways _has_distributed _has_mkldnn _has_torch_function
    _has_torch_function_unary _has_torch_function_variadic _is_any_autocast_enabled _is_autocast_available
    _is_ck_sdpa_available _is_flash_attention_available _is_fwd_grad_enabled _is_grad_layout_enforcement_enabled
    _is_kineto_stopped _is_mps_available _is_multithreading_enabled _is_opaque_type_registered
    _is_torch_function_all_disabled _is_torch_function_enabled _is_torch_function_mode_enabled _is_tracing
    _is_view_replay_enabled _is_xnnpack_enabled _jit_get_schemas_for_operator _len_torch_dispatch_stack
    _len_torch_function_stack _llvm_enabled _mps_is_available _mps_is_on_macos_or_newer _mtia_isBuilt _parallel_info
    _parse_dispatch_key _parse_source_def _profiler_enabled _profiler_type _saved_tensors_hooks_get_disabled_error_message
    _saved_tensors_hooks_is_enabled _should_allow_numbers_as_tensors _show_config _supported_activities
    _supported_qengines _torchDeviceToDLDevice get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype
    get_autocast_ipu_dtype get_autocast_xla_dtype get_default_dtype get_num_interop_threads get_num_threads
    is_anomaly_check_nan_enabled is_anomaly_enabled is_autocast_cache_enabled is_autocast_cpu_enabled
    is_autocast_enabled is_autocast_ipu_enabled is_autocast_xla_enabled is_grad_enabled is_inference_mode_enabled
    kineto_available parse_schema
    _cuda_getArchFlags _cuda_getCompiledVersion _cuda_getDevice _cuda_getDeviceCount _cuda_isInBadFork
    _cuda_get_cudnn_benchmark_limit _cuda_isCurrentStreamCapturing _cuda_isHistoryEnabled _cuda_hasPrimaryContext
    """.split()
)
# They are made of operators, or do nothing that a program sees.
PURE = frozenset(
    "_infer_size _log_api_usage_metadata _log_api_usage_once _parse_to asarray dsmm from_numpy frombuffer hsmm saddmm spmm".split()
)
# Methods of tensors without a schema. The recorder refuses those of them that read memory.
METHODS = frozenset(
    """
    __add__ __array__ __bool__ __complex__ __div__ __eq__ __float__ __floordiv__ __ge__ __gt__ __iadd__ __idiv__
    __ifloordiv__ __imod__ __imul__ __index__ __int__ __invert__ __isub__ __le__ __len__ __long__ __lt__ __matmul__
    __mod__ __mul__ __ne__ __nonzero__ __radd__ __rand__ __repr__ __rmul__ __ror__ __rxor__ __setitem__ __str__ __sub__
    __truediv__ __dir__ __format__ __init__ __new__ __reduce__ __reduce_ex__ __sizeof__ __subclasshook__ __init_subclass__
    __get__ __set__ __getstate__
    _is_view _make_subclass _make_wrapper_subclass apply_ bfloat16 bool byte cdouble cfloat char data_ptr double float
    half int ipu long map2_ map_ mtia ndimension nelement new new_tensor numpy short tolist type untyped_storage xpu
    """.split()
)


def _is_known_builtin(function: types.BuiltinFunctionType) -> bool:
    receiver = function.__self__
    owner: Any = receiver if issubclass(type(receiver), type) else type(receiver)
    of_tensors = issubclass(owner, TensorBase)
    return _is_method(function.__name__) if of_tensors else _is_listed(function)


@functools.lru_cache(maxsize=4096)
def _is_listed(function: types.BuiltinFunctionType) -> bool:
    name = function.__name__
    if function in _builtins(C_OPERATORS) and has_schema(name):
        return True
    return (name in READS or name in PURE) and function in _builtins(C_NAMESPACES)


@functools.lru_cache(maxsize=4096)
def _is_method(name: str) -> bool:
    return name in METHODS or has_schema(name) or has_schema(name.rstrip("_"))


_KNOWN: dict[type, Callable[[Any], bool]] = {
    types.BuiltinFunctionType: _is_known_builtin,
    types.MethodDescriptorType: lambda function: _is_method(function.__name__),
}


def is_known(function: Any) -> bool:
    """Whether the function, or the method of this name, does nothing but what the graph records."""
    rule = _KNOWN.get(type(function))
    return rule is None or rule(function)


@functools.cache
def _builtins(owners: tuple[Any, ...]) -> frozenset[Any]:
    """The C functions of namespaces."""
    values = [getattr(owner, name, None) for owner in owners for name in dir(owner)]
    return frozenset(value for value in values if type(value) is types.BuiltinFunctionType and _hashes(value))


def _hashes(function: types.BuiltinFunctionType) -> bool:
    """Functions of objects that cannot be hashed cannot be either."""
    try:
        hash(function)
    except TypeError:
        return False
    return True


def all_functions() -> frozenset[Any]:
    """All C functions of PyTorch's own namespaces."""
    return _builtins(C_NAMESPACES)

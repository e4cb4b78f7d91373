"""C functions of PyTorch that no schema describes: listed, or refused."""

import re

import pytest
import torch

import pliant
from pliant.capture import callables
from pliant.capture.handlers.table import find
from pliant.capture.recording.torch_calls import _changes_setting
from pliant.graph import torch_functions

# Where the package's lists were last held against a release: a newer one may have more.
LOOKED_AT = (2, 13)
RELEASE = tuple(int(n) for n in re.findall(r"\d+", torch.__version__)[:2])


def unlisted() -> set[str]:
    """Names of C functions that are called as they are, by no list, no row and no schema."""
    assert callables
    functions = [f for f in torch_functions.all_functions() if find(f) is None and not _changes_setting(f)]
    return {f.__name__ for f in functions if not torch_functions.is_known(f)}


def test_a_function_without_a_schema_breaks_the_graph_and_acts_each_time():
    """Called while capturing alone, it would act once."""
    flag = torch._C._debug_only_are_vmap_fallback_warnings_enabled
    set_flag = torch._C._debug_only_display_vmap_fallback_warnings
    before = flag()

    def program(x):
        set_flag(not before)
        return x * 2

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    try:
        for _ in range(3):
            set_flag(before)
            compiled(torch.ones(3))
            assert flag() is not before
    finally:
        set_flag(before)
    assert pliant.stats()["graph_breaks"]


@pytest.mark.parametrize("name", ["_jit_set_bailout_depth", "_accelerator_emptyCache", "_skip_one_hop_torch_function", "fork"])
def test_what_acts_is_in_no_list(name):
    assert name in unlisted() and name not in torch_functions.READS | torch_functions.PURE


@pytest.mark.parametrize("function", [torch.add, torch._C._nn.gelu, torch._C._linalg.linalg_inv, torch.Tensor.add_, torch.get_default_dtype])
def test_operators_and_questions_are_known(function):
    assert torch_functions.is_known(function)


def test_a_new_release_adds_no_reader_unseen():
    """Functions whose names say that they read, and which no list has: each belongs to `READS`, or below with why."""
    if RELEASE > LOOKED_AT:
        pytest.skip("lists are those of an older release: what is new is refused")
    asks = re.compile(r"_*(get|is|are|has|can|have)_")
    assert {name for name in unlisted() if asks.match(name)} <= SEEN


# What tells of tensors (a capture has others), of threads, of files, or makes something.
SEEN = frozenset(
    """
    _has_Standard_Deleter
    _can_use_cudnn_attention _can_use_flash_attention _can_use_mem_efficient_attention
    _get_DTensor_sharding_propagator_cache_stats _get_caught_jit_exception_class_name
    _get_caught_jit_exception_original_msg _get_constant_bool_symnode _get_cpp_backtrace _get_creation_meta
    _get_custom_class_python_wrapper _get_data_attr _get_dispatch_mode _get_dispatch_stack_at _get_graph_exec_group
    _get_graph_executor_optimize
    _get_mobile_model_contained_types _get_mobile_model_contained_types_from_buffer _get_model_bytecode_version
    _get_model_bytecode_version_from_buffer _get_model_extra_files _get_model_extra_files_from_buffer
    _get_model_ops_and_info _get_model_ops_and_info_from_buffer _get_module_info_from_flatbuffer _get_nested_int
    _get_obj_in_tls _get_sequence_nr _get_tensor_metadata _get_thread_name _get_upgrader_ranges
    _get_upgraders_entry_map _get_upgraders_map_size _get_value_trace _has_storage _has_tensorexpr_cpp_tests
    _is_alias_of _is_cached_tensor _is_cow_tensor _is_default_mobile_cpu_allocator_set _is_key_in_tls
    """.split()
)

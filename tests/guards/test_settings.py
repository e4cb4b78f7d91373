"""What Python can ask PyTorch of its settings is guarded: each one is changed behind a compiled function that asks."""

import re
import types
import warnings

import pytest
import torch

import pliant
from pliant.graph.torch_functions import READS
from pliant.guards.settings import KERNEL_SETTINGS

# Setters whose question has another name: question -> (setter, the other value)
NAMED = {
    "_get_cudnn_sdp_enabled": "_set_sdp_use_cudnn",
    "_get_flash_sdp_enabled": "_set_sdp_use_flash",
    "_get_math_sdp_enabled": "_set_sdp_use_math",
    "_get_mem_efficient_sdp_enabled": "_set_sdp_use_mem_efficient",
    "_get_overrideable_sdp_enabled": "_set_sdp_use_overrideable",
    "_get_math_sdp_allow_fp16_bf16_reduction": "_set_math_sdp_allow_fp16_bf16_reduction",
}
OTHER = {
    "_get_float32_matmul_precision": "medium",
    "_get_autograd_fallback_mode": "nothing",
    "_get_cudnn_depthwise_kernel": "cudnn",
    "_get_sdp_priority_order": [0, 1, 2, 3, 4],
    "get_num_threads": torch.get_num_threads() + 1,
    "get_default_dtype": torch.float64,
    "get_autocast_cpu_dtype": torch.float16,
    "get_autocast_gpu_dtype": torch.bfloat16,
}
# They change what runs rather than what is told, or cannot be changed here; `None` would undo them.
LEFT = re.compile(
    r"_jit_|torch_function|tracing|has_|_mps_|grad_enabled|multithreading|autocast_(ipu|xla|gpu|cpu)?_?enabled"
)


def pairs():
    """(question, setter) of torch._C without arguments."""
    for name in sorted(dir(torch._C)):
        question = getattr(torch._C, name)
        if not isinstance(question, types.BuiltinFunctionType) or LEFT.search(name):
            continue
        if not re.match(r"_*(get|is|are)_", name):
            continue
        twin = NAMED.get(name, re.sub(r"^(_*)(get|is|are)_", r"\1set_", name))
        if hasattr(torch._C, twin) and _needs_nothing(question):
            yield name, twin


def _needs_nothing(question) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            question()
        except TypeError:
            return False
    return True


def other_value(name, now):
    if name in OTHER:
        return OTHER[name]
    if type(now) is bool:
        return not now
    if type(now) is tuple and type(now[0]) is bool:
        return not now[0]
    if hasattr(type(now), "__members__"):
        return next(m for m in type(now).__members__.values() if m != now)
    return None


def put(setter, value):
    setter(*value) if type(value) is tuple else setter(value)


@pytest.mark.parametrize(("name", "twin"), list(pairs()))
@pytest.mark.filterwarnings("ignore")
def test_each_setting_of_pytorch(name, twin):
    ask, setter = getattr(torch._C, name), getattr(torch._C, twin)
    old = ask()
    new = other_value(name, old)
    if new is None:
        pytest.skip("has no other value that is known")

    @pliant.compile(backend="eager")
    def told(x):
        return x + 1 if ask() == old else x - 1

    x = torch.zeros(2)
    assert told(x)[0] == 1
    try:
        put(setter, new)
    except (RuntimeError, TypeError):
        pytest.skip("is not to be changed here")
    try:
        changed = ask() != old
        assert told(x)[0] == (-1 if changed else 1)
    finally:
        put(setter, old)
    assert told(x)[0] == 1


PUBLIC = {
    "math_sdp": (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp, False),
    "flash_sdp": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp, False),
    "fp16_bf16_reduction": (
        torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed,
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp,
        True,
    ),
    "autocast dtype while it is off": (
        lambda: torch.get_autocast_dtype("cpu"),
        lambda v: torch.set_autocast_dtype("cpu", v),
        torch.float16,
    ),
    "autocast cache while it is off": (
        torch.is_autocast_cache_enabled,
        torch.set_autocast_cache_enabled,
        False,
    ),
    "fast path of attention": (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled, False),
    "matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "warn only": (
        torch.is_deterministic_algorithms_warn_only_enabled,
        lambda v: torch._C._set_deterministic_algorithms(False, warn_only=v),
        True,
    ),
    "einsum": (
        lambda: torch.backends.opt_einsum.strategy,
        lambda v: setattr(torch.backends.opt_einsum, "strategy", v),
        "greedy",
    ),
    "onednn": (
        lambda: torch.backends.mkldnn.enabled,
        lambda v: setattr(torch.backends.mkldnn, "enabled", v),
        False,
    ),
    "reduced precision": (
        lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        lambda v: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", v),
        False,
    ),
    "tf32": (
        lambda: torch.backends.cudnn.allow_tf32,
        lambda v: setattr(torch.backends.cudnn, "allow_tf32", v),
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_setting(name):
    ask, put, new = PUBLIC[name]
    old = ask()

    @pliant.compile(backend="eager")
    def told(x):
        return x + 1 if ask() == old else x - 1

    x = torch.zeros(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert told(x)[0] == 1
        allowed = torch.backends.__allow_nonbracketed_mutation  # PyTorch's own test databases freeze such flags
        try:
            with allowed():
                put(new)
            assert ask() != old
            assert told(x)[0] == -1
        finally:
            with allowed():
                put(old)
        assert told(x)[0] == 1


def test_a_block_restores_what_the_caller_set():
    """The kernels chosen before a block are read at its start and set again at its end."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def block(x):
        with sdpa_kernel(SDPBackend.MATH):
            y = x + torch.backends.cuda.flash_sdp_enabled()
        return y + 2 * torch.backends.cuda.flash_sdp_enabled()

    compiled, x = pliant.compile(block, backend="eager"), torch.zeros(2)
    assert compiled(x)[0] == block(x)[0] == 2
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        assert compiled(x)[0] == block(x)[0] == 0
        assert not torch.backends.cuda.flash_sdp_enabled()
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
    assert compiled(x)[0] == 2
    assert torch.backends.cuda.flash_sdp_enabled()


def test_kernels_of_one_operation_set_apart():
    """PyTorch then refuses to answer for all operations: the program's own question fails, and nothing else does."""
    precision = torch.backends.cudnn.conv
    old = precision.fp32_precision
    pliant.reset()
    compiled = pliant.compile(lambda x: (x + 1, precision.fp32_precision), backend="eager")
    with torch.backends.__allow_nonbracketed_mutation():
        try:
            for value in ("tf32", "ieee", "tf32"):
                precision.fp32_precision = value
                assert compiled(torch.zeros(2))[1] == value
        finally:
            precision.fp32_precision = old
    assert pliant.stats()["fallbacks"] == 0


def test_all_that_the_flags_of_cudnn_ask_and_set_is_known():
    """By the names that every build's Python has; those that only builds for GPUs have as C functions are no exception."""
    names = [n for n in torch.backends.cudnn.set_flags.__code__.co_names if re.match(r"_(cuda_)?[gs]et_cudnn_", n)]
    assert len(names) > 8 and not [n for n in names if "get_" in n and n not in READS]
    rows = {f.__name__ for one in KERNEL_SETTINGS for f in (one.getter, one.setter)}
    assert not [n for n in names if hasattr(torch._C, n) and n not in rows]

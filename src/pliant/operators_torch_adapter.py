"""Private names of torch: what operators are registered with, and those that run in place of others.

In:     torch.
Out:    small functions and tables, each with the reason why the public interface does not do; `torch_adapter` has them all.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._ops import OpOverload

from pliant import background
from pliant.regular import pattern


def is_composite(func: Any) -> bool:
    """Whether calling the operator only calls others (its CompositeImplicitAutograd kernel).

    `OpOverload._can_decompose` looks at the same registration, and has no public form. Where an operator has a kernel for
    descriptions of tensors as well, devices have kernels of their own, which eager prefers (silu_backward).
    """
    kernels: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key
    return kernels(func.name(), "CompositeImplicitAutograd") and not kernels(func.name(), "Meta")


_KEYS = torch._C.DispatchKey
_BATCHED = _KEYS.FuncTorchBatched
# Where derivatives are recorded: for an operator with a derivative of its own; for a composition.
_RECORDED, _COMPOSED = (_KEYS.AutogradCPU, _KEYS.AutogradCUDA), (_KEYS.CompositeImplicitAutograd,)


_CASTING = {"cpu": _KEYS.AutocastCPU, "cuda": _KEYS.AutocastCUDA, "xpu": _KEYS.AutocastXPU, "mps": _KEYS.AutocastMPS}  # type: ignore[attr-defined]


class _Cast(threading.local):
    """Devices on which all that a thread calls just now belongs to an operator that autocast casts as a whole."""

    devices: frozenset[str] = frozenset()


_cast = _Cast()


@contextlib.contextmanager
def casting_below(func: Any) -> Iterator[None]:
    """A block for the operators that a composite one calls, which are cast as a program's unless it is cast as a whole.

    Inference mode hands composite operators on as they are, and PyTorch switches casts off while Python handles one: no
    public form says which operators have casts, or switches them on again.
    """
    kernels: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key
    on = {device: _CASTING[device] for device in _casts_at_call()}
    before = _cast.devices
    _cast.devices = before.union(device for device, key in on.items() if kernels(func.name(), key.name))
    try:
        with contextlib.ExitStack() as block:
            for device in on.keys() - _cast.devices:
                block.enter_context(torch._C._SetExcludeDispatchKeyGuard(on[device], False))
            yield
    finally:
        _cast.devices = before


def _casts_at_call() -> list[str]:
    """The devices whose casts are on around the operator that Python handles: none if it handles none."""
    try:
        with torch._C._RestorePythonTLSSnapshot():  # type: ignore[attr-defined]
            return [device for device in _CASTING if torch.is_autocast_enabled(device)]
    except RuntimeError:
        return []


def python_kernels() -> AbstractContextManager[Any]:
    """The dispatcher takes kernels that `torch._decomp` registers in Python before those in C++ (no public form)."""
    if OpOverload._get_dispatch is not _kernel_found:
        OpOverload._get_dispatch = _kernel_found  # type: ignore[method-assign, assignment]
    guard: AbstractContextManager[Any] = torch._C._EnablePythonDispatcher()
    return guard


def _kernel_found(op: OpOverload[..., Any], key: Any) -> Any:
    """What PyTorch's `_get_dispatch` finds for an operator that the dispatcher has not called yet. It asserts that none was
    found before, which another thread may have done since this one looked."""
    with _finding:
        known = op._dispatch_cache.get(key)
        return _find_kernel(op, key) if known is None else known


_find_kernel = OpOverload._get_dispatch
_finding = background.reentrant_lock()  # garbage that is collected meanwhile may call operators


def give_batched_kernel(op: Any, kernel: Callable[..., Any]) -> None:
    """What computes the operator on tensors with a batch of `vmap` while `python_kernels` are taken (no public form)."""
    op.py_impl(_BATCHED)(kernel)


def batched_kernel_in_c(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """PyTorch's own kernel for them."""
    return op._op_dk(_BATCHED, *args, **kwargs)


def give_differentiable_kernel(op: Any, kernel: Callable[..., Any]) -> None:
    """What computes the operator where derivatives are recorded, while `python_kernels` are taken (no public form). The kernel
    gets PyTorch's own in front of the arguments."""
    for key in _COMPOSED if is_composite(op) else _RECORDED:
        # Most formulas are registered for all devices at once. Asked for one that has none of its own, PyTorch calls the kernel
        # of operators without derivatives, which drops tangents.
        in_c = key if op.has_kernel_for_dispatch_key(key) else _KEYS.Autograd
        op.py_impl(key)(functools.partial(kernel, functools.partial(op._op_dk, in_c)))


def below_batches() -> AbstractContextManager[Any]:
    """Inside a batched kernel: operators are those of the transforms around `vmap` (no public form)."""
    guard: AbstractContextManager[Any] = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_BATCHED))
    return guard


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


def has_schema(name: str) -> bool:
    """Whether there is an operator of PyTorch's own of this name, whose schema says what it writes (no public form)."""
    return bool(torch._C._jit_get_schemas_for_operator(f"aten::{name}"))


def is_functorch_wrapped(tensor: torch.Tensor) -> bool:
    """Whether `vmap` or `grad` wrapped the tensor (no public test exists)."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


_is_wrapped: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor
_is_batched: Callable[[torch.Tensor], bool] = torch._C._functorch.is_legacy_batchedtensor


def is_transformed(tensor: torch.Tensor | None) -> bool:
    """Whether the tensor stands for others inside a transform, `is_grads_batched` among them (no public form)."""
    return tensor is not None and (_is_wrapped(tensor) or _is_batched(tensor))


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


_ROW_ALIGNMENT = 16  # bytes


def _of_aligned(operator: Callable[..., Any]) -> Callable[..., Any]:
    """What calls attention with copies of tensors that begin at odd places: its kernels end the program where they read rows
    from there."""

    def aligned(value: Any) -> Any:
        lies = type(value) is torch.Tensor and not is_transformed(value)
        return value.clone() if lies and value.data_ptr() % _ROW_ALIGNMENT else value

    def run(*args: Any, **kwargs: Any) -> Any:
        return operator(*map(aligned, args), **{name: aligned(value) for name, value in kwargs.items()})

    return run


# What runs, inside transforms, in place of operators that do other work there: samples of a batch may lie otherwise than what
# was traced, and a view takes them only as they were.
TRANSFORMED: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.as_strided_scatter.default: _as_strided_scatter,
    **dict.fromkeys((torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default), torch.ops.aten.reshape.default),
}
# Kernels of GPUs that read 16 bytes at a time.
_ALIGNED_ATTENTION = tuple(
    getattr(torch.ops.aten, f"_scaled_dot_product_{kind}_attention{way}").default
    for kind in ("cudnn", "flash")
    for way in ("", "_backward")
)
# What compiled code calls in place of an operator that does other work: without grad mode, or as its own pure form.
RUNS_AS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.mkldnn_rnn_layer.default: _rnn_layer,
    torch.ops.aten.bernoulli.p: _bernoulli,
    torch.ops.aten.diagonal_scatter.default: _scattered(torch.ops.aten.diagonal.default),
    torch.ops.aten.select_scatter.default: _scattered(torch.ops.aten.select.int),
    torch.ops.aten.slice_scatter.default: _scattered(torch.ops.aten.slice.Tensor),
    **{operator: _of_aligned(operator) for operator in _ALIGNED_ATTENTION},
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


def python_kernels_of_aten() -> list[str]:
    """Kernels that programs registered in Python for PyTorch's own operators: not shape functions, nor those of devices that
    no code is generated for, or that the program has not used, nor those that PyTorch registers itself where it loads them."""
    uses_gpus = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    others = ("/Meta", "/MPS", "/XPU", *(() if uses_gpus else ("/CUDA",)))
    # In this order: of some two thousand names most end so.
    found = [name for name in torch.library._impls if not name.endswith(others) and name.startswith("aten/")]
    return sorted(name for name in found if not _is_registered_by_pytorch(name))


def _is_registered_by_pytorch(name: str) -> bool:
    """Whether a kernel comes from PyTorch's own files. Nothing but the dispatcher's text tells from where a kernel was registered;
    what programs register through `torch.library`'s functions seems to come from there."""
    namespace, operator, key = name.split("/")
    for line in torch._C._dispatch_dump(f"{namespace}::{operator}").splitlines():
        if (found := _REGISTERED.match(line)) and found[1] == key:
            file = found[2]
            return file.startswith(f"{_PACKAGE}/") and not file.startswith((f"{_PACKAGE}/library.py", f"{_PACKAGE}/_library/"))
    return False


_PACKAGE = os.path.dirname(torch.__file__)
_REGISTERED = pattern(r"(\w+)(?:\[alias\])?: registered at (.*):\d+ ::")


def has_library_convolution(dtype: torch.dtype) -> bool:
    """Whether oneDNN convolves volumes of this dtype on this processor, as it is switched now. Which kernel PyTorch selects
    has no public form; what it is asked of are sizes, those of a call that no other kernel serves as well."""
    image, weight = torch.empty(1, dtype=dtype).expand(16, 2, 1, 1, 1), torch.empty(1, dtype=dtype).expand(2, 1, 1, 1, 1)
    chosen = torch._C._select_conv_backend(image, weight, None, [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 2)
    return bool(chosen.name == "Mkldnn")

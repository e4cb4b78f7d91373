"""Private names of torch: autograd's engine, versions of tensors, hooks on what is saved.

In:     torch.
Out:    small functions and aliases, each with the reason why the public interface does not do; `torch_adapter` has them all.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import _engine_run_backward


def dual_level() -> int:
    """Depth of the `forward_ad.dual_level` blocks around the call, from -1 (no public form)."""
    return torch.autograd.forward_ad._current_level


# The module and the name of that depth, for generated code that reads it without a call.
DUAL_LEVEL = (torch.autograd.forward_ad, "_current_level")
SAVED_TENSOR_HOOKS = (torch._C._autograd._push_saved_tensors_default_hooks, torch._C._autograd._pop_saved_tensors_default_hooks)
# The innermost `saved_tensors_hooks` (no public form); True: also where they are hidden while tracing.
saved_tensor_hooks: Callable[[bool], tuple[Any, Any] | None] = torch._C._autograd._top_saved_tensors_default_hooks


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


def minds_writes(tensor: torch.Tensor) -> bool:
    """Whether autograd minds, at this tensor, a write of any other in the same storage, though they share no element.

    Empty tensors share their versions (with what is written of them, too); one of several views of a call may not be used after a
    write (no public form).
    """
    if not tensor.numel():
        return True
    several: Any = torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE
    return tensor.requires_grad and tensor._is_view() and bool(torch._C._autograd._get_creation_meta(tensor) == several)


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


def apart(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in the same memory that is no view to autograd, and has been written as often."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        found: torch.Tensor = torch.ops.aten.alias.default(tensor)
    if not tensor.is_inference():
        torch.autograd.graph.increment_version([found] * tensor._version)
    return found


def seen_written(values: Sequence[Any]) -> Sequence[Any]:
    """Values to save for a backward; those that are views, made while nothing records, by what they lie in: unpacking a view
    whose base was written since is another error than eager's."""
    return [value.detach() if type(value) is torch.Tensor and is_view(value) else value for value in values]


def direct_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` less its search for `torch.func` transforms, half of its time: where guards say there are none."""
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply


def give_to_records(function: type[torch.autograd.Function], **values: Any) -> None:
    """Attributes that the record of every call of `function` has before any is set (no public form names its class)."""
    for name, value in values.items():
        setattr(function._backward_cls, name, value)


def call_backward_directly(function: type[torch.autograd.Function]) -> None:
    """Have the engine call `function.backward`, not what looks for it and for a `vjp` in each call (no public form names
    the class)."""
    give_to_records(function, apply=function.backward)


def autograd_time() -> int:
    """The number that the next function of autograd's graph gets in this thread (no public form)."""
    return int(torch._C._autograd._get_sequence_nr())


def running_function() -> Any:
    """The function of autograd's graph whose derivative this thread computes, or None (no public form)."""
    return torch._C._current_autograd_node()


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


def asks_for_leaves() -> bool:
    """Whether `engine_needs` has found a leaf that `autograd.grad`, the running pass, was asked for."""
    return bool(_asked_leaves.ids) and _asked_leaves.task == torch._C._current_graph_task_id()


def results_asked_for(node: Any) -> frozenset[int] | None:
    """Of which results of this function of autograd's graph the running pass was asked for gradients; None where the call
    of the engine is not on this thread's stack (no public form: the engine tells of functions alone)."""
    edges = edges_asked_for()
    return None if edges is None else frozenset(number for function, number in edges if function is node)


def edges_asked_for() -> frozenset[tuple[Any, int]] | None:
    """The results of functions, no leaves, of which the running pass was asked for gradients; None as above."""
    task = torch._C._current_graph_task_id()
    if _asked_edges.task == task:
        return _asked_edges.edges
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code is not _engine_run_backward.__code__:
        frame = frame.f_back
    given: Any = () if frame is None else frame.f_locals.get("args", ())
    if len(given) < 4:  # the tangents, two flags, what is asked for
        return None
    edges = [(one.grad_fn, one.output_nr) if isinstance(one, torch.Tensor) else tuple(one)[:2] for one in given[3] or ()]
    found = frozenset((function, number) for function, number in edges if function is not None)
    if task != -1:
        _asked_edges.keep(task, found)
    return found


class _AskedEdges(threading.local):
    """What this thread's running pass was asked for, until it ends."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.task, self.edges = -2, frozenset[tuple[Any, int]]()

    def keep(self, task: int, edges: frozenset[tuple[Any, int]]) -> None:
        self.task, self.edges = task, edges
        after_backward(self.forget)


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


_asked_edges, _asked_leaves = _AskedEdges(), _AskedLeaves()
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


def register_hooks_with(function: Any, tensor: Any) -> None:
    """The same of a function of a class that `ask_for_first_hooks` was told of."""
    BackwardCFunction._register_hook_dict(function, tensor)


def ask_for_first_hooks(function: type[torch.autograd.Function], call: Callable[[Any, Any], None]) -> None:
    """Have `register_hook` call this, of the record and the result, once a result has a dict for its first hook."""
    give_to_records(function, _register_hook_dict=call)


def after_backward(call: Callable[[], None]) -> None:
    """Have the running backward pass call this when it ends (no public form)."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


_OF_SEVERAL = "register_multi_grad_hook.<locals>.get_inner_hook.<locals>.inner_hook"


def tell_missing(hook: Any) -> None:
    """Tell the hook of a tensor that the running backward pass brings it no gradient, if it is one of
    `register_multi_grad_hook`: that waits for all whose function the engine runs (its names are not public). Without a
    gradient of another tensor, which may come later in the pass, it is not called."""
    if getattr(hook, "__qualname__", "") != _OF_SEVERAL:
        return
    counts = dict(zip(hook.__code__.co_freevars, hook.__closure__))["count"].cell_contents
    task = torch._C._current_graph_task_id()
    if counts.get(task):
        hook(None)
    else:
        after_backward(lambda: hook(None) if counts.get(task) else None)


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


@contextmanager
def no_anomaly_mode() -> Iterator[None]:
    """`torch.autograd.detect_anomaly` would look for NaN in tensors without data."""
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    torch.set_anomaly_enabled(False)
    try:
        yield
    finally:
        torch.set_anomaly_enabled(*before)


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

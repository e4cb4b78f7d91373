"""What autograd's graph of a traced program says: which result leads to which input, and where results are found.

In:     the fakes that a traced program returned and those it was given.
Out:    `reached_by`: for each input, the results whose gradient reaches it. `sharing`: which results' gradients cannot be
        had one after the other. `find_roots`: results in terms of outputs.
Holds:  a gradient reaches an input exactly where eager's engine would carry one, zero or not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.autograd.graph import get_gradient_edge

from pliant import torch_adapter
from pliant.errors import Unsupported
from pliant.records import dataclass

if TYPE_CHECKING:
    from pliant.autograd.aliases import Alias
    from pliant.graph.fake_tensor import FakeTensor

Node = Any  # torch.autograd.graph.Node: a function of autograd's graph


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """A hook that the program puts on a tensor it computes: the call that does, and which gradient the hook is given."""

    node: fx.Node
    gradient: tuple[Any, int]


def gradient_of(tensor: torch.Tensor) -> tuple[Any, int]:
    """Which gradient is the tensor's: the function that receives it (of a leaf: the leaf), and as which of its results."""
    function = function_since(tensor)
    return (tensor, 0) if function is None else (function, tensor.output_nr)


def has_accumulator(leaf: torch.Tensor) -> bool:
    """Whether gradients of a tensor without history are added up in it: not so for views made while nothing was recorded."""
    try:
        get_gradient_edge(leaf)
    except AssertionError:  # it says that it requires grad, and leads nowhere
        return False
    return True


def hooks_to_keep(hooks: Iterable[Hook], seen: Sequence[FakeTensor]) -> list[fx.Node]:
    """The calls that hook what the caller gets, or what a view that the caller gets is a view of."""
    gradients = set(map(gradient_of, seen))
    for one in seen:
        alias: Alias | None = one.node.parent
        while alias is not None and alias.parent is not None:  # not the base: what it is given back is computed
            gradients.add(gradient_of(alias.fake))
            alias = alias.parent
    return [hook.node for hook in hooks if hook.gradient in gradients]


def tensors_given(hooks: Iterable[fx.Node], values: Mapping[fx.Node, Any]) -> list[FakeTensor]:
    """What has a history of the tensors that these hooks are on and close over, in the trace that gave `values`."""
    found = [values[node] for hook in hooks for node in hook.all_input_nodes if node in values]
    return [one for one in found if _is_fake(one) and one.requires_grad]


def functions_to(results: Sequence[torch.Tensor]) -> dict[Node, int]:
    """For each function behind the results which of them lead to it, as bits."""
    bits: dict[Node, int] = {}
    for position, result in enumerate(results):
        assert result.grad_fn is not None
        led_on = not _ends_at(result.grad_fn, result.output_nr)
        bits[result.grad_fn] = bits.get(result.grad_fn, 0) | led_on << position
    for node in functions_behind(list(bits)):
        mine = bits.get(node, 0)
        for following, number in node.next_functions:
            if following is not None and not _ends_at(following, number):
                bits[following] = bits.get(following, 0) | mine
    return bits


# Results of operators with several of whose gradients, while they are real, eager's formula makes none.
_ENDING = frozenset((("LinalgSlogdetBackward0", 0),))


def _ends_at(node: Node, number: int) -> bool:
    """Whether the function makes no gradient of that of its result of this number."""
    return (node.name(), number) in _ENDING and not torch_adapter.dtype_of_gradient(node, number).is_complex


def reached_by(results: Sequence[torch.Tensor], inputs: Sequence[Any], given: Sequence[Any]) -> list[int]:
    """For each input (a leaf, or None) the set of results whose gradient reaches it, as bits. `given`: the inputs themselves.

    Raises `Unsupported` where a function is not to be differentiated twice: the engine is to meet what raises an error; and
    where an input without a leaf, which required no gradient when it came, was told to and gets one.
    """
    leaves: dict[int, int] = {}
    for node, mine in functions_to(results).items():
        if node.name() == "torch::autograd::Error":
            raise Unsupported("a gradient that is not differentiable is differentiated", kind="once-differentiable")
        variable = getattr(node, "variable", None)  # AccumulateGrad's
        if variable is not None:
            leaves[id(variable)] = leaves.get(id(variable), 0) | mine
    if any(leaf is None and id(one) in leaves for leaf, one in zip(inputs, given)):
        raise Unsupported("an input is to get gradients that required none when it came", kind="metadata-mutation")
    return [0 if leaf is None else leaves.get(id(leaf), 0) for leaf in inputs]


def sharing(results: Sequence[torch.Tensor]) -> list[int]:
    """For each result those whose gradients read a saved tensor that its own reads too, itself among them, as bits.

    Once the saved tensors of one are freed, gradients of the other cannot be asked for.
    """
    found = [0] * len(results)
    for node, mine in functions_to(results).items():
        if any(mine & ~bits for n, bits in enumerate(found) if mine >> n & 1) and saves(node):
            found = [bits | mine if mine >> n & 1 else bits for n, bits in enumerate(found)]
    return found


def saves(node: Node) -> bool:
    """Whether the function keeps a tensor; that of a write through a view keeps another function, which goes as they do."""
    return node.name().endswith("CopySlices") or any(_is_kept(node, name) for name in names_of_saved(node.__class__))


@functools.cache
def names_of_saved(kind: Any) -> tuple[str, ...]:
    """Attributes of such functions that are saved tensors."""
    raw = [name.removeprefix("_raw") for name in dir(kind) if name.startswith("_raw_saved_")]
    return tuple("saved_tensors" if name == "_saved_tensors" else name for name in raw)


def _is_kept(node: Node, name: str) -> bool:
    try:
        value = _saved(node, name)
    except RuntimeError:  # written since
        return True
    return bool(value) if isinstance(value, (tuple, list)) else value is not None


def spoilt_for_all(result: torch.Tensor, leaves: Sequence[Any]) -> bool:
    """Whether each of these leaves that the result leads to is behind a function whose saved tensor was written since."""
    return all_behind(result, leaves, lambda node: any(_is_spoilt(node, one) for one in names_of_saved(node.__class__)))


def all_behind(result: torch.Tensor, leaves: Sequence[Any], is_one: Callable[[Node], bool]) -> bool:
    """Whether the result leads through such functions, and to each of these leaves, if to any, behind one."""
    free, behind = leaves_behind(result, is_one)
    return behind is not None and free.isdisjoint(map(id, leaves))


def leaves_behind(result: torch.Tensor, is_one: Callable[[Node], bool]) -> tuple[set[int], set[int] | None]:
    """The leaves, by id, to which no way leads through such a function, and the others; None if there is none such."""
    free, found, behind = set[int](), set[int](), set[Node]()
    for node in functions_behind([result.grad_fn]):
        leaf = getattr(node, "variable", None)  # AccumulateGrad's
        if leaf is not None:
            (found if node in behind else free).add(id(leaf))
        if node in behind or is_one(node):
            behind.update([node, *[following for following, _ in node.next_functions if following is not None]])
    return free, found if behind else None


def _is_spoilt(node: Node, name: str) -> bool:
    try:
        _saved(node, name)
    except RuntimeError:
        return True
    return False


def _saved(node: Node, name: str) -> Any:
    """What is kept under a name. A result of the function is detached for that: of a tensor with a dispatch of its own PyTorch first
    asks whether it is a distributed one, and loads all that these need, SymPy among it."""
    with torch_adapter.below_python_dispatch():
        return getattr(node, name)


def functions_behind(roots: Sequence[Node], gone: Collection[Node] = ()) -> list[Node]:
    """The functions behind the roots, each before those it leads to; none that is `gone`, nor what is behind these alone."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in roots]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen and node not in gone:
            seen.add(node)
            stack.append((node, True))
            stack += [(following, False) for following, _ in node.next_functions if following is not None]
    order.reverse()
    return order


def functions_between(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[Node]:
    """The functions through which gradients get from `outputs` to `inputs`."""
    ends = {(one if one.grad_fn is None else one.grad_fn, one.output_nr) for one in inputs}
    found: dict[Node, None] = {}
    for node in reversed(functions_behind([one.grad_fn for one in outputs if one.grad_fn is not None])):
        for following, number in node.next_functions:
            if following in found or (getattr(following, "variable", following), number) in ends:
                found[node] = None
    return list(found)


@dataclass(frozen=True, slots=True)
class Root:
    """Where a result that has a tangent is found when the program ran: an output, its base, or a written input."""

    kind: str
    position: int

    def find(self, outputs: tuple[Any, ...], given: list[Any]) -> torch.Tensor:
        found: torch.Tensor
        if self.kind == "input":
            found = given[self.position]
        elif self.kind == "output":
            found = outputs[self.position]
        else:
            view = outputs[self.position]
            base = view.node.base.fake if _is_fake(view) else view._base
            found = view if base is None else base
        return found


def find_roots(results: list[FakeTensor], outputs: tuple[Any, ...], inputs: list[Any]) -> list[Root]:
    """Where these results of a traced program are found when it runs again."""
    return [_find_root(value, outputs, inputs) for value in results]


def _find_root(value: FakeTensor, outputs: tuple[Any, ...], inputs: list[Any]) -> Root:
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for position, tensor in enumerate(tensors):
            if tensor is value:
                return Root(kind, position)
    for position, tensor in enumerate(outputs):
        if _is_fake(tensor) and tensor.requires_grad and tensor.node.base.fake is value:
            return Root("base", position)
    raise AssertionError("a result that no output leads to")


def _is_fake(value: Any) -> bool:
    from pliant.graph.fake_tensor import FakeTensor  # where programs are traced it is loaded

    return type(value) is FakeTensor


def function_since(view: torch.Tensor) -> Any:
    """The function of a view whose base was written; None where autograd refuses to make one, as for a result of `chunk`."""
    return None if is_refused(view) else view.grad_fn


def is_refused(view: torch.Tensor) -> bool:
    """Whether autograd refuses to tell the function of a view: it was made while nothing was recorded, or by `chunk`, and its
    memory was written since."""
    try:
        _ = view.grad_fn
    except RuntimeError:
        return True
    return False

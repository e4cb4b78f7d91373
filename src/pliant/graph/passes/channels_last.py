"""Let images lie channels last between convolutions, where the library computes them faster.

In:     a functional ATen graph: of an inference program, or of a forward and a backward before they are split.
Out:    the same graph: convolutions of images that a device's target names, and their gradients, read and write channels
        last, what lies between them follows, and clones change the layout at the border; how many convolutions there are.
Holds:  values are the same to rounding, and so is the layout of everything that the caller sees, or that an operator
        sees which may depend on it. Nothing is done where many layouts would be changed for the convolutions that run.
Source: measured with oneDNN 3.12 on one core of an AVX-512 machine, channels last is 1.2 to 1.8 times as fast for dense
        3x3 convolutions, 2.2 to 2.7 times for depthwise ones, at batches of 1 and 8. On GPUs, cuDNN's kernels for tensor
        cores read and write channels last, and change the layout of images and results that lie otherwise.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.layouts import preserved_strides
from pliant.graph.packed_weights import packed_convolution, packed_transpose
from pliant.graph.passes.purity import is_view
from pliant.graph.shape_rules.pointwise import is_pointwise
from pliant.graph.tensor_spec import channels_last_strides, same_known
from pliant.targets.registry import has_target, target_of
from pliant.targets.target import Target
from pliant.torch_adapter import append_node

_aten = torch.ops.aten
_CONVOLUTION, _GRADIENTS = _aten.convolution.default, _aten.convolution_backward.default
# Beside pointwise operators: their results lie as their images do, or are views of them that any layout has.
_FOLLOWING = frozenset((
    _aten._native_batch_norm_legit_no_training.default, _aten.native_batch_norm.default, _aten.cat.default,
    _aten._native_batch_norm_legit_functional.default, _aten._native_batch_norm_legit.no_stats,
    _aten.native_batch_norm_backward.default, _aten.max_pool2d_with_indices_backward.default,
    _aten.avg_pool2d_backward.default, _aten._adaptive_avg_pool2d_backward.default, _aten._to_copy.default,
    _aten.max_pool2d_with_indices.default, _aten.avg_pool2d.default, _aten._adaptive_avg_pool2d.default,
    _aten.constant_pad_nd.default, _aten.permute.default, _aten.slice.Tensor, _aten.split.Tensor,
    _aten.split_with_sizes.default, operator.getitem,
))  # fmt: skip
# They read elements by their index alone; their results do not lie as what they read.
_READING = frozenset((
    _aten.mean.dim, _aten.sum.dim_IntList, _aten.amax.default, _aten.amin.default, _aten.native_layer_norm.default,
))  # fmt: skip


# Images of a dense convolution with fewer positions than this are row-major, as eager has them: reading the weight, to
# see whether it changed, costs as much there as channels last gains, and the library is slower by it at batches of 8.
LEAST_POSITIONS = 100
# The same of a weight of so many bytes at most, which is soon read and laid out. Measured on one core of an AVX-512 machine: 64 to
# 192 channels on images of 6x6 to 9x9 take 0.73 to 1.01 of the time at batches of 1 to 32; smaller images gain less than a call costs.
SMALL_WEIGHT, LEAST_POSITIONS_OF_SMALL = 1 << 20, 36
# In training one change of layout to so many convolutions at most. Sums over images that lie in both ways are slow: measured
# on an H100 in bf16, ResNet-50 (1 change to 106 convolutions) gains 10%; 66 changes to 66 take 17 times as long.
BORDERS_OF_TRAINING = 4
# A product of fewer rows than this reads a weight of 1x1 as it is.
LEAST_ROWS = 48
# In TF32, elements of a weight or multiplications of a convolution, in the mean over those of a program. Measured on an H200: with
# fewer, row-major is as fast (a launch takes as long), and cuDNN computes it in full float32, whose errors are 1000 times smaller.
LEAST_WEIGHT_IN_TF32, LEAST_WORK_IN_TF32 = 1 << 15, 100_000_000


def channels_last(graph: fx.Graph, weights: Collection[int]) -> int:
    """Change the layouts; how many convolutions are channels last then. `weights`: positions of the placeholders that
    are the same tensors at each call, of which a copy may be kept."""
    kept = {node for k, node in enumerate(graph.find_nodes(op="placeholder")) if k in weights}
    images = _images(graph, kept)
    convolutions = [node for node in images if node.target in (_CONVOLUTION, _GRADIENTS)]
    if not _are_worth_tf32(convolutions):
        return 0
    entering = {x for node in convolutions for x in _read_images(node) if x not in images and not _is_last(x)}
    leaving = [node for node in images if _is_row_major(node) and any(not _takes(u, images) for u in node.users)]
    if len(entering) + len(leaving) > len(convolutions) // (BORDERS_OF_TRAINING if _is_trained(graph) else 1):
        return 0
    gradients = [item for node in convolutions for item in _gradient_of_weight(node)]
    before = {node: node.meta["val"] for node in (*images, *gradients)}
    for node in before:
        node.meta["val"] = _lying_last(node) if node.target in (_CONVOLUTION, _GRADIENTS) else _computed(node)
    for node in (*leaving, *gradients):
        _insert_exit(graph, node, before[node], [user for user in node.users if not _takes(user, images)])
    entrances: dict[fx.Node, fx.Node] = {}
    for node in convolutions:
        _rewrite(graph, node, entrances)
    return len(convolutions)


def _images(graph: fx.Graph, kept: Collection[fx.Node]) -> dict[fx.Node, None]:
    """Convolutions that are to be channels last, and what follows them."""
    found = dict[fx.Node, None]()
    for node in graph.nodes:
        if node.op == "call_function" and (_is_faster_last(node, kept) or _follows(node, found)):
            found[node] = None
    return found


def _is_trained(graph: fx.Graph) -> bool:
    """Whether the graph has the backward of a convolution."""
    return bool(graph.find_nodes(op="call_function", target=_GRADIENTS))


def _is_faster_last(node: fx.Node, kept: Collection[fx.Node]) -> bool:
    """Whether it is a convolution that the library computes faster from a channels-last image, or the backward of one."""
    if node.target is _GRADIENTS:
        return _has_faster_gradients(node)
    if node.target is not _CONVOLUTION or len(node.args) != 9 or node.args[6] or not _is_image(node.meta["val"]):
        return False
    value, target = node.meta["val"], target_of(node.meta["val"].device_)
    if not _is_faster_in(value.dtype_, target):
        return False
    if target.packs_weights:
        return node.args[1] in kept and _is_faster_packed(node)
    return (node.args[8] == 1 or _is_depthwise(node)) and torch.backends.cudnn.enabled and _runs_last(node)


def _has_faster_gradients(node: fx.Node) -> bool:
    """Whether it is the backward of such a convolution, of one group or depthwise."""
    given: tuple[Any, ...] = node.args
    values = [one.meta["val"] for one in given[:3]]
    if given[7] or (given[9] != 1 and values[2].size_[1] != 1) or not all(map(_is_image, values[:2])):
        return False
    target = target_of(values[0].device_)
    if target.packs_weights or not _is_faster_in(values[0].dtype_, target):
        return False
    return torch.backends.cudnn.enabled and any(map(_tells, values[1:]))


def _is_faster_in(dtype: torch.dtype, target: Target) -> bool:
    return dtype in target.images_last or (dtype is torch.float32 and _in_tf32(target))


def _are_worth_tf32(convolutions: list[fx.Node]) -> bool:
    """Whether those that would be in TF32 alone, if there are any, are so large that eager's are in TF32, too."""
    weights, works = list[int](), list[int]()
    for node in convolutions:
        given: tuple[Any, ...] = node.args
        backward = node.target is _GRADIENTS
        result, weight, groups = (given[0], given[2], given[9]) if backward else (node, given[1], given[8])
        value = result.meta["val"]
        if groups == 1 and value.dtype_ not in target_of(value.device_).images_last:
            weights.append(math.prod(map(_hint, weight.meta["val"].size_)))
            works.append(weights[-1] * math.prod(map(_hint, (value.size_[0], *value.size_[2:]))))
    count = len(works)
    return sum(weights) >= count * LEAST_WEIGHT_IN_TF32 or sum(works) >= count * LEAST_WORK_IN_TF32


def _read_images(node: fx.Node) -> list[Any]:
    """The images that a convolution, or its backward, reads."""
    return [*node.args[: 2 if node.target is _GRADIENTS else 1]]


def _gradient_of_weight(node: fx.Node) -> list[fx.Node]:
    """What the backward of a convolution gives as its weight's gradient, if it does."""
    items = node.users if node.target is _GRADIENTS else ()
    return [user for user in items if user.target is operator.getitem and user.args[1] == 1]


def _runs_last(node: fx.Node) -> bool:
    """Whether strides tell the operator, which chooses by them, that its image or its weight is channels last."""
    return any(_tells(one.meta["val"]) for one in node.args[:2])  # type: ignore[union-attr]


def _tells(value: FakeTensor) -> bool:
    """Whether it lies otherwise than row-major when it is channels last: with several channels and positions."""
    single = [type(n) is int and n == 1 for n in value.size_]
    return not (single[1] or single[2] and single[3])


def _in_tf32(target: Target) -> bool:
    allowed: str = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    return target.tf32_images_last and allowed == "tf32"


def _is_faster_packed(node: fx.Node) -> bool:
    value, weight = node.meta["val"], node.args[1].meta["val"]  # type: ignore[union-attr]
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):  # type: ignore[no-untyped-call]
        return False
    if not _is_dense(weight):
        return False
    small = math.prod(weight.size_) * weight.dtype_.itemsize <= SMALL_WEIGHT
    least = LEAST_POSITIONS_OF_SMALL if small else LEAST_POSITIONS
    return _is_depthwise(node) or _is_product(node) or _hint(value.size_[2]) * _hint(value.size_[3]) >= least


def _is_depthwise(node: fx.Node) -> bool:
    weight: Any = node.args[1]
    return bool(weight.meta["val"].size_[1] == 1 and node.args[8] != 1)


def _is_product(node: fx.Node) -> bool:
    """Whether each position of the result is computed from that position of the image alone."""
    given: tuple[Any, ...] = node.args
    _, weight, _, stride, padding, _, _, _, groups = given
    single: bool = weight.meta["val"].size_[2:] == (1, 1)
    return single and groups == 1 and set(stride) == {1} and set(padding) == {0}


def _is_dense(weight: FakeTensor) -> bool:
    numbers = all(type(n) is int for n in (*weight.size_, *weight.stride_))
    return numbers and preserved_strides(weight.spec) == weight.stride_


def _hint(number: Any) -> int:
    """What a size was when the program was compiled."""
    return number if isinstance(number, int) else int(number.node.hint or 0)


def _is_image(value: Any) -> bool:
    """Whether it has the rank of an image, and lies where some may be channels last."""
    if type(value) is not FakeTensor or len(value.size_) != 4 or not has_target(value.device_):
        return False
    target = target_of(value.device_)
    return bool(target.images_last) or target.tf32_images_last


def _lying_last(node: fx.Node) -> Any:
    """The description of what a convolution, or its backward, gives channels last."""
    value = node.meta["val"]
    if node.target is _CONVOLUTION:
        return _as_image(value)
    return tuple(_as_image(one) if one is not None and len(one.size_) == 4 else one for one in value)


def _as_image(value: FakeTensor) -> FakeTensor:
    return value.fake_mode.new(value.size_, channels_last_strides(value.size_), value.dtype_, value.device_)


def _is_last(node: Any) -> bool:
    """Whether an image is channels last and dense."""
    value = node.meta["val"]
    pairs = zip(value.size_, value.stride_, channels_last_strides(value.size_))
    known = [(have, want) for size, have, want in pairs if type(size) is not int or size != 1]
    return same_known([have for have, _ in known], [want for _, want in known])


def _is_row_major(node: fx.Node) -> bool:
    """Whether a result that is to be channels last is not so yet, as far as the caller sees: in all its strides."""
    value = node.meta["val"]
    return type(value) is FakeTensor and not same_known(value.stride_, channels_last_strides(value.size_))


def _follows(node: fx.Node, images: dict[fx.Node, None]) -> bool:
    """Whether the result is an image, or several, that lie as one among the arguments does."""
    if not any(one in images for one in node.all_input_nodes):
        return False
    target: Any = node.target
    if target is operator.getitem and node.args[0].target is _GRADIENTS and node.args[1] != 0:  # type: ignore[union-attr]
        return False
    pointwise = target not in _FOLLOWING and not is_view(target) and is_pointwise(target)
    if not (pointwise or target in _FOLLOWING) or "memory_format" in node.kwargs:
        return False
    value = node.meta["val"]
    return any(map(_is_image, value)) if isinstance(value, (list, tuple)) else _is_image(value)


def _takes(user: fx.Node, images: dict[fx.Node, None]) -> bool:
    """Whether it does not mind the layout of what it reads."""
    return user in images or user.target in _READING or user.target is operator.getitem


def _computed(node: fx.Node) -> Any:
    """The description of the result for the arguments as they lie now."""
    if node.target is operator.getitem:
        source: Any = node.args[0]
        return source.meta["val"][node.args[1]]
    first = next(one.meta["val"] for one in node.all_input_nodes if type(one.meta["val"]) is FakeTensor)
    kwargs = {name: _described(value) for name, value in node.kwargs.items()}
    return first.fake_mode.compute(node.target, _described(node.args), kwargs)


def _described(value: Any) -> Any:
    """An argument, with the descriptions of nodes in their place."""
    if isinstance(value, (list, tuple)):
        return [_described(one) for one in value]
    return value.meta["val"] if isinstance(value, fx.Node) else value


def _insert_exit(graph: fx.Graph, node: fx.Node, before: FakeTensor, readers: list[fx.Node]) -> None:
    """The value as it lay before, for those who mind."""
    if same_known(before.stride_, node.meta["val"].stride_):
        return
    clone = _clone_before(graph, node.next, node, torch.contiguous_format, node)
    clone.meta["val"] = before
    for reader in readers:
        reader.replace_input_with(node, clone)


def _clone_before(
    graph: fx.Graph, place: fx.Node, source: fx.Node, memory_format: torch.memory_format, part_of: fx.Node
) -> fx.Node:
    with graph.inserting_before(place):
        clone = append_node(
            graph, "call_function", _aten.clone.default, (source,), {"memory_format": memory_format}, "clone"
        )
    clone.meta.update({**source.meta, "stage": part_of.meta.get("stage")})
    return clone


def _rewrite(graph: fx.Graph, node: fx.Node, entrances: dict[fx.Node, fx.Node]) -> None:
    """Have a convolution read a channels-last image. `entrances`: images and weights made channels last."""
    if node.target is _GRADIENTS:
        for k in range(3):
            node.update_arg(k, _entering(graph, node, node.args[k], entrances))
        return
    given, weight, bias, stride, padding, dilation, _, _, groups = node.args
    assert isinstance(given, fx.Node) and isinstance(weight, fx.Node)
    x = _entering(graph, node, given, entrances)
    if not target_of(node.meta["val"].device_).packs_weights:
        node.update_arg(0, x)
        node.update_arg(1, _entering(graph, node, weight, entrances))
        return
    with graph.inserting_before(node):
        call = _Calls(graph, node)
        if _is_product(node):
            result = call.product(x, weight, bias)
        else:
            result = call.made(
                packed_convolution, (x, weight, bias, stride, padding, dilation, groups), node.meta["val"]
            )
    node.replace_all_uses_with(result)
    graph.erase_node(node)


def _entering(graph: fx.Graph, node: fx.Node, given: Any, entrances: dict[fx.Node, fx.Node]) -> fx.Node:
    """A tensor channels last, for a convolution to read."""
    source: fx.Node = given
    if _is_last(source):
        return source
    if source not in entrances:
        entrances[source] = _clone_before(graph, node, source, torch.channels_last, node)
        entrances[source].meta["val"] = _as_image(source.meta["val"])
    return entrances[source]


class _Calls:
    """Appends calls with their descriptions, in place of a node."""

    def __init__(self, graph: fx.Graph, node: fx.Node) -> None:
        self.graph, self.node = graph, node

    def __call__(self, target: Any, *args: Any) -> fx.Node:
        return self.made(target, args, self.node.meta["val"].fake_mode.compute(target, _described(args), {}))

    def made(self, target: Any, args: tuple[Any, ...], val: FakeTensor) -> fx.Node:
        node = append_node(self.graph, "call_function", target, args, {}, target.__name__.partition(".")[0])
        node.meta.update({**self.node.meta, "val": val})
        return node

    def product(self, x: Any, weight: Any, bias: Any) -> fx.Node:
        n, channels, *size = self.node.meta["val"].size_
        rows = n * size[0] * size[1]
        given = weight.meta["val"].size_[1]
        image = self(_aten.view.default, self(_aten.permute.default, x, [0, 2, 3, 1]), [rows, given])
        flat = self(_aten.mm.default, image, self.matrix(weight, rows))
        result = self(_aten.permute.default, self(_aten.view.default, flat, [n, *size, channels]), [0, 3, 1, 2])
        return (
            result if bias is None else self(_aten.add.Tensor, result, self(_aten.view.default, bias, [channels, 1, 1]))
        )

    def matrix(self, weight: Any, rows: Any) -> fx.Node:
        """The weight of a convolution of 1x1 as a matrix [in, out]."""
        channels, given = weight.meta["val"].size_[:2]
        if _hint(rows) < LEAST_ROWS:
            return self(_aten.t.default, self(_aten.view.default, weight, [channels, given]))
        fake = weight.meta["val"]
        val = fake.fake_mode.new((given, channels), (channels, 1), fake.dtype_, fake.device_)
        return self.made(packed_transpose, (weight,), val)

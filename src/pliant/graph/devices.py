"""Calls of tensors that lie on several devices: eager refuses most, when their turn comes.

In:     a call on fakes.
Out:    a refusal where nothing says that the operator takes such tensors: the graph ends before it, and eager does it.
Holds:  CPU tensors without dimensions are numbers to most operators, wherever the others lie, unless they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.graph.call_plan import CallPlan, argument
from pliant.graph.unsupported import UnsupportedOperator

_COPIES = frozenset("copy copy_ _to_copy _copy_from set_ resize_as_".split())
_BY_INDICES = frozenset("index index_put index_put_ _index_put_impl_ _unsafe_index _unsafe_index_put".split())
# They are given lengths on the CPU.
_WITH_LENGTHS = frozenset(
    """_pack_padded_sequence _pad_packed_sequence _ctc_loss _ctc_loss_backward _cudnn_ctc_loss lstm gru rnn_tanh rnn_relu
    _reshape_from_tensor""".split()
)
_LISTS = ("_foreach_", "_fused_", "_amp_")  # tensor by tensor, the devices of which may differ


def refuse_mixed_devices(plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise UnsupportedOperator for an operator of PyTorch that is given tensors of several devices, and may not like it."""
    if plan.func.namespace not in ("aten", "prims"):
        return
    given = [part for one in (*args, *kwargs.values()) for part in (one if isinstance(one, (list, tuple)) else (one,))]
    tensors = [one for one in given if isinstance(one, torch.Tensor)]
    devices = {tensor.device for tensor in tensors}
    if len(devices) < 2:
        return
    written = [argument(place, args, kwargs) for place in plan.written]
    lying = {t.device for t in tensors if t.dim() or t.device.type != "cpu" or any(t is one for one in written)}
    name = plan.func._schema.name.partition("::")[2]
    if len(lying) < 2 or name in _COPIES or name in _WITH_LENGTHS or name.startswith(_LISTS):
        return
    if name in _BY_INDICES and lying <= {args[0].device, torch.device("cpu")}:
        return
    places = ", ".join(sorted(map(str, lying)))
    raise UnsupportedOperator(f"`{plan.func}` of tensors on several devices ({places})", kind="several-devices")

"""What `GradScaler` does to gradients, as operators on single tensors.

In:     calls of the operator that divides gradients by the scale and looks for values that are not finite.
Out:    a product and a test for each gradient in the graph.
Holds:  gradients and `found_inf` are written as eager writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.handlers import handles
from pliant.capture.torch_calls import call_torch

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer


@handles(torch._amp_foreach_non_finite_check_and_unscale_)
def _unscale(t: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    gradients, found, inverse = args

    def call(function: Any, *given: Any) -> Any:
        return call_torch(t, function, given, {})

    for gradient in [t.internalize(one) for one in t.sequence(gradients)]:
        finite = call(torch.all, call(torch.isfinite, gradient))
        call(torch.Tensor.copy_, found, call(torch.where, finite, found, 1.0))
        call(torch.Tensor.mul_, gradient, inverse)

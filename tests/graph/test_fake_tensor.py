from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from pliant.errors import DataDependentError
from pliant.graph.fake_mode import FakeMode
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.unsupported import UnsupportedTensor
from pliant.symbolic.shape_env import ShapeEnv

CPU = torch.device("cpu")


def symbolic_mode(*hints: int, allow_unbacked: bool = False) -> tuple[FakeMode, list[Any]]:
    env = ShapeEnv()
    return FakeMode(env, allow_unbacked), [env.wrap(env.create_symbol(n, None)) for n in hints]


def test_a_fake_says_what_the_real_tensor_says() -> None:
    real = torch.randn(3, 4, dtype=torch.float64).t().requires_grad_()
    fake = FakeMode().from_real(real)
    assert (fake.shape, fake.stride(), fake.dtype, fake.device) == (real.shape, real.stride(), real.dtype, real.device)
    assert fake.requires_grad
    assert repr(fake) == "Fake f64[4, 3] cpu"


def test_parameters_and_tensors_are_told_apart_as_for_real_ones() -> None:
    mode = FakeMode()
    parameter, plain = mode.from_real(nn.Parameter(torch.ones(2))), mode.from_real(torch.ones(2))
    assert isinstance(parameter, nn.Parameter) and isinstance(parameter, FakeTensor) and parameter.is_leaf
    assert not isinstance(plain, nn.Parameter) and isinstance(plain, torch.Tensor)


def test_a_non_leaf_stays_one() -> None:
    fake = FakeMode().from_real(torch.ones(2, requires_grad=True) * 2)
    assert not fake.is_leaf and fake.requires_grad


class Tagged(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(2, dtype=torch.complex64).conj(), torch.eye(2).to_sparse(), torch.ones(2).as_subclass(Tagged)],
    ids=["conjugated", "sparse", "subclass"],
)
def test_tensors_that_no_fake_stands_for_are_refused(tensor: torch.Tensor) -> None:
    with pytest.raises(UnsupportedTensor):
        FakeMode().from_real(tensor)


def test_symbolic_sizes_flow_through_a_layer() -> None:
    mode, (batch,) = symbolic_mode(5)
    x = mode.new((batch, 8), (8, 1), torch.float32, CPU)
    layer = nn.Linear(8, 3)
    with mode:
        y = torch.func.functional_call(layer, {k: mode.from_real(v) for k, v in layer.named_parameters()}, (x,))
    assert repr(y) == "Fake f32[s0, 3] cpu"
    assert not mode.shape_env.guards  # type: ignore[union-attr]


def test_factories_make_fakes_under_the_mode() -> None:
    with FakeMode():
        assert type(torch.ones(2, 3)) is FakeTensor
        assert torch.arange(5).dtype is torch.int64


def test_autograd_sees_views_and_writes() -> None:
    mode = FakeMode()
    x = mode.from_real(torch.randn(4, 3, requires_grad=True))
    with mode:
        y = x * 1
        view = y.view(-1)
        assert view._is_view() and view._base is y
        version = y._version
        assert view.add_(1) is view and y._version == version + 1
        (grad,) = torch.autograd.grad(y.sum(), x)
    assert repr(grad) == "Fake f32[4, 3] cpu"


def test_metadata_writes_change_the_fake() -> None:
    with FakeMode():
        x = torch.ones(2, 3)
        assert x.t_() is x and list(x.shape) == [3, 2] and x.stride() == (1, 3)
        assert x.unsqueeze_(0).spec.size == (1, 3, 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: x + torch.ones(4), RuntimeError),
        (lambda x: x @ x, RuntimeError),
        (lambda x: x.view(7), RuntimeError),
        (lambda x: x.sum(5), IndexError),
        (lambda x: x[3], IndexError),
        (lambda x: x.long().mean(), RuntimeError),
        (lambda x: x.masked_fill(torch.ones(3), 0), RuntimeError),
    ],
    ids=["broadcast", "product", "view", "dimension", "index", "integer-mean", "mask-dtype"],
)
def test_what_eager_refuses_is_refused(call: Any, error: type[Exception]) -> None:
    with FakeMode():
        x = torch.ones(2, 3)
        with pytest.raises(error):
            call(x)


def test_values_are_not_known() -> None:
    with FakeMode():
        x = torch.ones(3)
        for question in (lambda: x[0].item(), lambda: x.nonzero(), lambda: x[x > 0], lambda: bool(x.sum() > 0)):
            with pytest.raises(DataDependentError):
                question()


def test_unbacked_sizes() -> None:
    mode, (n,) = symbolic_mode(6, allow_unbacked=True)
    x = mode.new((n, 4), (4, 1), torch.float32, CPU)
    with mode:
        mask = x[:, 0] > 0
        kept = x[mask]
        assert kept.spec.size[1] == 4 and repr(kept.spec.size[0]) != repr(n)  # type: ignore[attr-defined]
        assert (kept * 2).spec.size_key == kept.spec.size_key  # type: ignore[attr-defined]
        assert isinstance(x.sum().item(), torch.SymFloat)


def test_function_modes_still_see_calls() -> None:
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    mode = FakeMode()
    x = mode.from_real(torch.ones(2))
    with mode, Watch():
        torch.add(x, x)
    assert torch.add in seen


def test_compute_does_not_record_and_record_sees_what_runs() -> None:
    class Recorder(FakeMode):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[Any] = []

        def record(self, func: Any, args: Any, kwargs: Any, outputs: Any) -> Any:
            self.calls.append(func)
            return outputs

    mode = Recorder()
    x = mode.from_real(torch.ones(2, 2))
    mode.compute(torch.ops.aten.mm.default, (x, x), {})
    with mode:
        torch.matmul(x, x)
    assert mode.calls == [torch.ops.aten.mm.default]


def test_scalars_promote_by_type_even_if_equal() -> None:
    with FakeMode():
        x = torch.ones(2, dtype=torch.int64)
        assert [(x * 1).dtype, (x * 1.0).dtype, (x * True).dtype] == [torch.int64, torch.float32, torch.int64]

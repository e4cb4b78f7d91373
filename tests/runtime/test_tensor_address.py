"""Addresses read in memory are those that torch gives, however a tensor's memory was exchanged."""

import pytest
import torch

import pliant
from pliant.runtime import tensor_address

layout = tensor_address.layout()
pytestmark = pytest.mark.skipif(layout is None, reason="tensors lie in memory in another way here")


def address(tensor: torch.Tensor) -> int:
    assert layout is not None
    return tensor_address.read(layout, tensor)


def moved(change) -> torch.Tensor:
    tensor = torch.nn.Parameter(torch.arange(6.0).view(2, 3), requires_grad=False)
    change(tensor)
    return tensor


CHANGES = {
    "data": lambda t: setattr(t, "data", torch.ones(2, 3)),
    "set": lambda t: t.set_(torch.ones(2, 3)),
    "resize": lambda t: t.resize_(100, 100),
    "storage": lambda t: t.untyped_storage().resize_(1 << 20),
    "swap": lambda t: torch.utils.swap_tensors(t, torch.nn.Parameter(torch.zeros(2, 3))),
    "shared": lambda t: t.share_memory_(),
    "written after a lazy copy": lambda t: (torch._lazy_clone(t), t.add_(1)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_new_memory_is_seen(change):
    tensor = moved(change)
    assert address(tensor) in (0, tensor.data_ptr())


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(9)[3:],
        lambda: torch._lazy_clone(torch.zeros(3)),
        lambda: torch.zeros(3).to_sparse(),
        lambda: torch.zeros(3, device="meta"),
        lambda: torch.zeros(0),
        lambda: torch.zeros(3).as_subclass(type("Mine", (torch.Tensor,), {})),
    ],
)
def test_torch_is_asked(make):
    assert address(make()) == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bool, torch.complex64, torch.bfloat16, torch.uint8])
def test_every_dtype(dtype):
    tensor = torch.zeros(7, dtype=dtype)
    assert address(tensor) == tensor.data_ptr()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_compiled_code_reads_the_new_memory(change):
    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ParameterList(torch.nn.Parameter(torch.full((2, 3), float(i))) for i in range(20))

        def forward(self, x):
            for part in self.parts:
                x = torch.sin(x) * part
            return x

    model = Sum().requires_grad_(False)
    compiled = pliant.compile(model)
    x = torch.randn(2, 3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))
    change(model.parts[7])
    if model.parts[7].shape == x.shape:
        torch.testing.assert_close(compiled(x), model(x))


def test_a_lazy_copy_is_not_written_through():
    buffer = torch.zeros(4)
    copy = torch._lazy_clone(buffer)

    @pliant.compile
    def count(b):
        b.add_(1)
        return b * 2

    assert count(buffer).tolist() == [2.0] * 4
    assert copy.tolist() == [0.0] * 4

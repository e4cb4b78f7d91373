"""Numbers in the CPU's memory are arguments of other devices' kernels."""

import pytest
import torch
from torch import fx

from pliant.autograd.functionalize import FunctionalMode, new_input
from pliant.graph.concrete_sizes import call_specialized
from pliant.graph.contracts import AtenGraph
from pliant.ir.loops import Extern, Pointwise
from pliant.ir.verify import verify
from pliant.lowering.lower import lower
from pliant.symbolic.shape_env import ShapeEnv
from pliant.targets import cuda, registry


@pytest.fixture(autouse=True)
def a_gpu(monkeypatch):
    monkeypatch.setitem(registry._PROVIDERS, "meta", lambda device: cuda.target(90))


def lowered(f, *given):
    """The program of `f` on inputs that are a size, a dtype and a device each; nothing is allocated there."""
    shape_env, graph = ShapeEnv(), fx.Graph()
    mode = FunctionalMode(shape_env, graph)
    fakes = [mode.new(size, torch.empty(size).stride(), dtype, torch.device(device)) for size, dtype, device in given]
    for k, fake in enumerate(fakes):
        node = graph.placeholder(f"arg{k}")
        node.meta["val"] = fake
        mode.last_primal = node
        new_input(node, fake, k)
    with mode, torch.no_grad():
        result = call_specialized(f, tuple(fakes), {})
    graph.output((mode.lower(result),))
    program = lower(AtenGraph(graph, shape_env))
    verify(program)
    assert not shape_env.has_unbacked  # a later graph of the same program would look for what the operators of this one tell
    return program


HOST, DEVICE = "cpu", "meta"  # a build of PyTorch for CPUs guards no device of another type


OPERATORS = [torch.add, torch.mul, torch.div, torch.pow, torch.remainder, torch.floor_divide, torch.maximum, torch.eq, torch.fmod]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda f: f.__name__)
def test_operators(operator, dtype):
    of_integers = (torch.int64,) if operator in (torch.add, torch.mul, torch.maximum, torch.eq) else ()
    for of in (torch.float32, *of_integers):
        program = lowered(lambda x, n: operator(operator(x, n), n), ((5,), of, DEVICE), ((), dtype, HOST))
        assert [type(one) for one in program.computations] == [Extern, Pointwise]
        assert program.computations[1].out.dtype is operator(torch.ones(5, dtype=of), torch.ones((), dtype=dtype)).dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool])
def test_a_number_is_read_once_and_is_an_argument(dtype):
    program = lowered(lambda x, n: (x * n).relu() + n, ((5,), torch.float32, DEVICE), ((), dtype, HOST))
    read, kernel = program.computations
    assert isinstance(read, Extern) and read.target is torch.ops.aten._local_scalar_dense.default
    assert isinstance(kernel, Pointwise) and kernel.out.dtype is torch.float32


def test_a_number_that_the_cpu_computes():
    program = lowered(lambda x, n: x / (1 - 0.9**n), ((5,), torch.float32, DEVICE), ((), torch.float32, HOST))
    assert [type(one) for one in program.computations] == [Pointwise, Extern, Pointwise]
    assert [one.out.device.type for one in program.computations if isinstance(one, Pointwise)] == ["cpu", "meta"]


def test_dtypes_are_promoted_as_those_of_tensors():
    program = lowered(lambda x, n: x * n, ((), torch.bfloat16, DEVICE), ((), torch.float32, HOST))
    assert program.computations[-1].out.dtype is torch.float32


@pytest.mark.parametrize("size", [(5,), ()])
def test_writes(size):
    program = lowered(lambda x, n: x.copy_(n), (size, torch.float32, DEVICE), ((), torch.float32, HOST))
    assert [type(one) for one in program.computations] == [Extern, Pointwise]


def test_what_lies_on_the_gpu_is_not_read_for_the_cpu():
    program = lowered(lambda x: x.cpu() + 1, ((), torch.float32, DEVICE))
    assert [one.target._schema.name for one in program.computations if isinstance(one, Extern)] == ["aten::_to_copy"]


def test_what_comes_back_to_the_cpu_is_computed_behind_the_read():
    """`n.to(device).cpu()` is a number that loops of the CPU may compute, too."""
    lowered(lambda x, n: x + n.to(DEVICE).to(HOST), ((5,), torch.float32, HOST), ((), torch.float32, HOST))
    lowered(lambda x, n: x + (n.to(DEVICE) * 2).to(HOST), ((5,), torch.float32, HOST), ((), torch.float32, HOST))


def test_complex_numbers_are_the_operators_own():
    program = lowered(lambda x, n: torch.real(x * n), ((5,), torch.float32, DEVICE), ((), torch.complex64, HOST))
    assert not any(getattr(one, "target", None) is torch.ops.aten._local_scalar_dense.default for one in program.computations)

"""What keeps a program from being recorded, and what a recording is told of its inputs."""

import pytest
import torch

from pliant.ir.loops import Axis, Buffer, Extern, LoopProgram, Pointwise, View
from pliant.ir.scalar import Load
from pliant.runtime.cuda.capturable import roles_of, why_not
from pliant.runtime.cuda.roles import Roles, key_of
from pliant.symbolic.expr import ONE, ZERO, symbol

GPU, OTHER, CPU = torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cpu")
N = symbol("n")
aten = torch.ops.aten


def buffer(name, shape=(ONE * 4,), device=GPU):
    return Buffer(name, torch.float32, shape, (ONE,), device, "input")


def view(b):
    return View(b, b.shape, b.strides, ZERO, b.dtype)


def copy(source, target):
    axis = Axis(symbol("i"), ONE * 4)
    return Pointwise(target, (axis,), axis.symbol, Load(buffer=source, index=axis.symbol, indirect=(), dtype=source.dtype))


def extern(target, *inputs, outs=(), **more):
    return Extern(target, tuple(view(b) for b in inputs), {}, tuple(outs), **more)


def program(*computations, inputs=(), outputs=()):
    return LoopProgram(list(inputs), list(computations), list(outputs))


def test_roles():
    a, b, c = buffer("a"), buffer("b", (N,)), buffer("c")
    found = roles_of(program(copy(a, c), inputs=[a, b, N, c]), static=[0], private=[2])
    assert found == Roles(frozenset({0}), frozenset({3}), frozenset({2}), (1, 2))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_attention_without_dropout_draws_nothing(dropout):
    a = buffer("a")
    call = Extern(aten._scaled_dot_product_cudnn_attention.default, (view(a), view(a), view(a), None, False, dropout), {}, (None,))
    assert roles_of(program(call, inputs=[a])).draws is (dropout > 0)


A, B, HOST = buffer("a"), buffer("b"), buffer("host", device=CPU)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (program(copy(A, B), inputs=[A], outputs=[view(B)]), None),
        (program(extern(aten.mm.default, A, A, outs=[B]), inputs=[A], outputs=[view(B)]), None),
        (program(copy(A, B), inputs=[A, HOST], outputs=[view(B)]), "a tensor on cpu"),
        (program(extern(aten._to_copy.default, A, outs=[HOST]), inputs=[A]), "a tensor on cpu"),
        (program(copy(A, buffer("c", device=OTHER)), inputs=[A]), "tensors on several GPUs"),
        (
            program(extern(aten.nonzero.default, A, outs=[B]), inputs=[A]),
            "operator aten.nonzero.default, whose results' sizes or numbers depend on data",
        ),
        (
            program(extern(aten._local_scalar_dense.default, A), inputs=[A]),
            "operator aten._local_scalar_dense.default, whose results' sizes or numbers depend on data",
        ),
        (program(extern(torch.sin, A, outs=[B]), inputs=[A]), "sin, which is no operator of PyTorch"),
        (program(inputs=[N]), "no tensors"),
    ],
)
def test_what_keeps_a_program_from_being_recorded(made, why):
    assert why_not(made) == why


def test_operators_of_somebody_else():
    @torch.library.custom_op("pliant_tests::capturable", mutates_args=())
    def mine(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    target = torch.ops.pliant_tests.capturable.default
    found = why_not(program(extern(target, A, outs=[B]), inputs=[A]))
    assert found == "operator pliant_tests.capturable.default, which may do anything"


def test_keys_tell_numbers_apart():
    values = [0.0, -0.0, 0, False, 1, True, 1.0, None, "1", torch.ones(1), torch.ones(2), torch.ones(2, 1), torch.ones(1, 2)]
    assert len({key_of(v) for v in values}) == len(values)
    assert key_of(torch.ones(2)) == key_of(torch.zeros(2)) and key_of(1.5) == key_of(1.5)

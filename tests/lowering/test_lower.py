"""What lowering makes of small functions: the loops, the views, the updates of inputs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lowering.tracing import check, lowered, trace
from pliant.ir.interpret import run
from pliant.ir.loops import Extern, Pointwise, Reduction
from pliant.ir.printer import program_text
from pliant.lowering.lower import lower


def body(f, *args, dynamic=False):
    """The lines of the lowered program without signature and return."""
    return [line.strip() for line in program_text(check(f, *args, dynamic=dynamic)).splitlines()[1:-1]]


def kinds(f, *args):
    return [type(c) for c in check(f, *args).computations]


x34 = torch.randn(3, 4)


def test_a_chain_is_one_loop():
    assert body(lambda x: (x + 1) * 2, x34) == ["buf1[i0 < 3, i1 < 4] = mul(add(load(buf0, 4*i0 + i1), 1.0), 2.0)"]


def test_symbolic_sizes_stay_symbols():
    assert body(lambda x: x.sum(1), x34, dynamic=True) == ["buf1[i0 < s0] = sum(r0 < s1) load(buf0, i0*s1 + r0)"]


def test_views_are_index_arithmetic():
    assert body(lambda x: x.t()[1:] * 2, x34) == [
        "buf1[i0 < 3, i1 < 3 -> i0 + 3*i1] = mul(load(buf0, i0 + 4*i1 + 1), 2.0)"
    ]
    assert kinds(lambda x: x.view(2, 6).t().unsqueeze(0).expand(5, 6, 2) * 2, x34) == [Pointwise]


def test_a_view_of_an_input_is_no_computation():
    program = check(lambda x: (x.t(), x[1:]), x34)
    assert program.computations == []


def test_merged_and_split_dimensions_divide_only_where_they_must():
    text = "\n".join(body(lambda x: ((x + 1).view(3, 2, 2) * 2).view(12).exp(), x34))
    assert "//" not in text and "%" not in text


def test_reading_twice_keeps_a_dear_value_and_computes_a_cheap_one_again():
    assert kinds(lambda x: (x.exp().sum(0), x.exp() * 2), x34)  # runs
    shared = [type(c) for c in lowered(lambda x: (lambda e: (e.sum(0), e.sum(1)))(x.exp()), x34).computations]
    assert shared == [Pointwise, Reduction, Reduction]
    cheap = [type(c) for c in lowered(lambda x: (lambda e: (e.sum(0), e.sum(1)))(-x), x34).computations]
    assert cheap == [Reduction, Reduction]


def test_a_dear_value_is_not_computed_along_a_broadcast_dimension():
    assert kinds(lambda x, y: x.exp() + y, torch.randn(3, 1), x34) == [Pointwise, Pointwise]


def test_unused_results_are_not_computed():
    assert kinds(lambda x: torch.ops.aten.native_layer_norm(x, [4], None, None, 1e-5)[1], x34) == [Reduction, Pointwise]


def test_unknown_operators_are_extern_calls_with_views():
    program = check(lambda x: torch.logcumsumexp(x[1:], 0) + 1, x34)
    assert [type(c) for c in program.computations] == [Extern, Pointwise]
    assert "buf0[2, 4]{4, 1} + 4" in program_text(program)


def test_products_write_into_planned_memory():
    extern = check(lambda x, y: x @ y, x34, torch.randn(4, 2)).computations[0]
    assert isinstance(extern, Extern) and extern.out_variant is torch.ops.aten.mm.out


def test_a_clone_is_a_copy_only_where_memory_must_be_fresh():
    assert kinds(lambda x: x.clone() @ x.t(), x34) == [Extern]
    assert kinds(lambda x: x.clone(), x34) == [Pointwise]


def test_explicit_rounding_stays_and_implicit_rounding_goes():
    line = body(lambda x: x.to(torch.bfloat16).float() * 2, x34)[0]
    assert "cast<bf16>" in line
    line = body(lambda x: x * 2 + 1, x34.bfloat16())[0]
    assert line.count("cast<bf16>") == 1


def test_embedding_checks_its_positions():
    program = lowered(lambda w, i: F.embedding(i, w), torch.randn(5, 3), torch.tensor([0, 4]))
    assert "check_index" in program_text(program)
    for wrong in (5, -1):
        with pytest.raises(IndexError):
            run(program, [torch.randn(5, 3), torch.tensor([0, wrong])])


def test_an_index_that_is_known_to_be_inside_is_not_checked():
    assert "check_index" not in "".join(body(lambda x: x[torch.arange(3)] * 2, x34))


# -- updates of inputs ------------------------------------------------------------------------------------------------


def _with_epilogue(f, *args):
    """The program of `f`, whose first results are stored back into the inputs of the same positions."""
    aten = trace(f, args)
    graph = aten.graph
    output = graph.output_node()
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    values = list(output.args[0])
    with graph.inserting_before(output):
        for target, value in zip(inputs, values):
            node = graph.call_function(torch.ops.aten.copy_.default, (target, value))
            node.meta["val"] = target.meta["val"]
    output.args = (tuple(values[len(inputs) :]),)
    return lower(aten)


def test_an_update_is_stored_into_the_input():
    program = _with_epilogue(lambda x: (x + 1,), x34)
    assert [type(c) for c in program.computations] == [Pointwise]
    x = torch.zeros(3, 4)
    run(program, [x])
    assert x.eq(1).all()


def test_swapped_inputs_are_read_before_they_are_written():
    program = _with_epilogue(lambda x, y: (y * 1, x * 1, x + y), x34, x34)
    x, y = torch.zeros(2, 3, 4).unbind()
    y.fill_(5)
    (total,) = run(program, [x, y])
    assert x.eq(5).all() and y.eq(0).all() and total.eq(5).all()


def test_a_shifted_read_of_an_updated_input_sees_the_old_value():
    program = _with_epilogue(lambda x: (x.flip(0),), x34)
    x = torch.arange(12.0).view(3, 4)
    run(program, [x])
    assert torch.equal(x, torch.arange(12.0).view(3, 4).flip(0))


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_lowering_adds_no_guard():
    aten = trace(lambda x: F.layer_norm(x, x.shape[1:]).view(-1).softmax(0)[1:], (torch.randn(5, 7),), dynamic=True)
    before = len(aten.shape_env.final_guards())
    lower(aten)
    assert len(aten.shape_env.final_guards()) == before


@pytest.mark.parametrize("rows", [2, 5, 9])
def test_one_program_serves_all_sizes(rows):
    def f(x):
        return torch.cat([x * 2, x.flip(0)]).softmax(0).sum(1), (x.t().reshape(-1) + 1).view(-1, x.shape[0]).mean(0)

    program = lower(trace(f, (torch.randn(4, 6),), dynamic=True))
    x = torch.randn(rows, 3)
    for actual, expected in zip(run(program, [x]), f(x)):
        torch.testing.assert_close(actual, expected)


def test_the_last_reader_of_several_values_is_kept_in_their_place():
    def f(x):
        one, other = x @ x, x.t() @ x
        total = one + other
        return (total * 2) @ x, total * 3

    assert kinds(f, torch.randn(4, 4)) == [Extern, Extern, Pointwise, Pointwise, Extern, Pointwise]

"""`pliant.explain`: what one call compiles."""

import pytest
import torch

import pliant


def compiled(x):
    y = torch.sin(x) + 1
    pliant.graph_break()
    return y * 2


def test_a_break_splits_the_function_in_two_graphs():
    x = torch.randn(4)
    seen = pliant.explain(compiled, backend="eager")(x)
    torch.testing.assert_close(seen.result, compiled(x))
    assert len(seen.graphs) == 2 and len(seen.breaks) == 1
    assert "torch.sin" in seen.graphs[0]
    assert "[user-request] test_explain.py:11 in compiled    pliant.graph_break()" in seen.breaks[0]
    assert seen.operators == 3
    assert "capture" in seen.seconds


def test_guards_are_in_words():
    seen = pliant.explain(lambda x: x + 1, backend="eager", dynamic=False)(torch.zeros(2, 3))
    assert any("is a Tensor (2, 3) float32 on cpu" in guard for guard in seen.guards)


def test_a_guard_that_several_graphs_have_is_told_once():
    seen = pliant.explain(compiled, backend="eager")(torch.zeros(2))
    assert len(seen.events["guard"]) > len(seen.guards) == len(set(seen.guards))
    lines = str(seen).splitlines()
    (state,) = [line for line in lines if "`grad enabled` is True" in line]
    assert state.startswith("guards of the state around the call: ") and "`autocast` is ()" in state


def test_a_guard_of_a_module_is_told_by_name():
    seen = pliant.explain(lambda x: x + abs(2), backend="eager")(torch.zeros(2))
    assert "the module of the function has no 'abs'" in seen.guards


def test_it_prints():
    text = str(pliant.explain(lambda x: x + 1, backend="eager")(torch.zeros(2, 3)))
    assert text.startswith("1 graph, 1 operator, 0 graph breaks\n")
    assert "guard 0: " in text and "seconds: " in text


def test_each_call_explains_afresh():
    explained = pliant.explain(lambda x: x + 1, backend="eager")
    assert [len(explained(torch.zeros(n)).graphs) for n in (2, 2)] == [1, 1]


def _is_traced():
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def _mask(x):
    if _is_traced():
        return x * 2
    return x


def test_who_asked_whether_it_is_compiled():
    seen = pliant.explain(lambda x: _mask(x) + 1, backend="eager")(torch.ones(2))
    assert torch.equal(seen.result, torch.full((2,), 3.0))
    (asked,) = seen.questions
    assert "is_compiling() is True at" in asked and "in _is_traced" in asked
    assert "in _mask" in asked and "if _is_traced():" in asked
    assert "asked 0: is_compiling() is True" in str(seen)
    assert not pliant.explain(lambda x: x + 1, backend="eager")(torch.ones(2)).questions


@pytest.mark.parametrize("question", [torch.compiler.is_compiling, pliant.is_compiling])
def test_captured_code_can_be_told_that_it_is_not_compiled(question):
    def function(x):
        return x * 2 if question() else x * 3

    x = torch.ones(2)
    compiled = pliant.compile(function, fullgraph=True)
    assert torch.equal(compiled(x), x * 2)
    with pliant.config.patch(is_compiling=False):
        assert torch.equal(compiled(x), x * 3)
    assert torch.equal(compiled(x), x * 2)
    assert torch.equal(pliant.compile(function, options={"is_compiling": False})(x), x * 3)

"""`pliant.explain`: what one call compiles."""

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
    assert "[user-request] test_explain.py:10 in compiled    pliant.graph_break()" in seen.breaks[0]
    assert seen.operators == 3
    assert "capture" in seen.seconds


def test_guards_are_in_words():
    seen = pliant.explain(lambda x: x + 1, backend="eager", dynamic=False)(torch.zeros(2, 3))
    assert any("is a Tensor (2, 3) float32 on cpu" in guard for guard in seen.guards)


def test_it_prints():
    text = str(pliant.explain(lambda x: x + 1, backend="eager")(torch.zeros(2, 3)))
    assert text.startswith("1 graphs, 1 operators, 0 graph breaks\n")
    assert "guard 0: " in text and "seconds: " in text


def test_each_call_explains_afresh():
    explained = pliant.explain(lambda x: x + 1, backend="eager")
    assert [len(explained(torch.zeros(n)).graphs) for n in (2, 2)] == [1, 1]

"""`register_multi_grad_hook` on tensors of which a backward pass through one compiled function reaches some."""

import pytest
import torch
from torch.autograd.graph import register_multi_grad_hook

import pliant


def _two(x, w):
    return x.sin(), w * 2


def _one(x, w):
    return x.sin() * w, x + w


# Which of the leaves x, w and the results a, b have the hook; of which results gradients are asked for, in turn; for what.
CASES = [
    ("xw", ("a", "b", "ab"), "xw"), ("wx", ("a", "b", "ab"), "xw"), ("ab", ("a", "b", "ab"), "xw"), ("abx", ("a", "ab"), "w"),
    ("w", ("a", "b"), "xw"), ("xb", ("b", "a", "ab"), "x"), ("xwab", ("ab", "a"), "x"),
]  # fmt: skip


@pytest.mark.spread(2, "backend", "program", "case")
@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("program", [_two, _one])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2]}")
def test_it_waits_for_the_gradients_that_come(case, program, backend):
    hooked, asked, wanted = case

    def seen(call):
        torch.manual_seed(0)
        tensors = {"x": torch.rand(3, requires_grad=True), "w": torch.rand(3, requires_grad=True)}
        tensors |= dict(zip("ab", call(*tensors.values())))
        noted = []

        def note(given):
            noted.append([one if one is None else one.tolist() for one in given])

        register_multi_grad_hook([tensors[name] for name in hooked], note)
        for roots in asked:
            noted.append(roots)
            loss = sum(tensors[name].sum() for name in roots)
            loss.backward(inputs=[tensors[name] for name in wanted], retain_graph=True)
        return noted

    assert seen(pliant.compile(program, backend=backend)) == seen(program)

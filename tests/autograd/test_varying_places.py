"""Parts of a program that are given views at a place that varies: nobody tells them the place, nor need they know it."""

import torch

import pliant


def step(key, value, output, state, i):
    k, v = key[:, i], value[:, i]
    top = torch.maximum(state, k)
    e = torch.exp(state - top)
    output[:, i] = (e * state + v) / (e + 1)  # a write: what follows is a part of its own
    again = torch.maximum(state * 2, k)
    return torch.exp(state - again) * v, again


def loop(step, key, value):
    output, total = torch.zeros_like(key) * value, 0
    state = torch.zeros(key.shape[0], key.shape[2])
    for i in range(key.shape[1]):
        term, state = step(key, value, output, state, i)
        total = total + term
    return output, total, state


def test_gradients_of_steps_that_write_at_a_place_that_varies():
    pliant.reset()
    compiled = pliant.compile(step)
    for batch, length in ((2, 3), (3, 5), (4, 4)):
        x = torch.randn(batch, length, 4, generator=torch.Generator().manual_seed(1))
        found = []
        for each in (step, compiled):
            key, value = (x.clone().requires_grad_() for _ in range(2))
            results = loop(each, key * 1.5, value * 1)
            sum(r.sum() for r in results).backward()
            found.append((*results, key.grad, value.grad))
        for mine, theirs in zip(*reversed(found), strict=True):
            torch.testing.assert_close(mine, theirs)
    assert pliant.stats()["assumptions"] == pliant.stats()["fallbacks"] == 0
    pliant.reset()

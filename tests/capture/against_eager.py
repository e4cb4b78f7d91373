"""Compare a compiled function with eager: outputs, which of them require grad, gradients, written inputs, side effects."""

import copy

import torch
from torch.utils._pytree import tree_leaves, tree_map

import pliant
from pliant.debug import events

# The captured graph as it is, the joint stage on symbolic sizes, the whole compiler.
WAYS = ({"backend": "eager"}, {"backend": "aot_eager", "dynamic": True}, {"backend": "pliant", "dynamic": False})


def fresh(value):
    """A copy of a test's input; modules and tensors keep what they require."""
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return copy.deepcopy(value) if isinstance(value, torch.nn.Module) else value


def outcome(fn, inputs, backward=True):
    """Everything about a call that is to be the same."""
    given = tree_map(fresh, inputs)
    torch.manual_seed(0)
    out = fn(*given)
    tensors = [o for o in tree_leaves(out) if isinstance(o, torch.Tensor)]
    losses = [(o * torch.linspace(0.5, 1.5, o.numel()).view(o.shape)).sum() for o in tensors if o.requires_grad]
    if losses and backward:
        sum(losses).backward()
    leaves = [leaf for one in given for leaf in leaves_of(one)]
    numbers = [o for o in tree_leaves(out) if not isinstance(o, torch.Tensor)]
    return {
        "outputs": [o.detach() for o in tensors],
        "requires grad": [o.requires_grad for o in tensors],
        "numbers": numbers,
        "inputs": [leaf.detach() for leaf in leaves],
        "gradients": [leaf.grad for leaf in leaves if leaf.is_leaf],
    }


def leaves_of(value):
    if isinstance(value, torch.nn.Module):
        return [*value.parameters(), *value.buffers()]
    return [v for v in tree_leaves(value) if isinstance(v, torch.Tensor)]


def check(fn, *inputs, whole=True, ways=WAYS, backward=True, tolerance=1e-5):
    """`fn` is compiled anew in each of the ways. `whole`: in one graph."""
    expected = outcome(fn, inputs, backward)
    for way in ways:
        compiled = pliant.compile(fn, fullgraph=whole, **way)
        with events.collect("fallback", "skip") as failures:
            for _ in range(2):
                found = outcome(compiled, inputs, backward)
                for what, value in expected.items():
                    assert_same(found[what], value, f"{what} ({way})", tolerance)
        assert not failures, f"ran eagerly ({way}): {failures}"


def assert_same(found, expected, what, tolerance):
    if isinstance(expected, torch.Tensor):
        assert isinstance(found, torch.Tensor), what
        torch.testing.assert_close(
            found, expected, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda text: f"{what}: {text}"
        )
    elif isinstance(expected, list):
        assert len(found) == len(expected), what
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, what, tolerance)
    else:
        assert found == expected, what

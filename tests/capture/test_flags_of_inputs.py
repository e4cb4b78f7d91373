"""Arguments that the program itself makes require gradients: they do so from before the graph on."""

import pytest
import torch

import pliant

MODEL = torch.nn.Linear(3, 2)


def penalty(x, y):
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(MODEL(x).square().sum(), x, create_graph=True)
    return gradient.square().sum() + y.sum()


def by_attribute(x, y):
    before = x.requires_grad, x.is_leaf
    x.requires_grad = True
    return (x * y).sum() * (1 + sum(before) + x.requires_grad)


def while_nothing_is_recorded(x, y):
    with torch.no_grad():
        x.requires_grad_()
        z = x * 2
    return (z * x * y).sum()


def behind_a_use(x, y):
    z = x * 2
    x.requires_grad_()
    return (z * x * y).sum()


def both(x, y):
    x.requires_grad_()
    y.requires_grad_()
    return (x * y * x).sum()


def observed(fn, kind, n):
    x = torch.arange(3.0 * n).view(n, 3)
    y = {"other": x + 1, "same": x, "view": x.view(n, 3), "detached": x.detach()}[kind]
    fn(x, y).backward()
    result = [x.requires_grad, y.requires_grad, x.grad, y.grad, MODEL.weight.grad]
    MODEL.zero_grad()
    return result


@pytest.mark.parametrize("program", [penalty, by_attribute, while_nothing_is_recorded, behind_a_use, both])
def test_the_caller_has_the_gradients(program):
    pliant.reset()
    compiled = pliant.compile(program, backend="aot_eager")
    for kind in ("other", "same", "view", "detached", "other"):
        for n in (2, 4):
            torch.testing.assert_close(observed(compiled, kind, n), observed(program, kind, n), rtol=1e-5, atol=1e-5)
    assert pliant.stats()["graph_breaks"] == 2 * (program is behind_a_use)


def test_an_argument_is_told_where_nothing_else_is_done():
    def fn(x):
        return x.requires_grad_()

    pliant.reset()
    x = torch.ones(3)
    assert pliant.compile(fn)(x) is x and x.requires_grad
    assert pliant.stats()["graph_breaks"] == 0


def test_an_argument_is_told_once_and_not_on_both_sides_of_a_branch():
    def fn(x, y):
        if y.sum() > 0:
            x.requires_grad_()
        return x * 2

    pliant.reset()
    compiled = pliant.compile(fn)
    for sign in (1, -1):
        x = torch.ones(3)
        assert compiled(x, sign * torch.ones(3)).requires_grad is x.requires_grad is (sign > 0)


def freeze(module, needed):
    for p in module.parameters():
        p.requires_grad = needed


def frozen_first(critic, maker, x):
    freeze(critic, False)
    critic(maker(x)).mean().backward()
    return x * 2


def frozen_in_between(critic, maker, x):
    loss = critic(x.tile(2)[:, :3]).mean()
    freeze(critic, False)
    return loss + critic(maker(x)).mean()


def trained_and_frozen(critic, maker, x):
    freeze(critic, True)
    critic(x.tile(2)[:, :3]).mean().backward()
    with torch.no_grad():
        for p in critic.parameters():
            p.sub_(p.grad)
    freeze(critic, False)
    return critic(maker(x)).mean()


def thawed_first(critic, maker, x):
    critic.requires_grad_(True)
    return critic(maker(x)).mean()


def thawed_last(critic, maker, x):
    result = critic(maker(x)).mean()
    freeze(critic, True)
    return result


def turned(critic, maker, x):
    critic.bias.requires_grad_(not critic.weight.requires_grad)
    return critic(maker(x)).mean() * critic.weight.sum()


def frozen_for_some(critic, maker, x):
    if x.sum() > 0:
        critic.bias.requires_grad_(False)
    return critic(maker(x)).mean()


def frozen_before_an_error(critic, maker, x):
    critic.requires_grad_(False)
    raise ValueError("frozen")


def flags_and_gradients(fn, flags):
    torch.manual_seed(0)
    critic, maker = torch.nn.Linear(3, 1), torch.nn.Linear(2, 3)
    parameters, seen = [*critic.parameters(), *maker.parameters()], []
    for n, needed in enumerate(flags):
        if needed is not None:
            freeze(critic, needed)
        try:
            result = fn(critic, maker, torch.randn(n + 3, 2))
        except ValueError as error:
            assert str(error) == "frozen"
        else:
            seen.append(result.detach())
            if result.requires_grad:
                result.sum().backward()
        seen.append([(p.requires_grad, p.grad, p.detach().clone()) for p in parameters])
        for p in parameters:
            p.grad = None
    return seen


@pytest.mark.spread(2, "flags", "program")
@pytest.mark.parametrize("flags", [(True, False, True), (False, None), (True, None)])
@pytest.mark.parametrize(
    "program",
    [
        frozen_first,
        frozen_in_between,
        trained_and_frozen,
        thawed_first,
        thawed_last,
        turned,
        frozen_for_some,
        frozen_before_an_error,
    ],
)
def test_parameters_that_the_program_freezes(program, flags):
    pliant.reset()
    compiled = pliant.compile(program, backend="aot_eager")
    torch.testing.assert_close(flags_and_gradients(compiled, flags), flags_and_gradients(program, flags))


@pytest.mark.fallbacks_expected
def test_a_parameter_that_is_thawed_behind_its_use():
    """What is returned leads to the parameter as it was, and to it as it is: such a function runs as it is."""

    def fn(x):
        first = MODEL(x)
        MODEL.requires_grad_(True)
        return first + MODEL(x + 1)

    pliant.reset()
    MODEL.requires_grad_(False)
    pliant.compile(fn)(torch.ones(2, 3)).sum().backward()
    assert MODEL.weight.grad.eq(4).all()
    MODEL.zero_grad()

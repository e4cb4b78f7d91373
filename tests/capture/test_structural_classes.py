"""Objects each of a class of their own share entries; a class is still told from another that does something else."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import pliant


def call(module, x):
    return module(x)


def recompiles(modules, program=call):
    """How often the program is compiled anew for these, each compared with eager: once where only the class varies."""
    pliant.reset()
    compiled, x = pliant.compile(program, backend="eager", fullgraph=True), torch.linspace(0, 1, 8).reshape(2, 4)
    for module in modules:
        torch.testing.assert_close(compiled(module, x), program(module, x))
    return pliant.stats()["recompiles"]


@pytest.mark.parametrize("parametrize", [weight_norm, spectral_norm])
def test_parametrized_modules(parametrize):
    assert recompiles([parametrize(nn.Linear(4, 4)).eval() for _ in range(10)]) == 1


def test_a_model_of_parametrized_modules_behind_breaks():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = weight_norm(nn.Linear(4, 4))

        def forward(self, x):
            x = self.inner(x)
            pliant.graph_break()
            return x + 1

    model, x = nn.Sequential(*(Block() for _ in range(10))), torch.ones(2, 4)
    pliant.reset()
    compiled = pliant.compile(model, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))
    assert pliant.stats()["recompile_limits"] == 0


class Base:
    scale = 1

    def __call__(self, x):
        return x * self.factor + self.scale


def made(factor, name="Made", base=Base, **members):
    return type(name, (base,), {"factor": factor, **members})()


def test_what_a_class_holds_counts():
    assert recompiles([made(2) for _ in range(5)]) == 1
    assert recompiles([made(2), made(3), made(2.0), made(2), made(3), made(2.0)]) == 3
    assert recompiles([made(2), made(2, scale=5), made(2, scale=5), made(2, other=1), made(2, other=2)]) == 2
    plus, minus = ({"__call__": lambda self, x, k=k: x + k} for k in (1, -1))
    assert recompiles([made(2), made(2, **plus), made(2, **minus), made(2, **plus), made(2)]) == 3


def test_functions_of_classes_are_known_by_their_closures():
    def closing(k):
        return made(2, total=property(lambda self: k), step=staticmethod(lambda x: x - k))

    def program(obj, x):
        return obj(x) * obj.total + obj.step(x)

    assert recompiles([closing(3) for _ in range(5)], program) == 1
    assert recompiles([closing(k) for k in (3, 4, 5, 6)], program) == 2


def test_another_base_or_metaclass_is_another_class():
    class Meta(type):
        pass

    class Other(Base):
        pass

    other = Meta("Made", (Base,), {"factor": 2})()
    assert recompiles([made(2), made(2, base=Other), other, made(2), made(2, base=Other)]) == 3


def test_a_program_that_gets_hold_of_the_class():
    def named(obj, x):
        return x + len(type(obj).__name__)

    def compared(obj, x):
        return x + (type(obj) is kept)

    first, second = made(2), made(2, "MadeToo")
    kept = type(second)
    assert recompiles([first, second, first, second], named) == 1
    assert recompiles([first, second, made(2, "MadeToo"), second], compared) == 2
    assert recompiles([first, made(2), made(2)], lambda obj, x: x + isinstance(obj, Base)) == 1
    assert recompiles([first, second], lambda obj, x: x + isinstance(obj, kept)) == 1


def test_two_of_one_class_and_two_of_two():
    def both(pair, x):
        return pair[0](x) + pair[1](x)

    one, two = made(2), made(2)
    assert recompiles([(one, two), (one, type(one)()), (two, one), (one, one), (made(2), made(2))], both) <= 4


def test_a_class_that_the_program_writes_to():
    def writes(obj, x):
        type(obj).count = getattr(type(obj), "count", 0) + 1
        return x + obj.count

    compiled, x = pliant.compile(writes, backend="eager"), torch.ones(2)
    objects, plain = [made(2) for _ in range(3)], [made(2) for _ in range(3)]
    with pliant.config.patch(recompile_limit=64):
        for turn in range(3):
            for mine, theirs in zip(objects, plain):
                assert torch.equal(compiled(mine, x), writes(theirs, x)), turn

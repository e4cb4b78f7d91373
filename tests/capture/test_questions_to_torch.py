"""What functions of C answer about classes and settings: known at capture, guarded, read again at each call."""

import torch

import pliant


class Base:
    pass


class First(Base):
    factor = 2


def test_subclasses_are_followed_and_guarded():
    def program(x):
        for cls in Base.__subclasses__():
            x = x * cls.factor
        return x

    pliant.reset()
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x), x * 2)

    class Second(Base):
        factor = 5

    torch.testing.assert_close(compiled(x), x * 10)
    assert pliant.stats()["graphs"] == 2
    torch.testing.assert_close(compiled(x), x * 10)
    assert pliant.stats()["graphs"] == 2


def test_whether_hooks_of_saved_tensors_are_disabled():
    def program(x):
        why = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
        return x + (1 if why is None else len(why))

    pliant.reset()
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    x = torch.zeros(3)
    torch.testing.assert_close(compiled(x), x + 1)
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        torch.testing.assert_close(compiled(x), x + 8)
    torch.testing.assert_close(compiled(x), x + 1)
    assert pliant.stats()["graphs"] == 2

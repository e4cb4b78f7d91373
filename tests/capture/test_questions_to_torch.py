"""What functions of C answer about classes and settings: known at capture, guarded, read again at each call."""

import contextlib

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

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


def test_the_modes_of_the_capture_are_not_seen():
    """Layers of PyTorch ask for the modes around them, for short cuts that none of them may miss."""

    def program(x):
        return x + len(_get_current_dispatch_mode_stack())

    pliant.reset()
    x = torch.zeros(3)
    torch.testing.assert_close(pliant.compile(program, fullgraph=True)(x), x)
    layer = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    given = torch.randn(2, 3, 8)
    with torch.no_grad():  # some versions take an operator there that has no shape rule
        torch.testing.assert_close(pliant.compile(layer)(given), layer(given))


class Doubling(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {})) * 2


def asks_for_modes():
    return torch._C._is_torch_function_mode_enabled(), torch._C._len_torch_function_stack()


def inside_a_mode(x):
    with Doubling():
        asked = asks_for_modes(), type(torch._C._get_function_stack_at(torch._C._len_torch_function_stack() - 1)).__name__
    return x + 1, asked, asks_for_modes()


OF_MODES = {
    "function modes": lambda x: (x + 1, asks_for_modes()),
    "inside one": inside_a_mode,
    "a dispatch key": lambda x: (x + 1, torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Python)),
    "another": lambda x: (x + 1, torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.PythonDispatcher)),
    "a setting of TorchScript": lambda x: (x + 1, torch._C._get_graph_executor_optimize(torch._C._get_graph_executor_optimize())),
}


@pytest.mark.parametrize("around", [contextlib.nullcontext, lambda: torch.device("cpu")], ids=["alone", "device"])
@pytest.mark.parametrize("program", OF_MODES.values(), ids=OF_MODES)
def test_what_the_capture_changes_is_answered_as_for_eager(program, around):
    pliant.reset()
    x = torch.zeros(3)
    with around():
        assert str(pliant.compile(program, backend="eager")(x)) == str(program(x))


ORDINARY = torch.ones(3)
with torch.inference_mode():
    INFERRED = torch.ones(3)


def inputs_and_views(x):
    y = x + 1
    return [torch.is_inference(one) for one in (x, x[1:], x.detach(), y, y.view(3, 1))]


def blocks(x):
    y = x * 2
    with torch.inference_mode():
        z = x + 1
        answers = [torch.is_inference(one) for one in (x, y, z, x.view(-1), y.view(-1), z.view(-1))]
    return [*answers, z.is_inference(), z.view(-1).is_inference(), (x * 2).is_inference()]


@pytest.mark.parametrize("around", [contextlib.nullcontext, torch.inference_mode])
@pytest.mark.parametrize("program", [inputs_and_views, blocks])
def test_inference_tensors(program, around):
    pliant.reset()
    compiled = pliant.compile(lambda x: (program(x), x + 1), backend="aot_eager")
    with around():
        for x in (ORDINARY, INFERRED, ORDINARY, INFERRED):
            assert compiled(x)[0] == program(x)
    assert pliant.stats()["fallbacks"] == 0


def test_whether_an_input_is_an_inference_tensor_is_no_break():
    pliant.reset()
    compiled = pliant.compile(lambda x: x + 1 if x.is_inference() else x - 1, backend="eager", fullgraph=True)
    assert [compiled(x).tolist() for x in (ORDINARY, INFERRED, ORDINARY)] == [[0.0] * 3, [2.0] * 3, [0.0] * 3]

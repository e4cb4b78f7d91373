"""Tensor arguments known natively: the check agrees with the statements that it stands for, whatever memory is dirty."""

import pytest
import torch

import pliant
from pliant.dispatch.compiled_function import dispatcher_of
from pliant.guards import native_watch, tensor_words

native = pytest.importorskip("pliant.compiler") and pytest.mark.skipif(
    not native_watch.available(), reason="no native check on this interpreter or without a C compiler"
)


@native
def test_arguments_that_passed_are_known():
    compiled = pliant.compile(lambda x, y: x + y, backend="eager")
    x, y = torch.ones(3, 5), torch.zeros(3, 5)
    compiled(x, y)
    alike = dispatcher_of(compiled).hot.__globals__["alike"]
    for _ in range(100):
        assert alike((torch.zeros(3, 5), torch.ones(30)[:15].reshape(3, 5).clone()))


@native
@pytest.mark.parametrize("other", tensor_words._OTHERS)
def test_others_are_not(other):
    compiled = pliant.compile(lambda x: x, backend="eager")
    compiled(torch.zeros(3, 5))
    alike = dispatcher_of(compiled).hot.__globals__["alike"]
    assert alike((torch.ones(3, 5),)) and not alike((other(),))


@native
@pytest.mark.parametrize("other", [None, 3, [1], "text", torch.nn.Parameter(torch.zeros(3, 5))])
def test_other_objects_are_not(other):
    compiled = pliant.compile(lambda x: x, backend="eager")
    compiled(torch.zeros(3, 5))
    assert not dispatcher_of(compiled).hot.__globals__["alike"]((other,))

"""Tensor arguments known natively: the check agrees with the statements that it stands for, whatever memory is dirty."""

from dataclasses import replace

import pytest
import torch

import pliant
from pliant.dispatch.compiled_function import dispatcher_of
from pliant.guards import native_watch, tensor_words
from pliant.guards.alike import KnownTensors

native = pytest.importorskip("pliant.compiler") and pytest.mark.skipif(
    not native_watch.available(), reason="no native check on this interpreter or without a C compiler"
)


def _learnt(compiled, *args):
    """What the check asks once these have passed twice."""
    for _ in range(2):
        compiled(*args)
    return dispatcher_of(compiled).hot.__globals__["alike"]


@native
def test_arguments_that_passed_are_known():
    compiled = pliant.compile(lambda x, y: x + y, backend="eager")
    alike = _learnt(compiled, torch.ones(3, 5), torch.zeros(3, 5))
    for _ in range(100):
        assert alike((torch.zeros(3, 5), torch.ones(30)[:15].reshape(3, 5).clone()))


@native
@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_what_describes_tensors_is_found_under_other_defaults(default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        with torch.device("meta"):
            found = tensor_words.description.__wrapped__()
            assert found is not None
            # Bits that nobody sets may or may not be seen to vary: each experiment finds its own mask.
            assert replace(found, mask=()) == replace(tensor_words.description(), mask=())
            one, other = (torch.zeros(3, 5, dtype=torch.float32, device="cpu") for _ in range(2))
            assert found.of(one) == found.of(other)
    finally:
        torch.set_default_dtype(before)


@native
@pytest.mark.parametrize("other", tensor_words._OTHERS)
def test_others_are_not(other):
    compiled = pliant.compile(lambda x: x, backend="eager")
    alike = _learnt(compiled, torch.zeros(3, 5))
    assert alike((torch.ones(3, 5),)) and not alike((other(),))


@native
@pytest.mark.parametrize("other", [None, 3, [1], "text", torch.nn.Parameter(torch.zeros(3, 5))])
def test_other_objects_are_not(other):
    compiled = pliant.compile(lambda x: x, backend="eager")
    assert not _learnt(compiled, torch.zeros(3, 5))((other,))


@native
def test_what_is_called_once_is_not_learnt_from():
    compiled = pliant.compile(lambda x: x, backend="eager")
    compiled(torch.zeros(3, 5))
    assert not dispatcher_of(compiled).hot.__globals__["alike"]((torch.zeros(3, 5),))


def _trained(kind):
    """A tensor of that kind, all of one layout."""
    leaf = torch.zeros(3, 5, requires_grad=True)
    made = {
        "leaf": lambda: leaf,
        "parameter": lambda: torch.nn.Parameter(torch.zeros(3, 5)),
        "result": lambda: leaf * 2,
        "second result": lambda: torch.zeros(2, 3, 5, requires_grad=True).unbind()[1],
        "view": lambda: torch.zeros(15, requires_grad=True).view(3, 5),
        "written": lambda: torch.zeros(3, 5).mul_(leaf),
        "without": lambda: torch.zeros(3, 5),
        "detached": lambda: leaf.detach(),
        "detached in place": lambda: (leaf * 2).detach_(),
        "no longer": lambda: torch.zeros(3, 5, requires_grad=True).requires_grad_(False),
        "asked of a result": lambda: (leaf * 2).requires_grad_(),
    }
    return made[kind]()


KINDS = ("leaf", "parameter", "result", "second result", "view", "written", "without", "detached", "detached in place",
         "no longer", "asked of a result")  # fmt: skip
UNKNOWN = {"detached in place", "no longer"}  # a view of what is written later is no different


@native
@pytest.mark.parametrize("kind", KINDS)
def test_what_requires_grad_is_known_by_that_and_by_being_a_leaf(kind):
    """Others are never taken for it, and it is known again."""
    compiled = pliant.compile(lambda x: x * 2, backend="eager")
    one = _trained(kind)
    alike = _learnt(compiled, one)
    assert alike((one,)) == alike((_trained(kind),)) == (kind not in UNKNOWN)
    for other in map(_trained, KINDS):
        same = type(other) is type(one) and (other.requires_grad, other.is_leaf) == (one.requires_grad, one.is_leaf)
        assert same or not alike((other,))


@native
@pytest.mark.parametrize("kind", KINDS)
def test_a_view_of_what_got_a_history_later_is_no_other_tensor(kind):
    """Nothing of it is written then: that it requires grad is found when it is asked."""
    compiled = pliant.compile(lambda x: x * 2)
    for _ in range(3):
        compiled(_trained(kind))
    base = torch.zeros(3, 5)
    view = base.view(3, 5)
    for _ in range(3):
        compiled(view)
    base.mul_(torch.ones(3, 5, requires_grad=True))
    assert compiled(view).requires_grad
    leaf = torch.zeros(3, 5).view(3, 5).requires_grad_()
    for _ in range(3):
        assert compiled(leaf).requires_grad


@native
def test_a_leaf_with_a_gradient_and_hooks_is_known():
    compiled = pliant.compile(lambda x: x * 2, backend="eager")
    leaf = _trained("leaf")
    for _ in range(2):
        compiled(leaf).sum().backward()
    alike = dispatcher_of(compiled).hot.__globals__["alike"]
    leaf.register_hook(lambda gradient: None)
    assert leaf.grad is not None and alike((leaf,))


@native
def test_tensors_that_passed_are_known_outside_of_guards():
    known = KnownTensors()
    one = torch.zeros(3, 5)
    assert not known.known((one,))
    known.learn((one,))
    assert known.known((torch.ones(3, 5),)) and not known.known((torch.ones(5, 3).t(),)) and not known.known((None,))
    assert not known.known((torch.ones(3, 5)._neg_view(),))

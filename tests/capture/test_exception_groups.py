"""`except*` in captured programs."""

import re

import pytest
import torch

import pliant


def handled(x, errors, again):
    out = []
    try:
        try:
            raise ExceptionGroup("g", errors)
        except* ValueError as group:
            out.append(("value", len(group.exceptions)))
            if again:
                raise TypeError("new") from None
        except* KeyError as group:
            out.append(("key", [str(e) for e in group.exceptions]))
        finally:
            out.append("finally")
    except BaseException as error:
        out.append((type(error).__name__, str(error), [type(e).__name__ for e in getattr(error, "exceptions", [])]))
    return x + 1, out


def naked(x):
    try:
        raise ValueError(3)
    except* ValueError as group:
        names = [type(group).__name__, len(group.exceptions)]
    return x, names


V, K, O = ValueError, KeyError, OSError
GROUPS = ([V(1)], [K(1)], [V(1), K(2)], [V(1), O(3)], [O(3)], [V(1), ExceptionGroup("n", [K(1), O(2), V(9)])])


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("errors", GROUPS, ids=str)
def test_groups_are_split_as_in_eager(errors, again):
    def program(x):
        return handled(x, list(errors), again)

    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(1))[1] == program(torch.ones(1))[1]


def test_a_naked_exception_is_wrapped():
    compiled = pliant.compile(naked, backend="eager", fullgraph=True)
    assert compiled(torch.ones(1))[1] == naked(torch.ones(1))[1]


def _not_a_class(x):
    try:
        raise ValueError
    except 5:
        pass


def _not_an_exception(x):
    try:
        raise ValueError
    except (int, KeyError):
        pass


def _a_group(x):
    try:
        raise OSError("a")
    except* ExceptionGroup:
        pass


@pytest.mark.parametrize("program", [_not_a_class, _not_an_exception, _a_group])
def test_what_cannot_be_caught(program):
    with pytest.raises(TypeError) as eager:
        program(torch.ones(1))
    with pytest.raises(TypeError, match=re.escape(str(eager.value))):
        pliant.compile(program)(torch.ones(1))

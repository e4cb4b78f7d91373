"""Results of blocks of inference mode are copied after the program's writes; nothing that fails then runs a program twice."""

import pytest
import torch

import pliant
from pliant.autograd import outputs
from pliant.debug import events


def expanded(x):
    with torch.inference_mode():
        result = x.sum().expand(3)
    x.fill_(0.2)
    return result


def overlapping(x):
    with torch.inference_mode():
        result = (x + 1).unfold(0, 3, 1)
    x.mul_(2)
    return result


def apart(x):
    with torch.inference_mode():
        result = torch.stack([x, x + 1], 1)[:, 1]
    x.mul_(2)
    return result


def empty(x):
    with torch.inference_mode():
        result = x.exp()[:0]
    x.mul_(2)
    return result


@pytest.mark.parametrize("program", [expanded, overlapping, apart, empty])
def test_results_made_before_a_write_are_as_then_and_lie_alike(program):
    compiled = pliant.compile(program, backend="aot_eager")
    for _ in range(2):
        mine, theirs = torch.arange(5.0), torch.arange(5.0)
        found, wanted = compiled(mine), program(theirs)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(mine, theirs)
        assert found.stride() == wanted.stride() and found.is_inference()
    assert not pliant.stats()["assumptions"]


def test_an_error_behind_the_programs_writes_is_raised_and_nothing_runs_again(monkeypatch):
    monkeypatch.setattr(outputs, "_copied", torch.linalg.cholesky)
    x = torch.arange(5.0)
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        pliant.compile(expanded, backend="aot_eager")(x)
    assert x.tolist() == pytest.approx([0.2] * 5)


def test_a_view_written_behind_a_break_has_a_history_that_autograd_does_not_tell():
    """Neither the guards of earlier calls nor the words for what changed may ask for it."""

    def program(x):
        view = x.mT
        view[..., 1] = 0.5
        return view.reshape(-1)

    compiled = pliant.compile(program, backend="aot_eager")
    for size, inference in ((4, False), (6, False), (5, False), (4, True)):
        mine, theirs = (torch.ones(size, 3).requires_grad_() * 2 for _ in range(2))
        with torch.inference_mode(inference):
            torch.testing.assert_close(compiled(mine), program(theirs))
        torch.testing.assert_close(mine, theirs)
    assert not [e for e in events.events("fallback") if "crash" in str(e.fields)]

"""Models that set attributes as they run: exported where every later call would do the same, and refused elsewhere."""

import pytest
import torch
from torch import nn

import pliant
from pliant.errors import ExportError
from pliant.exporting import capture


class Notes:
    scale = None


class Sets(nn.Module):
    """`how`: what a call does with the attribute `kept`."""

    def __init__(self, how):
        super().__init__()
        self.how, self.kept, self.notes = how, 1, Notes()

    def forward(self, x):
        return self.how(self, x)


def scratch(self, x):
    self.notes.scale = 1
    self.notes.scale *= 2
    return x * self.notes.scale


def once(self, x):
    if not hasattr(self, "made"):
        self.made = "here"
    return x + len(self.made)


def size(self, x):
    self.kept = x.shape[0]
    return x * self.kept


def nan(self, x):
    self.kept = float("nan")
    return x


def counter(self, x):
    self.kept += 1
    return x


def flip(self, x):
    self.kept = -self.kept
    return x + 1


def read_before(self, x):
    y = x * self.kept
    self.kept = 3
    return y


def in_a_constant(self, x):
    y = x + torch.tensor([self.kept, 2, 3])
    self.kept = 7
    return y


def first_call(self, x):
    if self.kept == 1:
        self.kept = 2
        return x + 1
    return x + 2


def size_of_before(self, x):
    if self.kept != x.shape[0]:
        self.kept = x.shape[0]
        return x + 1
    return x + 2


def largest_size(self, x):
    if self.kept < x.shape[0]:
        self.kept = x.shape[0]
    return x + self.kept


def sum_of_sizes(self, x):
    self.kept += x.shape[0]
    return x


def exported(how, varies):
    model = Sets(how)
    before = dict(vars(model)), dict(vars(model.notes))
    try:
        said = ({0: pliant.Dim("rows")},) if varies else None
        return model, pliant.export(model, (torch.arange(3.0),), dynamic_shapes=said)
    finally:
        assert (dict(vars(model)), dict(vars(model.notes))) == before


@pytest.mark.parametrize(
    ("how", "name"), [(scratch, "notes.scale"), (once, "made"), (size, "kept"), (nan, "kept")]
)
def test_what_every_call_sets_alike_is_left_out_and_noted(how, name):
    model, program = exported(how, varies=True)
    assert program.notes == (f"`Sets.{name}` is not set",)
    for rows in (3, 5):
        torch.testing.assert_close(program(torch.arange(1.0, rows + 1)), model(torch.arange(1.0, rows + 1)))


@pytest.mark.parametrize(
    ("how", "varies"),
    [
        (counter, True), (flip, True), (read_before, True), (first_call, True), (in_a_constant, False),
        (size_of_before, True), (largest_size, True), (sum_of_sizes, True),
    ],
)  # fmt: skip
def test_what_later_calls_would_see_is_refused(how, varies):
    with pytest.raises(ExportError, match=r"the model changes `Sets.__dict__` \(`kept`\)"):
        exported(how, varies)


def set_back(self, x):
    before, self.kept = self.kept, 3
    y = x * self.kept
    self.kept = before
    return y


@pytest.mark.parametrize(("how", "captures"), [(set_back, 1), (scratch, 2)])
def test_attributes_that_are_left_as_they_were_need_no_second_capture(how, captures, monkeypatch):
    done, whole = [], capture.whole
    monkeypatch.setattr(capture, "whole", lambda *given: done.append(given) or whole(*given))
    model, program = exported(how, True)
    assert len(done) == captures
    assert torch.equal(program(torch.ones(5)), model(torch.ones(5)))


def test_a_model_that_only_returns_its_inputs():
    program = pliant.export(lambda x, y: {"y": y, "x": x}, (torch.ones(2, 3), torch.zeros(2)), dynamic_shapes=({0: pliant.Dim("rows")}, {0: pliant.Dim("n")}))
    given = torch.rand(4, 3), torch.rand(7)
    found = program(*given)
    assert torch.equal(found["x"], given[0]) and torch.equal(found["y"], given[1])

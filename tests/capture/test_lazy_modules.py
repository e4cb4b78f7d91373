"""The first call of a lazy module makes its parameters: it is captured, and gives what eager gives."""

import copy

import torch
from torch import nn

import pliant


class Own(nn.modules.lazy.LazyModuleMixin, nn.Module):
    """Infers from elements."""

    def __init__(self):
        super().__init__()
        self.w = nn.UninitializedParameter()

    def initialize_parameters(self, x):
        if self.has_uninitialized_params():
            with torch.no_grad():
                self.w.materialize(x.shape[1:])
                self.w.copy_(x[0])

    def forward(self, x):
        return x * self.w


def check(model, fallbacks=0):
    other = copy.deepcopy(model)
    compiled = pliant.compile(lambda x: model(x), backend="eager")
    for rows in (3, 3, 5):
        x = torch.randn(rows, 4)
        torch.manual_seed(0)
        want = other(x)
        torch.manual_seed(0)
        assert torch.equal(compiled(x), want)
    assert pliant.stats()["fallbacks"] == fallbacks


def test_the_first_call_is_captured():
    pliant.reset()
    check(nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(2)))


def test_a_module_of_the_program_infers_from_what_was_passed():
    pliant.reset()
    check(Own())


def test_it_is_eager_where_random_numbers_were_drawn_before():
    pliant.reset()
    check(nn.Sequential(nn.Dropout(0.5), nn.LazyLinear(5)), fallbacks=1)


def test_it_is_eager_where_the_program_computed_what_a_module_of_its_own_infers_from():
    pliant.reset()
    check(nn.Sequential(nn.ReLU(), Own()), fallbacks=1)

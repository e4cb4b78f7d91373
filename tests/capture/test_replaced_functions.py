"""What the program put in the place of PyTorch's functions, and objects that say what they are by one attribute."""

import warnings

import pytest
import torch

import pliant

X = torch.linspace(-1, 1, 12).view(3, 4)


def test_a_function_that_calls_the_one_whose_place_it_takes(monkeypatch):
    """PyTorch's function tells modes the name under which it is found, which is the program's by now."""
    before = torch.nn.functional.layer_norm
    monkeypatch.setattr(torch.nn.functional, "layer_norm", lambda *args, **given: before(*args, **given) * 2)
    module = torch.nn.LayerNorm(4)
    torch.testing.assert_close(pliant.compile(module)(X), module(X))
    torch.testing.assert_close(pliant.compile(lambda x: before(x, (4,)))(X), before(X, (4,)))


@pytest.mark.parametrize("make, dtypes, name", [(torch.finfo, (torch.float16, torch.float32), "eps"), (torch.iinfo, (torch.int8, torch.int16), "max")])
def test_the_limits_of_a_dtype_that_an_object_holds(make, dtypes, name):
    def scaled(x, limits):
        return x * getattr(limits[0], name)

    compiled = pliant.compile(scaled)
    for dtype in dtypes:
        torch.testing.assert_close(compiled(X, [make(dtype)]), scaled(X, [make(dtype)]))


def test_filters_of_warnings_may_change_between_calls():
    def warned(x):
        try:
            warnings.warn("a", UserWarning, stacklevel=1)
            return x * 2
        except UserWarning:
            return x * 3

    compiled = pliant.compile(warned)
    with warnings.catch_warnings():
        for action, factor in (("ignore", 2), ("error", 3), ("ignore", 2)):
            warnings.simplefilter(action)
            torch.testing.assert_close(compiled(X), X * factor)

"""What the program put in the place of PyTorch's functions, and objects that say what they are by one attribute."""

import builtins
import textwrap
import warnings

import pytest
import torch

import own_process
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


def adds_ten(original):
    def patched(*args, **given):
        found = original(*args, **given)
        return found + 10 if isinstance(found, torch.Tensor) else found

    return patched


def folded(x):
    return sum([x, 1, x]), max([x.sum(), x.mean()], key=lambda v: v is None), abs(x)


@pytest.mark.parametrize("name", ["sum", "max", "abs"])
def test_a_builtin_that_calls_the_one_whose_place_it_takes(monkeypatch, name):
    monkeypatch.setattr(f"builtins.{name}", adds_ten(getattr(builtins, name)))
    torch.testing.assert_close(pliant.compile(folded)(X), folded(X))


@pytest.mark.parametrize("before", [False, True])
def test_what_imports_and_makes_classes(monkeypatch, before):
    """Statements ask the builtins for them, each time."""
    heard = []

    def noting(name):
        original = getattr(builtins, name)

        def noted(*args, **given):
            if "colorsys" in args or "Made" in args:  # not those of libraries
                heard.append(name)
            return original(*args, **given)

        monkeypatch.setattr(builtins, name, noted)

    def program(x):
        import colorsys

        class Made:
            factor = 2

        return x * Made.factor + colorsys.ONE_THIRD

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    expected = compiled(X) if before else program(X)
    for name in ("__import__", "__build_class__"):
        noting(name)
    found = compiled(X)
    monkeypatch.undo()
    assert torch.equal(found, expected)
    assert heard == ["__import__", "__build_class__"]


def test_a_builtin_that_was_replaced_before_the_first_capture():
    program = """
        import builtins, pliant, torch
        before = builtins.sum
        def patched(items):
            found = before(items)
            return found + 10 if isinstance(found, torch.Tensor) else found
        builtins.sum = patched
        def added(x):
            return sum([x, x])
        x = torch.ones(2)
        torch.testing.assert_close(pliant.compile(added, backend="eager", fullgraph=True)(x), added(x))
    """
    own_process.ran(textwrap.dedent(program), check=True)

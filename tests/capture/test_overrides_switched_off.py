"""Blocks around a call in which PyTorch asks no `__torch_function__`: compiled code for inside is not the one for outside."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pliant


class Raised(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result + 100 if func is torch.Tensor.sin else result


class Holder:
    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(args[0].held)


OFF = {"classes": torch._C.DisableTorchFunctionSubclass, "all": torch._C.DisableTorchFunction}


def _seen(value: torch.Tensor) -> tuple[str, list[float]]:
    return type(value).__name__, value.as_subclass(torch.Tensor).tolist()


@pytest.mark.fallbacks_expected
@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize("first_inside", (False, True))
def test_classes(off: str, first_inside: bool) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    compiled = pliant.compile(program)
    x, plain = torch.zeros(2).as_subclass(Raised), torch.zeros(2)
    for inside in (first_inside, not first_inside, first_inside):
        for given in (x, plain):
            if inside:
                with OFF[off]():
                    assert _seen(compiled(given)) == _seen(program(given))
            else:
                assert _seen(compiled(given)) == _seen(program(given))


def test_objects_that_are_no_tensors() -> None:
    compiled = pliant.compile(lambda x: torch.exp(x))
    assert compiled(Holder(torch.zeros(1))).item() == 1
    with torch._C.DisableTorchFunctionSubclass(), pytest.raises(TypeError):
        compiled(Holder(torch.zeros(1)))


def test_questions() -> None:
    def program(x: torch.Tensor) -> Any:
        asked = torch._C._is_torch_function_enabled()
        with torch._C.DisableTorchFunctionSubclass():
            return x * 2, asked, torch._C._is_torch_function_enabled()

    compiled = pliant.compile(program)
    assert compiled(torch.ones(1))[1:] == (True, False)
    with torch._C.DisableTorchFunctionSubclass():
        assert compiled(torch.ones(1))[1:] == (False, False)
    assert compiled(torch.ones(1))[1:] == (True, False)


@pytest.mark.fallbacks_expected  # a block of this kind is not made again behind a break
def test_behind_a_break() -> None:
    def program(x: torch.Tensor) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            pliant.graph_break()
            inside = x.sin()
        return _seen(inside), _seen(x.sin())

    x = torch.zeros(2).as_subclass(Raised)
    compiled = pliant.compile(program)
    assert compiled(x) == program(x)

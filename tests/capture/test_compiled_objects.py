"""Modules and callable objects of every making: compiled they are the original, attribute for attribute."""

import copy
import functools
import gc
import inspect
import pickle
import weakref

import pytest
import torch
from torch import fx, nn

import pliant
from pliant.dispatch.compiled_function import shares_all
from pliant.errors import PliantWarning


class MadeWithArguments(nn.Module):
    def __new__(cls, size):
        return super().__new__(cls)

    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return self.linear(x).relu()


def graph_module():
    return fx.symbolic_trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))


def exported():
    return torch.export.export(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (torch.ones(2, 3),)).module()


MODULES = {"fx.GraphModule": graph_module, "exported": exported, "__new__": lambda: MadeWithArguments(3)}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_modules_of_any_making_compile(make):
    module, x = make(), torch.ones(2, 3)
    pliant.reset()
    compiled = pliant.compile(module, fullgraph=True)
    torch.testing.assert_close(compiled(x), module(x))
    assert isinstance(compiled, type(module)) and pliant.stats()["graphs"] == 1
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in module.parameters()]


def test_a_graph_that_is_written_anew_is_the_originals():
    module, x = graph_module(), torch.ones(2, 3)
    compiled = pliant.compile(module)
    before = compiled(x)
    last = next(node for node in compiled.graph.nodes if node.op == "output")
    with compiled.graph.inserting_before(last):
        last.args = (compiled.graph.call_function(torch.neg, (last.args[0],)),)
    compiled.recompile()
    torch.testing.assert_close(module(x), -before)
    torch.testing.assert_close(compiled(x), -before)


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(2, 3))])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_script_modules_are_called_as_they_are(make):
    module, x = make(nn.Linear(3, 4)), torch.ones(2, 3)
    pliant.reset()
    torch.testing.assert_close(pliant.compile(module)(x), module(x))
    torch.testing.assert_close(pliant.compile(lambda x: module(x * 2) + 1)(x), module(x * 2) + 1)
    assert pliant.stats()["fallbacks"] == 1 and pliant.stats()["break_reasons"] == {"unknown-call": 1}
    with pytest.raises(pliant.errors.GraphBreakError, match="TorchScript"):
        pliant.compile(module, fullgraph=True)(x)


class Scale:
    heard = ()

    def __init_subclass__(cls):
        Scale.heard += (cls,)

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x * self.factor

    def __len__(self):
        return 7

    @property
    def double(self):
        return self.factor * 2

    def __del__(self):
        self.__dict__["ended"] = True


def test_attributes_of_an_object_are_the_originals():
    original, x = Scale(2), torch.ones(3)
    compiled = pliant.compile(original)
    assert compiled(x).tolist() == [2, 2, 2]
    original.factor = 3
    assert compiled.factor == 3 and compiled.double == 6 and compiled(x).tolist() == [3, 3, 3]
    compiled.factor = 5
    assert original.factor == 5 and compiled(x).tolist() == [5, 5, 5]
    compiled.other = 1
    assert original.other == 1
    del compiled.other
    assert not hasattr(original, "other") and not hasattr(compiled, "other")
    assert isinstance(compiled, Scale) and len(compiled) == 7 and Scale.heard == ()
    assert pliant.compile(compiled)._orig_mod is original
    again = copy.deepcopy(compiled)
    again.factor = 9
    assert original.factor == 5 and again(x).tolist() == [9, 9, 9]
    del compiled, again
    gc.collect()
    assert "ended" not in vars(original)


class Slotted:
    __slots__ = ("__private", "factor")

    def __call__(self, x):
        return x * self.factor + self.offset

    @property
    def offset(self):
        return self.__private

    @offset.setter
    def offset(self, value):
        self.__private = value


class SlottedBelow(Slotted):
    __slots__ = ("__dict__", "again")


class Mapping(dict):
    def __call__(self, x):
        return x * self.factor + len(self)


@pytest.mark.parametrize("cls", [Slotted, SlottedBelow])
def test_slots_are_the_originals(cls):
    original, x = cls(), torch.ones(1)
    original.factor, original.offset = 4, 1
    compiled = pliant.compile(original)
    assert isinstance(compiled, cls) and compiled(x).item() == 5
    original.factor = 2
    assert compiled.factor == 2 and compiled(x).item() == 3
    compiled.offset = 7
    assert original.offset == 7 and compiled(x).item() == 9
    del compiled.factor
    assert not hasattr(original, "factor") and not hasattr(compiled, "factor")
    if cls is SlottedBelow:
        compiled.other = compiled.again = 1
        assert original.other == original.again == 1


def test_objects_that_native_code_keeps_a_part_of_answer_for_themselves():
    original, x = Mapping(a=1), torch.ones(1)
    original.factor = 4
    compiled = pliant.compile(original)
    assert compiled(x).item() == 5
    original.factor, original["b"] = 3, 2
    assert (compiled.factor, len(compiled), list(compiled), compiled(x).item()) == (3, 2, ["a", "b"], 5)
    compiled.factor = 6
    del compiled["b"]
    assert original.factor == 6 and original == {"a": 1} == compiled and compiled(x).item() == 7
    assert copy.deepcopy(compiled)(x).item() == 7


def test_partials_and_cached_functions_show_what_they_are_of():
    cached = pliant.compile(functools.lru_cache(lambda self, x: x * 4))
    partial = pliant.compile(functools.partial(cached, None))
    assert partial(torch.ones(1)).item() == 4 and partial.func is cached and "partial" in repr(partial)
    assert list(inspect.signature(partial).parameters) == ["x"] and cached.cache_info().currsize <= 1
    holder = type("Holder", (), {"method": cached, "function": partial})()
    assert holder.method(torch.ones(1)).item() == holder.function(torch.ones(1)).item() == 4


def test_what_another_object_can_share():
    assert shares_all(Slotted()) and shares_all(Scale(1)) and not shares_all(Scale)
    assert not any(map(shares_all, (len, Mapping(), functools.partial(len), functools.lru_cache(len))))


def test_the_variant_of_a_class_lives_as_long_as_its_objects():
    module = graph_module()
    cls = weakref.ref(type(module))
    pliant.compile(module)(torch.ones(2, 3))
    del module
    gc.collect()
    assert cls() is None


def copies(module):
    yield copy.deepcopy(module)
    yield pickle.loads(pickle.dumps(module))


def test_copies_of_a_module_compiled_in_place_are_compiled():
    module, x = pliant.compile_(nn.Linear(3, 4), backend="eager"), torch.ones(2, 3)
    for other in copies(nn.Sequential(module)):
        pliant.reset()
        torch.testing.assert_close(other[0](x), module(x))
        assert pliant.stats()["graphs"] == 2 and other[0]._compiled_call_impl is not None  # its own, and the original's
        assert list(other.state_dict()) == ["0.weight", "0.bias"]
    module._compiled_call_impl = None  # torch's way to end it
    for other in copies(module):
        assert other._compiled_call_impl is None


def test_a_compilation_that_cannot_be_pickled_is_missed():
    module = pliant.compile_(nn.Linear(3, 4), backend=lambda graph, inputs: graph)
    pliant.reset()
    with pytest.warns(PliantWarning, match="loses its compilation"):
        other = pickle.loads(pickle.dumps(module))
    assert other._compiled_call_impl is None
    assert copy.deepcopy(module)._compiled_call_impl is not None


class Base(nn.Module):
    def forward(self, x):
        return x + 1


class Derived(Base):
    def forward(self, x):
        return super().forward(x) * 3

    def added(self):
        return "added"


class Scaled:
    factor = 2

    def __call__(self, x):
        return self.times(x)

    def times(self, x):
        return x * self.factor


class ScaledMore(Scaled):
    factor = 5


MAKERS = {
    "module": (Base, Derived, lambda module: module),
    "object": (Scaled, ScaledMore, lambda scaled: scaled),
    "method": (Scaled, ScaledMore, lambda scaled: scaled.times),
}


@pytest.mark.parametrize(("first", "second", "called"), MAKERS.values(), ids=MAKERS)
def test_the_class_of_what_was_compiled_may_be_replaced(first, second, called):
    made, x = first(), torch.ones(2)
    compiled = pliant.compile(called(made))
    for cls in (first, second, first):
        made.__class__ = cls
        assert torch.equal(compiled(x), called(made)(x))


def test_a_compiled_module_has_the_class_that_its_original_has_now():
    module = Base()
    compiled = pliant.compile(module)
    module.__class__ = Derived
    assert compiled.added() == "added" and isinstance(compiled, Derived) and compiled.__class__ is Derived
    with pytest.raises(AttributeError, match="absent"):
        compiled.absent  # noqa: B018
    compiled.__class__ = Base
    assert type(module) is Base


@pytest.mark.parametrize("of_compiled", [False, True])
def test_a_compiled_module_is_parametrized(of_compiled):
    module, x = nn.Linear(3, 4), torch.ones(2, 3)
    compiled = pliant.compile(module)
    before = compiled(x)
    nn.utils.parametrizations.weight_norm(compiled if of_compiled else module)
    module.parametrizations.weight.original0.data *= 2
    torch.testing.assert_close(compiled(x) - module.bias, 2 * (before - module.bias))
    torch.testing.assert_close(compiled.weight, module.weight)
    nn.utils.parametrize.remove_parametrizations(module, "weight")
    torch.testing.assert_close(compiled(x), module(x))

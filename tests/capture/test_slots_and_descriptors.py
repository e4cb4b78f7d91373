"""Objects with `__slots__`, and descriptors that have only some of their methods."""

import functools

import pytest
import torch

import pliant


class SetsOnly:
    def __set__(self, obj, value):
        obj.__dict__["a"] = value


class WithDescriptor:
    a = SetsOnly()


class OnlyWeak:
    __slots__ = ["__weakref__"]


class WithDict:
    __slots__ = ["__dict__", "b"]


class Slotted:
    __slots__ = ["a"]


def outcome(action):
    try:
        return action()
    except AttributeError as error:
        return type(error).__name__  # CPython words it differently from version to version


def descriptor_without_get(x):
    obj = WithDescriptor()
    first = type(obj.a).__name__
    obj.a = 42
    return first, obj.a


def use(weak, with_dict, slotted):
    found = [hasattr(o, n) for o in (weak, with_dict, slotted) for n in ("__dict__", "__weakref__", "a", "b")]
    with_dict.c, with_dict.b, slotted.a = 1, 2, 3
    found += [dict(with_dict.__dict__), hasattr(slotted, "a"), slotted.a]
    del slotted.a
    found.append(hasattr(slotted, "a"))
    found.append(outcome(lambda: setattr(slotted, "missing", 1)))
    found.append(outcome(lambda: delattr(slotted, "a")))
    found.append(outcome(lambda: slotted.a))
    return found


def made_inside(x):
    return use(OnlyWeak(), WithDict(), Slotted())


def made_before_a_break(x):
    weak, with_dict, slotted = OnlyWeak(), WithDict(), Slotted()
    pliant.graph_break()
    return use(weak, with_dict, slotted)


def keywords_named_like_ours(x):
    return dict(self=1, function=2), "{self} {function}".format(self=3, function=4)


@pytest.mark.parametrize(
    "program", [descriptor_without_get, made_inside, made_before_a_break, keywords_named_like_ours]
)
def test_as_eager(program):
    compiled = pliant.compile(program)
    for _ in range(2):
        assert compiled(torch.ones(1)) == program(torch.ones(1))


class Proxy:
    """Stands in for another object."""

    def __init__(self, get):
        object.__setattr__(self, "_get", get)

    @property
    def __class__(self):
        return self._get().__class__

    def __getattr__(self, name):
        return getattr(self._get(), name)


def test_proxies_claim_a_class():
    def program(x):
        items, tensor = Proxy(lambda: [1, 2]), Proxy(lambda: x)
        return (
            isinstance(items, list),
            isinstance(items, Proxy),
            isinstance(tensor, (int, torch.Tensor)),
            (
                items.__class__,
                type(items) is Proxy,
                tensor.shape,
            ),
        )

    compiled = pliant.compile(program, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2)) == program(torch.ones(2))


def test_a_metaclass_descriptor_without_getter():
    class Setter:
        def __set__(self, obj, value):
            raise AttributeError

    class Meta(type):
        pass

    class Example(metaclass=Meta):
        value = 42

    Meta.value = Setter()
    compiled = pliant.compile(lambda x: (x + 1, Example.value), backend="eager")
    assert compiled(torch.ones(2))[1] == 42


class First:
    scale, kinds = 2, []

    @property
    def half(self):
        return 0.5

    @functools.cached_property
    def third(self):
        return 3


class Second(First):
    scale, kinds, half, third = 3, ["own"], None, None

    def of_object(self, x):
        return x * super().scale, super().kinds, super().half, super().third

    @classmethod
    def of_class(cls, x):
        return x * super().scale, super().kinds, super().half, super().third


@pytest.mark.parametrize("program", [lambda x: Second().of_object(x), Second.of_class], ids=["object", "class"])
def test_what_a_base_has_that_the_class_has_otherwise(program):
    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for _ in range(3):
        (computed, *found), (expected, *eager) = compiled(torch.ones(2)), program(torch.ones(2))
        assert torch.equal(computed, expected) and found == eager and found[0] is eager[0]
    assert pliant.stats()["recompiles"] == 0


class SlottedWithGetattr:
    __slots__ = ("held",)
    asked = []

    def __init__(self):
        self.held = 0.5

    @property
    def number(self):
        return 2.0

    def scaled(self, x):
        return x * self.held

    def __getattr__(self, name):
        self.asked.append(name)
        return 0.25


OBJECT = SlottedWithGetattr()


def test_what_has_no_dict_is_not_asked_for_it_where_it_answers_for_every_name():
    def attributes(x):
        return OBJECT.scaled(x) * OBJECT.number + OBJECT.missing

    x = torch.ones(3)
    expected, OBJECT.asked[:] = attributes(x), []
    compiled = pliant.compile(attributes)
    assert torch.equal(compiled(x), expected) and torch.equal(compiled(x), expected)
    assert "__dict__" not in OBJECT.asked


ASKED = {
    "getattr": lambda one: getattr(one, "typecode", None), "hasattr": lambda one: hasattr(one, "typecode"),
    "attribute": lambda one: one.typecode, "what is not there": lambda one: getattr(one, "other", None),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_classes_in_c_with_a_lookup_that_no_method_shows(name):
    """Routines of LAPACK as SciPy gives them have the lookup of the first Pythons."""
    routine = pytest.importorskip("scipy.linalg").get_lapack_funcs("gesdd", dtype="f")

    def program(x):
        return x + 1, ASKED[name](routine)

    pliant.reset()
    found, wanted = pliant.compile(program, backend="eager")(torch.ones(2)), program(torch.ones(2))
    assert found[1] == wanted[1] and torch.equal(found[0], wanted[0])
    assert pliant.stats()["fallbacks"] == 0

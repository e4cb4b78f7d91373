"""Results that are objects: of classes that nobody registered, told by their attributes."""

import collections
import dataclasses
import enum
import json
import zipfile

import pytest
import torch
from tests.exporting import fuzz_files
from torch.utils import _pytree as pytree

import pliant
from pliant.errors import ExportError, FileError
from pliant.exporting import form


class Layer:
    def __init__(self, keys):
        self.keys, self.dtype, self.count = keys, keys.dtype, 0

    def update(self, more):
        self.keys, self.count = torch.cat([self.keys, more], 1), self.count + 1


class Cache:
    """As those of keys and values that decoders return."""

    def __init__(self, layers):
        self.layers, self.by_name = layers, {}

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)  # which making it again does not run


@dataclasses.dataclass(frozen=True)
class Result:
    logits: torch.Tensor
    rows: int
    cache: Cache
    none: None = None


def decoder(x):
    layers = [Layer(x), Layer(x * 2)]
    layers[1].update(x + 1)
    cache = Cache(layers)
    cache.by_name["last"] = layers[1].keys[:, -1].sin()
    return Result(x.sum(1), x.shape[0], cache)


SAID = ({0: pliant.Dim("batch")},)


def parts_of(found):
    assert type(found) is Result and type(found.cache) is Cache and [type(one) for one in found.cache.layers] == [Layer, Layer]
    layers = [vars(one) | {"dtype": one.dtype is torch.float32} for one in found.cache.layers]
    return vars(found) | {"cache": vars(found.cache) | {"layers": layers}}


def check(program):
    for batch in (1, 4):
        x = torch.randn(batch, 3)
        found = program(x)
        torch.testing.assert_close(parts_of(found), parts_of(decoder(x)))
        assert program(x).cache is not found.cache
        found.cache.layers[0].update(x)  # as any object of its class
        assert found.cache.layers[0].count == 1


@pytest.mark.filterwarnings("ignore::pliant.PliantWarning")
def test_objects_are_told_by_their_attributes(tmp_path):
    program = pliant.export(decoder, (torch.randn(2, 3),), dynamic_shapes=SAID)
    check(program)
    check(program.compile())
    check(program.transform("common_subexpressions", "dead_code"))
    program.save(tmp_path / "saved")
    check(pliant.load(tmp_path / "saved", classes=(Result, Cache, Layer)))
    pliant.aot_compile(program, tmp_path / "package")
    check(pliant.load(tmp_path / "package", classes=[Layer, Result, Cache], kernels=True))
    with zipfile.ZipFile(tmp_path / "saved") as archive:
        assert json.loads(archive.read("program.json"))["format"] == form.OBJECTS > form.CONTROL


def test_a_file_makes_objects_of_the_classes_that_the_caller_names(tmp_path):
    pliant.export(decoder, (torch.randn(2, 3),), dynamic_shapes=SAID).save(tmp_path / "saved")
    with pytest.raises(FileError, match="the program takes or returns objects of ") as error:
        pliant.load(tmp_path / "saved", classes=(Result,))
    assert f"pliant.load(path, classes=({__name__}.Cache, {__name__}.Layer,))" in str(error.value)
    Other = type("Result", (dict,), {"__module__": Result.__module__})  # has more than attributes
    with pytest.raises(FileError, match="takes or returns objects of"):
        pliant.load(tmp_path / "saved", classes=(Other, Cache, Layer))


def test_damaged_files_of_objects_are_errors_or_right(tmp_path):
    outcomes = fuzz_files.share(60, 5, tmp_path, fuzz_files.Objects)
    assert not any(key.startswith("wrong") for key in outcomes) and outcomes["error"] > 10


class Growing(Layer):
    """Which has a class among its attributes, and one in a list."""

    def __init__(self, keys):
        super().__init__(keys)
        self.made_of, self.others = Layer, [Cache]


def test_classes_among_results_are_named_by_the_caller_too(tmp_path):
    program = pliant.export(lambda x: (Growing(x * 2), Result), (torch.randn(2, 3),), dynamic_shapes=SAID)
    program.save(tmp_path / "saved")
    with pytest.raises(FileError, match=rf"objects of {__name__}.Cache, {__name__}.Growing, {__name__}.Layer, {__name__}.Result"):
        pliant.load(tmp_path / "saved")
    for one in (program, program.compile(), pliant.load(tmp_path / "saved", classes=(Layer, Cache, Growing, Result))):
        made, cls = one(torch.ones(4, 3))
        assert type(made) is Growing and made.made_of is Layer and made.others == [Cache] and cls is Result
        assert torch.equal(made.keys, torch.full((4, 3), 2.0))


Named = collections.namedtuple("Named", "x size")


class Registered:
    def __init__(self, x, size):
        self.x, self.size = x, size


class Beside(Registered):
    """Whose size is told beside its parts."""


pytree.register_pytree_node(Registered, lambda one: ([one.x, one.size], None), lambda parts, _: Registered(*parts))
pytree.register_pytree_node(Beside, lambda one: ([one.x], one.size), lambda parts, size: Beside(*parts, size))
CONTAINERS = {
    "size": lambda x: (x.shape, x[:, 0].shape, torch.Size(()), torch.Size((x.shape[0] * 2, 3)), x.sin()),
    "named": lambda x: Named(x.sin(), x.shape),
    "attributes": lambda x: {"a": Layer(x.sin()), "more": [Named(x.shape, Layer(x * 2))], "size": x.shape},
    "registered": lambda x: Registered(x.sin(), x.shape),
    "deque": lambda x: collections.deque([x.shape, x.sin()], 3),
    "defaultdict": lambda x: collections.defaultdict(list, {"a": x.sin(), 1: x.shape}),
}


def spelled(value):
    """A result as text: its classes, sizes, and what its tensors sum to."""
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {value.sum():.5f}"
    items = vars(value) if hasattr(value, "__dict__") else value
    if isinstance(items, dict):
        return type(value).__name__, getattr(value, "default_factory", None), [(key, spelled(one)) for key, one in items.items()]
    return (type(value).__name__, getattr(value, "maxlen", None), *map(spelled, value)) if isinstance(value, (tuple, list, collections.deque)) else value


@pytest.mark.parametrize("model", CONTAINERS.values(), ids=CONTAINERS)
def test_results_are_of_the_classes_that_the_model_returns(model, tmp_path):
    program = pliant.export(model, (torch.randn(2, 3),), dynamic_shapes=SAID)
    program.save(tmp_path / "saved")
    x = torch.randn(5, 3)
    for one in (program, program.transform("dead_code"), pliant.load(tmp_path / "saved", classes=(Named, Registered, Layer))):
        assert spelled(one(x)) == spelled(model(x))


def test_a_size_among_arguments(tmp_path):
    x = torch.randn(2, 3)
    pliant.export(lambda x, size: x.sin().reshape(size), (x, torch.Size((3, 2)))).save(tmp_path / "saved")
    assert torch.equal(pliant.load(tmp_path / "saved")(x, torch.Size((3, 2))), x.sin().reshape(3, 2))


def test_a_file_calls_no_function_for_items_that_are_not_there(tmp_path):
    program = pliant.export(lambda x: collections.defaultdict(spelled, a=x + 1), (torch.ones(2),))
    assert program(torch.ones(2)).default_factory is spelled
    with pytest.raises(ExportError, match="a defaultdict whose values are made by a function of the program's"):
        program.save(tmp_path / "saved")


@pytest.mark.parametrize("tree", [
    {"deque": ["*"], "most": -1}, {"deque": ["*"], "most": "3"}, {"deque": ["*"], "most": 2**70}, {"default": [["a", "*"]], "factory": []},
    {"default": [["a", "*"]], "factory": "type"}, {"class": "torch.Size", "context": None, "items": [{"dict": []}]}, {"class": "torch.Size"},
], ids=str)  # fmt: skip
def test_damaged_trees_are_errors(tree, tmp_path):
    pliant.export(lambda x: x + 1, (torch.ones(2),)).save(tmp_path / "saved")
    with zipfile.ZipFile(tmp_path / "saved") as archive:
        said = json.loads(archive.read(form.PROGRAM))
    for changed in ({**said, "result": tree}, {**said, "arguments": {"tuple": [{"tuple": [tree]}, {"dict": []}]}}):
        fuzz_files.rewritten(tmp_path / "saved", changed, tmp_path / "changed")
        with pytest.raises(FileError):
            pliant.load(tmp_path / "changed")


def own_class(x):
    class Own:
        pass

    return x + 1, Own


class Color(enum.Enum):
    RED = 1


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


KEPT = Layer(torch.ones(2, 2))


def cyclic(x):
    made = Layer(x)
    made.keys = made
    return made


def twice(x):
    made = Layer(x)
    return made, [made]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda x: (x, Color.RED), "a Color"),
        (lambda x: Slotted(x + 1), r"a Slotted\n.*\n.*register_pytree_node\(Slotted, "),
        (lambda x: KEPT, "a Layer that is the program's own"),
        (cyclic, "a Layer that is in it twice"),
        (own_class, "a class, `own_class.<locals>.Own`, that is not found by its name"),
        (twice, "a Layer that is in it twice"),
        (lambda x: Beside(x + 1, x.shape), "a Beside that holds a size or tensor beside its parts"),
        (lambda x: range(x.shape[0]), "a range"),
    ],
)
def test_what_attributes_do_not_tell_is_refused(model, said):
    with pytest.raises(ExportError, match=f"the model returns {said}"):
        pliant.export(model, (torch.ones(2, 2),), dynamic_shapes=SAID)

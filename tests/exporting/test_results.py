"""Results that are objects: of classes that nobody registered, told by their attributes."""

import dataclasses
import enum
import json
import zipfile

import pytest
import torch
from tests.exporting import fuzz_files

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
    ],
)
def test_what_attributes_do_not_tell_is_refused(model, said):
    with pytest.raises(ExportError, match=f"the model returns {said}"):
        pliant.export(model, (torch.ones(2, 2),))

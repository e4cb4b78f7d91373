"""Saved programs: round trips in another process, versions, files that are damaged or made up."""

import dataclasses
import json
import math
import zipfile
from typing import Any, NamedTuple

import pytest
import torch
from tests.exporting import fuzz_files
from torch.nn import functional as F

import own_process
import pliant
from pliant.errors import ExportError, FileError
from pliant.exporting import form


@pytest.fixture(scope="module")
def program():
    return fuzz_files.program()


@pytest.fixture
def path(program, tmp_path):
    target = tmp_path / "model.pliant"
    program.save(target)
    return target


def test_a_loaded_program_is_the_saved_one(program, path):
    loaded = pliant.load(path)
    assert str(loaded) == str(program)
    assert fuzz_files.same(fuzz_files.result(loaded), fuzz_files.result(program))
    for name, tensor in program.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name])


def test_equal_programs_are_equal_files(program, path, tmp_path):
    pliant.load(path).save(tmp_path / "again")
    again = json.loads(zipfile.ZipFile(tmp_path / "again").read(form.PROGRAM))
    assert again == json.loads(zipfile.ZipFile(path).read(form.PROGRAM))


def test_operators_of_a_library_are_called_where_the_caller_names_it(tmp_path):
    with torch.library._scoped_library("exporting_tests", "DEF") as library:
        library.define("doubled(Tensor x) -> Tensor")
        library.impl("doubled", lambda x: x * 2, "CPU")
        torch.library.register_fake("exporting_tests::doubled", lambda x: torch.empty_like(x), lib=library)
        pliant.export(torch.ops.exporting_tests.doubled, (torch.ones(3),)).save(tmp_path / "file")
        with pytest.raises(FileError, match=r"libraries=\('exporting_tests',\)"):
            pliant.load(tmp_path / "file")
        loaded = pliant.load(tmp_path / "file", libraries=("exporting_tests",))
        assert torch.equal(loaded(torch.ones(3)), torch.full((3,), 2.0))


def test_another_process_needs_no_model(path, tmp_path):
    text = (
        "import sys, torch, pliant\n"
        "found = pliant.load(sys.argv[1])(*torch.load(sys.argv[2]))\n"
        "assert not any(name.startswith('pliant.capture.opcodes') for name in sys.modules)\n"
        "torch.save([found['all'], found['positive']], sys.argv[3])\n"
    )
    arguments = fuzz_files.arguments(7)
    torch.save(arguments, tmp_path / "arguments")
    own_process.ran(text, path, tmp_path / "arguments", tmp_path / "found", check=True)
    wanted = pliant.load(path)(*arguments)
    assert fuzz_files.same(torch.load(tmp_path / "found"), [wanted["all"], wanted["positive"]])


def test_the_state_is_mapped_and_the_file_is_never_written(path):
    before = path.read_bytes()
    loaded = pliant.load(path)
    calls = int(loaded.state["calls"])
    loaded(*fuzz_files.arguments())
    assert int(loaded.state["calls"]) == calls + 1
    assert path.read_bytes() == before


def changed(path, **values):
    with zipfile.ZipFile(path) as archive:
        program = json.loads(archive.read(form.PROGRAM))
    target = path.with_name("changed")
    fuzz_files.rewritten(path, {**program, **values}, target)
    return target


def test_a_newer_file_is_refused_by_name(path):
    with pytest.raises(FileError, match=r"newer than this release: format 5, and 4 is known"):
        pliant.load(changed(path, format=5))


def test_an_older_file_goes_through_every_step(path, monkeypatch):
    seen = []
    monkeypatch.setattr(form, "OPERATORS", 3)
    for version in (1, 2):
        monkeypatch.setitem(form.OPERATOR_STEPS, version, lambda one, v=version: seen.append(v) or one)
    pliant.load(path)
    assert seen == [1, 2]


@pytest.mark.parametrize(
    ("operator", "why"),
    [
        ("aten.add_.Tensor", "no operator for a saved program"),
        ("aten.from_file.default", "no operator for a saved program"),
        ("os.system.default", "no operator of ATen"),
        ("builtins.exec.default", "no operator of ATen"),
    ],
)
def test_operators_that_act_are_refused(path, operator, why):
    with zipfile.ZipFile(path) as archive:
        nodes = json.loads(archive.read(form.PROGRAM))["nodes"]
    nodes[0]["operator"] = operator
    with pytest.raises(FileError, match=why):
        pliant.load(changed(path, nodes=nodes))


@pytest.mark.parametrize(
    ("operator", "more"),
    [
        ("split.Tensor", [1]), ("unsafe_split.Tensor", [1]), ("unbind.int", []), ("tensor_split.sections", [1 << 40]),
        ("chunk.default", [1 << 40]),
    ],
)  # fmt: skip
def test_operators_of_more_results_than_memory_holds_are_refused(path, operator, more):
    """They would be made when the file is loaded."""
    with zipfile.ZipFile(path) as archive:
        said = json.loads(archive.read(form.PROGRAM))
    given = {"node": said["inputs"][-1]["name"]}
    wide = {"name": "wide", "operator": "aten.as_strided.default", "args": [given, [1 << 40], [0], 0]}
    parts = {"name": "parts", "operator": f"aten.{operator}", "args": [{"node": "wide"}, *more]}
    with pytest.raises(FileError, match="more tensors than a program has"):
        pliant.load(changed(path, nodes=[wide, parts, *said["nodes"]]))


_FAR = 1 << 40
_MADE = {
    "image": [[1, 4, 4], 1.0], "volume": [[1, 4, 4, 4], 1.0], "small": [[1, 2, 2], 1.0], "cube": [[1, 2, 2, 2], 1.0],
    "places": [[1, 2, 2], _FAR], "places3": [[1, 2, 2, 2], _FAR], "rows": [[400, 300], 1.0], "one": [[1], 1.0], "lengths": [[1], _FAR],
}  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        ("_reshape_alias.default", ["one", [_FAR], [1]]),
        ("max_pool2d_with_indices_backward.default", ["small", "image", [2, 2], [2, 2], [0, 0], [1, 1], False, "places"]),
        ("max_pool3d_with_indices_backward.default", ["cube", "volume", [2, 2, 2], [2, 2, 2], [0] * 3, [1] * 3, False, "places3"]),
        ("adaptive_max_pool2d_backward.default", ["small", "image", "places"]),
        ("adaptive_max_pool3d_backward.default", ["cube", "volume", "places3"]),
        ("_pdist_backward.default", ["one", "rows", 2.0, "one"]),
        ("_cdist_backward.default", ["one", "rows", "rows", 2.0, "one"]),
        ("segment_reduce.default", ["one", "sum", {"lengths": {"node": "lengths"}, "unsafe": True}]),
        ("native_batch_norm_backward.default", ["rows", "rows", None, None, None, "one", "one", True, 1e-5, [True] * 3]),
    ],
)
def test_operators_whose_kernels_check_nothing_are_refused_other_tensors_than_they_are_for(path, operator, args):
    with zipfile.ZipFile(path) as archive:
        said = json.loads(archive.read(form.PROGRAM))
    full = [{"name": name, "operator": "aten.full.default", "args": made} for name, made in _MADE.items()]
    given = [{"node": one} if isinstance(one, str) and one in _MADE else one for one in args]
    kwargs = given.pop() if isinstance(given[-1], dict) and "unsafe" in given[-1] else {}
    bad = {"name": "bad", "operator": f"aten.{operator}", "args": given, "kwargs": kwargs}
    with pytest.raises(FileError, match="kernel would not check|no operator for a saved|one element a channel"):
        pliant.load(changed(path, nodes=[*full, bad, *said["nodes"]]))


def pooled(x):
    return F.max_pool2d(x, 3, 2, 1).sum() + F.adaptive_max_pool2d(x, 2).square().sum() + F.max_pool3d(x[None], 2).sum()


def distances(x):
    return F.pdist(x[0, 0]).sum() + torch.cdist(x[0], x[:, 0], p=1.0).sum() + torch.cdist(x, x + 1).square().sum()


def segments(x):
    return torch.segment_reduce(x.flatten(), "sum", lengths=torch.tensor([7, 41])).square().sum()


@pytest.mark.parametrize("fn", [pooled, distances, segments])
def test_derivatives_whose_kernels_check_nothing_load_as_they_were_exported(tmp_path, fn):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.full((4, 6), 1.5))

        def forward(self, x):
            return fn(x * self.scale)

    model, x = Scaled(), torch.randn(1, 2, 4, 6)
    program = pliant.export(model, (x,), training=True)
    program.save(tmp_path / "program")
    loss, gradients = pliant.load(tmp_path / "program")(x)
    wanted = model(x)
    wanted.backward()
    torch.testing.assert_close((loss, gradients["scale"]), (wanted.detach(), model.scale.grad))


def test_text_that_is_nested_without_end_is_refused(path):
    for nested in ("[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000):
        with zipfile.ZipFile(path) as archive:
            room = archive.getinfo(form.TENSORS), archive.read(form.TENSORS)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(*room)
            archive.writestr(form.PROGRAM, nested)
        with pytest.raises(FileError, match="RecursionError|holds no program"):
            pliant.load(path)


def test_a_damaged_element_is_found(path):
    content = bytearray(path.read_bytes())
    content[form.ALIGNED + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match="elements of a tensor are damaged"):
        pliant.load(path)


def test_a_program_that_ends_early_is_an_error(path, tmp_path):
    """The archive says more compressed bytes than the file has behind them."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "short", "w") as short:
        short.writestr(form.PROGRAM, archive.read(form.PROGRAM), zipfile.ZIP_STORED)
    content = bytearray((tmp_path / "short").read_bytes())
    size = content.rindex(b"PK\x01\x02") + 20
    content[size : size + 8] = (1 << 24).to_bytes(4, "little") * 2
    (tmp_path / "short").write_bytes(content)
    with pytest.raises(FileError, match="EOFError|BadZipFile"):
        pliant.load(tmp_path / "short")


def test_mutated_files_are_errors_or_right(tmp_path):
    outcomes = fuzz_files.share(300, 5, tmp_path)
    assert not [one for one in outcomes if one.startswith("wrong")]
    assert outcomes["error"] > 100


def test_what_has_no_form_is_not_saved(tmp_path):
    class Kind:
        pass

    made = pliant.export(lambda x, kind: x * 2, (torch.ones(2), Kind))
    with pytest.raises(ExportError, match="an argument is a type"):
        made.save(tmp_path / "file")
    assert not list(tmp_path.iterdir())


SCALE, COUNTS = torch.nn.Parameter(torch.tensor(2.0)), torch.tensor([2, 3])
OF_ELEMENTS = {
    "a float": lambda x: x * SCALE.item(),
    "a whole number": lambda x: (x.new_zeros(int(COUNTS[1])) + 1, COUNTS.tolist()[0]),
    "a count": lambda x: (x.narrow(0, 0, int((x > 0).sum().item())) * 2, x[x > 0] + 1),
    "a truth": lambda x: ((x > 1).any().item(), x * 2),
    "equality": lambda x: (torch.equal(x, x * 1), x * 2),
}


@pytest.mark.parametrize("name", OF_ELEMENTS)
def test_numbers_that_elements_tell(name, tmp_path):
    fn = OF_ELEMENTS[name]
    program = pliant.export(fn, (torch.rand(4) + 0.1,), dynamic_shapes=({0: pliant.Dim("n")},))
    program.save(tmp_path / "file")
    again = pliant.load(tmp_path / "file")
    for n in (1, 3, 6):
        x = torch.rand(n) + 0.1
        assert str(again(x)) == str(fn(x)) == str(program(x))


def test_names_of_builtins_stay(tmp_path):
    program = pliant.export(lambda input, max: input + max, (torch.ones(2), torch.ones(2)))
    program.save(tmp_path / "file")
    again = pliant.load(tmp_path / "file")
    assert [one.name for one in again.inputs] == [node.name for node in again.placeholders] == ["input", "max"]
    assert not program.diff(again) and not program.diff(program.transform("dead_code"))


OF_SIZES = {
    "a root": lambda x: x / math.sqrt(x.shape[0]),
    "a float": lambda x: (float(x.shape[0]), x * (x.shape[0] / 3)),
    "a part": lambda x: torch.nn.functional.interpolate(x[None, None], scale_factor=0.6),
    "a rounded part": lambda x: (x.new_ones(round(x.shape[0] * 0.7) + math.ceil(x.shape[0] / 2)), x.shape[0] & 6),
}


@pytest.mark.parametrize("name", OF_SIZES)
def test_numbers_that_sizes_tell(name, tmp_path):
    fn = OF_SIZES[name]
    program = pliant.export(fn, (torch.rand(4),), dynamic_shapes=({0: pliant.Dim("n")},))
    program.save(tmp_path / "file")
    again = pliant.load(tmp_path / "file")
    for n in (2, 3, 7):
        x = torch.rand(n)
        assert str(again(x)) == str(fn(x)) == str(program(x))


def test_classes_that_operators_return(tmp_path):
    program = pliant.export(lambda x: {"most": x.topk(2, 1), "all": x.sort(1)}, (torch.randn(4, 6),))
    program.save(tmp_path / "file")
    x = torch.randn(4, 6)
    found = pliant.load(tmp_path / "file")(x)
    assert type(found["most"]) is torch.return_types.topk and type(found["all"]) is torch.return_types.sort
    assert torch.equal(found["most"].indices, x.topk(2, 1).indices)


class Unnamed:
    def __init__(self, x, more=None):
        self.x, self.more = x, more


class Pair(NamedTuple):
    x: torch.Tensor
    y: Any


@dataclasses.dataclass
class Box:
    x: torch.Tensor
    y: Any


torch.utils._pytree.register_dataclass(Box)
torch.utils._pytree.register_pytree_node(Unnamed, lambda one: ([one.x], one.more), lambda children, more: Unnamed(*children, more))
GIVEN = {
    "a named tuple": (Pair, lambda pair: Pair(pair.x * 2, [pair.y]), lambda n: Pair(torch.ones(n), torch.ones(n, 2))),
    "a data class": (Box, lambda box: Box(box.x * 2, None), lambda n: Box(torch.ones(n), torch.ones(n, 2))),
    "a registered class": (Unnamed, lambda one: Unnamed(one.x * 2, one.more), lambda n: Unnamed(torch.ones(n), ["text", 2])),
}


@pytest.mark.parametrize("name", GIVEN)
def test_classes_without_a_name_are_those_that_the_reader_names(name, tmp_path):
    cls, fn, given = GIVEN[name]
    sizes = [{0: pliant.Dim("n")}] * (1 if cls is Unnamed else 2)
    program = pliant.export(fn, (given(3),), dynamic_shapes=(sizes,))
    program.save(tmp_path / "file")
    with pytest.raises(FileError, match=rf"takes or returns objects of {__name__}.{cls.__name__}\n(.*\n)*.*classes="):
        pliant.load(tmp_path / "file", classes=(dict,))
    again = pliant.load(tmp_path / "file", classes=(cls,))
    for n in (3, 1, 5):
        found, wanted = again(given(n)), fn(given(n))
        assert type(found) is cls and str(torch.utils._pytree.tree_flatten(found)) == str(torch.utils._pytree.tree_flatten(wanted))
    assert again.transform("dead_code").form == program.form


def test_classes_without_a_name_or_plain_parts_are_not_saved(tmp_path):
    program = pliant.export(lambda x: Unnamed(x * 2, (1,)), (torch.randn(4),))
    with pytest.raises(ExportError, match="not registered with a name"):
        program.save(tmp_path / "file")

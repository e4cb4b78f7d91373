"""Branches, loops and recurrent layers of exported programs: in files, in other processes, changed by passes, packaged."""

import json
import zipfile

import pytest
import torch
from tests.exporting import fuzz_files, loops
from torch.utils import _pytree as pytree

import own_process
import pliant
from pliant.errors import ExportError, FileError
from pliant.exporting import form
from pliant.exporting.bodies import bodies_in, own_bodies
from pliant.exporting.written_back import writing_graph
from pliant.graph.body_graph import BodyGraph


def exported(name):
    return pliant.export(loops.MODELS[name], loops.arguments(3, 5), dynamic_shapes=loops.SAID)


def called(program, size):
    torch.manual_seed(0)
    return pytree.tree_leaves(program(*loops.arguments(*size)))


def wanted(name, size):
    torch.manual_seed(0)
    return loops.plainly(loops.MODELS[name], loops.arguments(*size))


def close(found, wanted):
    return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("name", loops.MODELS)
def test_saved_and_loaded(name, tmp_path):
    program = exported(name)
    program.save(tmp_path / "file")
    loaded = pliant.load(tmp_path / "file")
    assert str(loaded) == str(program)
    for size in loops.SIZES:
        assert close(called(program, size), wanted(name, size)) and close(called(loaded, size), wanted(name, size))
    loaded.save(tmp_path / "again")
    assert said_in(tmp_path / "file") == said_in(tmp_path / "again")


def said_in(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(form.PROGRAM))


IN_ANOTHER_PROCESS = """
import sys, warnings, torch, pliant
warnings.simplefilter("error", pliant.errors.FallbackWarning)
found = pliant.load(sys.argv[1], kernels=sys.argv[1].endswith("package"))(*torch.load(sys.argv[2]))
torch.save(torch.utils._pytree.tree_leaves(found), sys.argv[3])
"""


def test_files_and_packages_run_in_another_process(tmp_path):
    program = pliant.export(fuzz_files.Loops().eval(), fuzz_files.arguments(), dynamic_shapes=({0: loops.batch}, {0: loops.batch}))
    program.save(tmp_path / "file")
    pliant.aot_compile(program, tmp_path / "package")
    torch.save(fuzz_files.arguments(7), tmp_path / "arguments")
    wanted = pytree.tree_leaves(program(*fuzz_files.arguments(7)))
    for name in ("file", "package"):
        own_process.ran(IN_ANOTHER_PROCESS, tmp_path / name, tmp_path / "arguments", tmp_path / "found", check=True)
        found = torch.load(tmp_path / "found")
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted):
            assert torch.allclose(torch.as_tensor(a), torch.as_tensor(b), atol=1e-6)


def test_formats_are_the_first_that_can_say_the_program(tmp_path):
    exported("branches").save(tmp_path / "loops")
    pliant.export(torch.sin, (torch.ones(3),)).save(tmp_path / "plain")
    assert said_in(tmp_path / "plain")["format"] == form.PLAIN < said_in(tmp_path / "loops")["format"] == form.CONTROL


def test_passes_leave_bodies_as_they_are():
    program = exported("branch in scan")
    assert str(program.transform("dead_code", "common_subexpressions", "fold_constants")) == str(program)
    assert "def run_body_0(" in str(program)


def test_compiled_code_runs_bodies():
    for name in ("of sizes", "associative scan"):
        compiled = exported(name).compile()
        assert all(close(called(compiled, size), wanted(name, size)) for size in loops.SIZES)


@pytest.mark.parametrize("name", ["of sizes", "while", "scan backwards", "associative scan", "branch in scan", "gru"])
def test_bodies_are_kernels_in_packages_and_compiled_code(name, tmp_path, monkeypatch):
    pliant.aot_compile(exported(name), tmp_path / "package")
    for program in (pliant.load(tmp_path / "package", kernels=True), exported(name).compile()):
        ran = []
        monkeypatch.setattr(BodyGraph, "__call__", lambda self, *values: ran.append(self))
        for size in (*loops.SIZES, (2, 1)):
            assert close(called(program, size), wanted(name, size))
        assert not ran  # by operators
        monkeypatch.undo()


def test_bodies_that_read_alike_are_compiled_by_their_own_programs_facts(tmp_path):
    """Programs of the same bodies and other facts: what is compiled for one is not for the other."""
    programs = []
    for name, dim in (("some", pliant.Dim("batch", max=8)), ("all", pliant.Dim("batch"))):
        said = ({0: dim, 1: loops.length},) * 2
        pliant.aot_compile(pliant.export(loops.branches, loops.arguments(3, 5), dynamic_shapes=said), tmp_path / name)
        programs.append(pliant.load(tmp_path / name, kernels=True))
    numbers = [{one for one, _, _ in bodies_in(writing_graph(p, prepare=own_bodies(p)).graph)} for p in programs]
    assert not numbers[0] & numbers[1]
    for size in loops.SIZES:
        assert all(close(called(one, size), wanted("branches", size)) for one in programs)


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x, y):
        return loops.cond(x.sum() > 0, lambda a: (a * self.scale).sum(), lambda a: a.sum(), (x,))


def test_derivatives_of_branches_run_and_are_not_saved(tmp_path):
    program = pliant.export(Twice(), loops.arguments(3, 5), dynamic_shapes=loops.SAID, training=True)
    with pytest.raises(ExportError, match="cannot be saved: it has the derivative of a branch or loop"):
        program.save(tmp_path / "file")


# ---- files that are made up
def changed(path, change):
    said = said_in(path)
    change([node for node in said["nodes"] if "control" in node])
    fuzz_files.rewritten(path, said, path.with_name("bad"))
    return path.with_name("bad")


def of_other_sizes(nodes):
    nodes[0]["control"]["bodies"][1]["results"][1] = {"node": nodes[0]["control"]["bodies"][1]["inputs"][0]}


def carrying_another(nodes):
    nodes[0]["control"]["bodies"][1]["results"].reverse()


def with_checks(nodes):
    body = nodes[0]["control"]["bodies"][0]
    body["nodes"].append({"name": "c", "operator": "check", "args": [{"size": "s0 == 7"}, "RuntimeError", ""]})


def without_a_body(nodes):
    nodes[0]["control"]["bodies"].pop()


def reading_nothing(nodes):
    nodes[0]["control"]["reads"][0] = [10**6]


def of_wider_states(nodes):
    nodes[0]["control"]["options"][1] = 3


def seeing_outer_nodes(nodes):
    nodes[0]["control"]["bodies"][0]["results"][0] = nodes[0]["args"][0]


@pytest.mark.parametrize("name, change", [
    ("branches", of_other_sizes), ("while", carrying_another), ("branches", with_checks), ("branches", without_a_body),
    ("branches", reading_nothing), ("gru", of_wider_states), ("lstm", of_wider_states), ("branches", seeing_outer_nodes),
])  # fmt: skip
def test_what_was_made_up_is_an_error(name, change, tmp_path):
    exported(name).save(tmp_path / "file")
    with pytest.raises(FileError, match="cannot be loaded"):
        pliant.load(changed(tmp_path / "file", change))


def test_changed_files_are_errors_or_right(tmp_path):
    outcomes = fuzz_files.share(150, 3, tmp_path, fuzz_files.Loops)
    assert not any(outcome.startswith("wrong") for outcome in outcomes)

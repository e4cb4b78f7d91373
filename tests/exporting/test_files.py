"""Saved programs: round trips in another process, versions, files that are damaged or made up."""

import json
import subprocess
import sys
import zipfile

import pytest
import torch

import pliant
from exporting import fuzz_files
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




def test_another_process_needs_no_model(path, tmp_path):
    text = (
        "import sys, torch, pliant\n"
        "found = pliant.load(sys.argv[1])(*torch.load(sys.argv[2]))\n"
        "assert not any(name.startswith('pliant.capture.opcodes') for name in sys.modules)\n"
        "torch.save([found['all'], found['positive']], sys.argv[3])\n"
    )
    arguments = fuzz_files.arguments(7)
    torch.save(arguments, tmp_path / "arguments")
    subprocess.run([sys.executable, "-c", text, path, tmp_path / "arguments", tmp_path / "found"], check=True)
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
    with pytest.raises(FileError, match=r"newer than this release: format 2, and 1 is known"):
        pliant.load(changed(path, format=2))


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
        ("os.system.default", "no operator of aten"),
        ("builtins.exec.default", "no operator of aten"),
    ],
)
def test_operators_that_act_are_refused(path, operator, why):
    with zipfile.ZipFile(path) as archive:
        nodes = json.loads(archive.read(form.PROGRAM))["nodes"]
    nodes[0]["operator"] = operator
    with pytest.raises(FileError, match=why):
        pliant.load(changed(path, nodes=nodes))


def test_a_damaged_element_is_found(path):
    content = bytearray(path.read_bytes())
    content[form.ALIGNED + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match="elements of a tensor are damaged"):
        pliant.load(path)


def test_mutated_files_are_errors_or_right(tmp_path):
    outcomes = fuzz_files.share(60, 5, tmp_path)
    assert not [one for one in outcomes if one.startswith("wrong")]
    assert outcomes["error"] > 20


def test_what_has_no_form_is_not_saved(tmp_path):
    class Kind:
        pass

    made = pliant.export(lambda x, kind: x * 2, (torch.ones(2), Kind))
    with pytest.raises(ExportError, match="an argument is a type"):
        made.save(tmp_path / "file")
    assert not list(tmp_path.iterdir())

"""Other weights for a program: calls of every kind use them, the model's own stay, what does not fit is an error."""

import shutil

import pytest
import torch
from torch import nn

import pliant
from pliant.errors import ExportError


def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)).eval()


X = torch.linspace(-1, 1, 96).view(2, 3, 4, 4)


def program_of(model):
    return pliant.export(model, (X,), dynamic_shapes=({0: pliant.Dim("batch")},))


def weights_of(model, program):
    return {name: tensor for name, tensor in model.state_dict().items() if name in program.state_dict()}


NATIVE = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")


@pytest.mark.parametrize("form", ["exported", "compiled", "loaded", pytest.param("packaged", marks=NATIVE)])
def test_calls_use_other_weights(form, tmp_path):
    model, other = network(), network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    program = program_of(model)
    if form == "loaded":
        program.save(tmp_path / "file")
        program = pliant.load(tmp_path / "file")
    elif form == "packaged":
        pliant.aot_compile(program, tmp_path / "file")
        program = pliant.load(tmp_path / "file", kernels=True)
    with torch.no_grad():
        torch.testing.assert_close(program(X), model(X), rtol=1e-4, atol=1e-5)
        program.load_state_dict(weights_of(other, program))
        call = program.compile() if form == "compiled" else program
        torch.testing.assert_close(call(X), other(X), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.state_dict(), before)


def test_weights_by_way_of_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model, other = network(), network()
    program = program_of(model)
    safetensors.save_file(weights_of(other, program), tmp_path / "weights")
    program.load_state_dict(safetensors.load_file(tmp_path / "weights"))
    with torch.no_grad():
        torch.testing.assert_close(program(X), other(X))
    safetensors.save_file(program.state_dict(), tmp_path / "again")
    torch.testing.assert_close(safetensors.load_file(tmp_path / "again"), weights_of(other, program))


def test_what_does_not_fit_changes_nothing():
    program = program_of(network())
    before = program.state_dict()
    given = {**before, "0.weight": torch.zeros(4, 3, 3, 3), "0.bias": torch.zeros(5), "3.bias": torch.zeros(2).double(), "more": torch.zeros(())}
    del given["3.weight"]
    with pytest.raises(ExportError) as error:
        program.load_state_dict(given)
    assert error.value.why.splitlines() == [
        "0.bias is torch.float32 of (5,), not torch.float32 of (4,)", "3.weight is missing",
        "3.bias is torch.float64 of (2,), not torch.float32 of (2,)", "more is none of the program's",
    ]  # fmt: skip
    assert all(program.state[name] is tensor for name, tensor in before.items())
    program.load_state_dict({"0.weight": torch.zeros(4, 3, 3, 3), "more": torch.zeros(())}, strict=False)
    assert not program.state["0.weight"].any() and program.state["3.weight"] is before["3.weight"]

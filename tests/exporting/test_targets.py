"""Packages for several machines: what they have, which of it is taken, and what is said where nothing fits."""

import json
import platform
import shutil
import subprocess
import zipfile

import pytest
import torch
from torch import nn

import pliant
from pliant.debug import events
from pliant.errors import ConfigError, FallbackWarning, FileError
from pliant.exporting import processors, unpacked
from pliant.exporting.form import PACKAGE
from pliant.runtime.compilers import is_installed
from pliant.runtime.cuda import nvrtc
from pliant.runtime.cuda.kernels import stored

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
V3 = {*processors.PROCESSORS["x86-64-v3"].features}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = nn.Linear(8, 48), nn.LayerNorm(48)

    def forward(self, x):
        return torch.tan(self.norm(torch.nn.functional.gelu(self.linear(x)))) + torch.rand_like(x[:, :1])


def has(name):
    return processors.features() >= {*processors.PROCESSORS[name].features}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("packages") / "model.pliant"
    program = pliant.export(Model().eval(), (torch.ones(5, 8),), dynamic_shapes=({0: pliant.Dim("batch")},))
    pliant.aot_compile(program, target, targets=["avx2", "avx512"])
    return target


def chosen(path):
    """The program that was loaded, and which kernels it runs."""
    program = pliant.load(path, kernels=True)
    return program, events.events("package")[-1].fields["processor"]


def is_right(program):
    for size in (1, 2, 33):
        x = torch.arange(size * 8, dtype=torch.float32).view(size, 8).sin()
        torch.manual_seed(3)
        found = program(x)
        torch.manual_seed(3)
        with torch.no_grad():
            torch.testing.assert_close(found, wanted(x), rtol=1e-4, atol=1e-5)
    return True


def wanted(x):
    state = torch.random.get_rng_state()
    model = Model().eval()
    torch.random.set_rng_state(state)
    return model(x)


@on_x86
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_the_best_kernels_that_the_processor_can_run_are_taken(path, level, monkeypatch):
    if not has(level):
        pytest.skip(f"this processor is no {level}")
    allowed = processors.features() if level == "x86-64-v4" else V3
    monkeypatch.setattr(processors, "features", lambda: frozenset(allowed))
    program, found = chosen(path)
    assert found == level and program._caller is not None and is_right(program)


@on_x86
def test_no_kernels_that_fit_the_processor(path, monkeypatch):
    monkeypatch.setattr(processors, "features", lambda: frozenset(V3 - {"fma"}))
    with pytest.warns(FallbackWarning, match="x86-64-v3 needs fma"):
        program = pliant.load(path, kernels=True)
    assert program._caller is None and is_right(program)
    monkeypatch.setattr(processors.platform, "machine", lambda: "aarch64")
    with pliant.config.patch(strict=True), pytest.raises(FileError, match="x86-64-v4 is for x86_64, and this is aarch64"):
        pliant.load(path, kernels=True)


@on_x86
@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump")
def test_each_has_instructions_of_its_own(path, tmp_path):
    with zipfile.ZipFile(path) as archive:
        newer, older = json.loads(archive.read(PACKAGE))["variants"]
        texts = []
        for variant in (newer, older):
            (digest,) = variant["kernels"]
            (tmp_path / "code").write_bytes(archive.read(f"kernels/{digest}/data.so"))
            done = subprocess.run(["objdump", "-d", tmp_path / "code"], capture_output=True, text=True, check=True)
            texts.append(done.stdout)
    assert "%zmm" in texts[0] and "%zmm" not in texts[1] and "%ymm" in texts[1]


@pytest.mark.skipif(not (shutil.which("aarch64-linux-gnu-gcc") or is_installed()), reason="no cross compiler")
def test_kernels_for_another_architecture(tmp_path):
    program = pliant.export(Model().eval(), (torch.ones(5, 8),))
    pliant.aot_compile(program, tmp_path / "file", targets=["native", "neon"])
    with zipfile.ZipFile(tmp_path / "file") as archive:
        own, arm = json.loads(archive.read(PACKAGE))["variants"]
        code = [archive.read(f"kernels/{one}/data.so") for one in (*arm["kernels"], *arm["shared"].values())]
    assert own["processor"]["name"] == "native" and arm["processor"]["features"] == ["fp", "asimd"]
    assert {int.from_bytes(one[18:20], "little") for one in code} == {183}  # EM_AARCH64
    assert chosen(tmp_path / "file")[1] == "native"


def test_names_of_targets(path, tmp_path, monkeypatch):
    program = pliant.load(path, kernels=True)
    with pytest.raises(ConfigError, match="no target 'axv2'(.|\n)*did you mean 'avx2'"):
        pliant.aot_compile(program, tmp_path / "file", targets=["axv2"])
    with pytest.raises(ConfigError, match="nothing for sm_90"):
        pliant.aot_compile(program, tmp_path / "file", targets=["sm_90"])
    with pytest.raises(ConfigError, match="a library has no `targets`"):
        pliant.aot_compile(program, tmp_path / "file", targets=["avx2"], interface="standalone")
    monkeypatch.setattr(processors.shutil, "which", lambda command: None)
    monkeypatch.setattr(processors.compilers, "is_installed", lambda: False)
    other = "neon" if platform.machine() == "x86_64" else "avx2"
    with pytest.raises(ConfigError, match="install it"):
        pliant.aot_compile(program, tmp_path / "file", targets=[other])


def test_a_package_of_the_first_version(tmp_path):
    model = Model().eval()
    pliant.aot_compile(pliant.export(model, (torch.ones(5, 8),), dynamic_shapes=({0: pliant.AUTO},)), tmp_path / "file")
    rewrite(tmp_path / "file", PACKAGE, first_version)
    program, found = chosen(tmp_path / "file")
    assert found == "native" and is_right(program)
    rewrite(tmp_path / "file", PACKAGE, lambda said: {**said, "version": 1000})
    with pytest.raises(FileError, match="newer than this release"):
        pliant.load(tmp_path / "file", kernels=True)


def first_version(said):
    (variant,) = said["variants"]
    made_for = {**said["made_for"], "processor": variant["processor"]["model"]}
    entries = [*variant["kernels"], variant["shared"]["runtime"]]
    return {"made_for": made_for, "run": variant["run"], "bodies": variant["bodies"], "entries": entries}


def rewrite(path, member, change):
    """The archive with another content of a member of JSON."""
    with zipfile.ZipFile(path) as archive:
        members = {one.filename: (one, archive.read(one)) for one in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, (info, content) in members.items():
            archive.writestr(info, json.dumps(change(json.loads(content))) if name == member else content)


# ---- GPUs, which need not be here
@pytest.fixture(scope="module")
def built_for_cuda():
    """A PyTorch that is, as far as packages look at it."""

    def stream(device):
        raise AssertionError("nothing is run")

    stream.__module__, stream.__qualname__ = "torch._C", "_cuda_getCurrentRawStream"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.version, "cuda", torch.version.cuda or "13.0")
        patch.setattr(torch._C, stream.__qualname__, stream, raising=False)
        yield


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory, built_for_cuda):
    """A program of tensors on a GPU. It has no weights, so it can be read without one."""
    path = tmp_path_factory.mktemp("gpu") / "program.pliant"
    program = pliant.export(
        lambda x, y: torch.softmax(x * 2 + y.tanh(), -1), (torch.ones(5, 64), torch.ones(5, 64)),
        dynamic_shapes=({0: pliant.Dim("n")}, {0: pliant.Dim("n")}),
    )  # fmt: skip
    program.save(path)
    rewrite(path, "program.json", lambda said: json.loads(json.dumps(said).replace('"device": "cpu"', '"device": "cuda:0"')))
    return pliant.load(path)


@pytest.fixture(scope="module")
def gpu_package(on_gpu, tmp_path_factory):
    try:
        nvrtc.library()
    except pliant.errors.NoKernels:
        pytest.skip("no NVRTC")
    path = tmp_path_factory.mktemp("gpu") / "package.pliant"
    pliant.aot_compile(on_gpu, path, targets=["native", "sm_80", "sm_90"])
    return path


def test_kernels_of_gpus_are_built_without_one(gpu_package):
    with zipfile.ZipFile(gpu_package) as archive:
        variants = json.loads(archive.read(PACKAGE))["variants"]
        cubins = {one["gpu"]: [archive.read(f"cubins/{name}/data.cubin") for name in one["cubins"]] for one in variants}
    assert [*cubins] == [90, 80] and all(cubins.values())
    for capability, code in cubins.items():
        assert all(one[:4] == b"\x7fELF" for one in code)
        flags = {int.from_bytes(one[48:52], "little") for one in code}  # of the header: the low bytes have the architecture
        assert {capability} <= {flag & 0xFF for flag in flags} | {flag >> 8 & 0xFF for flag in flags}
    assert all(one["shared"].keys() == {"runtime", "launcher", "fingerprint", "bernoulli"} for one in variants)


@pytest.mark.parametrize("here, taken", [([90], "sm_90"), ([86], "sm_80"), ([80], "sm_80"), ([70, 89], "sm_80")])
def test_the_gpus_capability_says_which_are_taken(gpu_package, here, taken, monkeypatch):
    monkeypatch.setattr(unpacked, "capabilities", lambda: here)
    made = []
    monkeypatch.setattr(unpacked.ProgramReader, "made", lambda reader, said: made.append(said) or (lambda inputs: inputs))
    assert chosen(gpu_package)[1] == f"native and {taken}"
    with zipfile.ZipFile(gpu_package) as archive:
        variants = json.loads(archive.read(PACKAGE))["variants"]
    (variant,) = [one for one in variants if taken == f"sm_{one['gpu']}"]
    assert made == [variant["run"]]
    assert all(stored(one) for one in variant["cubins"])


@pytest.mark.parametrize("here, why", [([], "here is no GPU"), ([100], "here is 10.0"), ([75], "here is 7.5")])
def test_no_kernels_that_fit_the_gpu(gpu_package, here, why, monkeypatch):
    monkeypatch.setattr(unpacked, "capabilities", lambda: here)
    with pliant.config.patch(strict=True), pytest.raises(FileError, match=f"sm_90 is for compute capability 9.0, and {why}"):
        pliant.load(gpu_package, kernels=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU that is here is meant")
def test_a_gpu_must_be_named_where_none_is(on_gpu, tmp_path):
    with pytest.raises(ConfigError, match="none is here(.|\n)*say which"):
        pliant.aot_compile(on_gpu, tmp_path / "file")


def test_a_pytorch_without_cuda_packages_nothing_for_gpus(on_gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ConfigError, match="a build without CUDA"):
        pliant.aot_compile(on_gpu, tmp_path / "file", targets=["sm_90"])

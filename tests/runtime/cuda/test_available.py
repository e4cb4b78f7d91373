"""Whether a GPU can have kernels, and what is said where it can't: no GPU is needed to ask."""

import pytest
import torch

from pliant.errors import NoKernels
from pliant.runtime.cuda import available, driver, nvrtc

GPU = torch.device("cuda", 0)


class Properties:
    multi_processor_count = 114


@pytest.fixture
def gpu(monkeypatch):
    """A GPU as PyTorch would describe it: `gpu["capability"]`, `gpu["driver"]`, `gpu["nvrtc"]`."""
    facts = {"capability": (9, 0), "driver": (13, 0), "nvrtc": (13, 0)}
    monkeypatch.setattr(driver, "is_initialized", lambda: True)
    monkeypatch.setattr(driver, "version", lambda: facts["driver"])
    library = lambda: nvrtc.Nvrtc(None, "", facts["nvrtc"], (75, 80, 90, 100))
    monkeypatch.setattr(nvrtc, "library", library)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: facts["capability"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties)
    available._target.cache_clear()
    yield facts
    available._target.cache_clear()


def test_the_target(gpu):
    found = available.target_of(GPU)
    assert (found.kind, found.architecture, found.units, found.lanes) == ("cuda", "sm_90", 114, 32)


@pytest.mark.parametrize(
    ("facts", "kind", "message"),
    [
        ({"capability": (7, 5)}, "old-gpu", r"no kernels for compute capability 7\.5 \(a GPU\)"),
        ({"capability": (11, 0)}, "no-nvrtc", r"NVRTC 13\.0 builds nothing for compute capability 11\.0"),
        ({"driver": (12, 8)}, "old-driver", r"the driver supports CUDA 12\.8, kernels would be built by NVRTC 13\.0"),
    ],
)
def test_what_is_missing_is_said(gpu, facts, kind, message):
    gpu.update(facts)
    with pytest.raises(NoKernels, match=message) as caught:
        available.target_of(GPU)
    assert caught.value.kind == kind and caught.value.why and caught.value.do


def test_builds_for_other_gpus(gpu, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with pytest.raises(NoKernels, match="no kernels for AMD's GPUs"):
        available.target_of(GPU)


def test_nothing_is_asked_before_the_program_uses_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    for name in ("init", "get_device_capability", "current_device", "get_device_properties"):
        monkeypatch.setattr(torch.cuda, name, None)
    monkeypatch.setattr(driver, "_calls", None)
    with pytest.raises(NoKernels, match="the program has not used CUDA yet"):
        available.target_of(torch.device("cuda"))

"""Kernels of windows as CUDA C: depthwise convolutions and their gradients, of which a thread takes several points."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from codegen.cuda import nvrtc_check
from codegen.cuda.programs import DeviceProgram
from codegen.cuda.sanitized import recorded, replay
from codegen.cuda.shim import prepare
from lowering.tracing import trace
from pliant.codegen.cuda import copies
from pliant.ir.interpret import run
from pliant.ir.loops import Extern, LoopProgram
from pliant.ir.verify import verify
from pliant.lowering.lower import lower
from pliant.targets import cpu, cuda, registry

aten = torch.ops.aten
f32, bf16, f16 = torch.float32, torch.bfloat16, torch.float16
Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]  # a function of tensors, and these


def last(*shape: int, dtype: torch.dtype = f32) -> torch.Tensor:
    return torch.randn(shape).to(dtype).to(memory_format=torch.channels_last)


def layer(channels: int, step: int = 1, margin: int = 0, distance: int = 1) -> Callable[..., Any]:
    """A convolution and its gradients as a function of the gradient, the image and the weight."""
    options = ([step, step], [margin, margin], [distance, distance], False, [0, 0], channels)

    def call(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        of_image, of_weight, _ = aten.convolution_backward(g, x, w, None, *options, [True, True, False])
        return aten.convolution(x, w, None, *options), of_image, of_weight

    return call


def depthwise(dtype: torch.dtype, channels: int, size: tuple[int, int], window: Any, *options: int) -> Case:
    rows, columns = window if isinstance(window, tuple) else (window, window)
    x, w = last(2, channels, *size, dtype=dtype), (torch.randn(channels, 1, rows, columns) / 3).to(dtype)
    result = F.conv2d(x.float(), w.float(), None, *options, groups=channels)
    return layer(channels, *options), (last(*result.shape, dtype=dtype), x, w)


def unaligned() -> Case:
    """Images that begin anywhere."""
    call, given = depthwise(bf16, 8, (9, 10), 3, 1, 1)
    moved = [torch.empty(t.numel() + 1, dtype=t.dtype)[1:].as_strided(t.shape, t.stride()).copy_(t) for t in given]
    return call, tuple(moved)


def followed() -> Case:
    """With what follows a convolution, in the place of something that it adds."""

    def call(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, scale: torch.Tensor) -> Any:
        beside = y.exp()
        before = beside.cumsum(0)
        return before, (F.hardswish(F.conv2d(x, w, None, 1, 1, groups=8) * scale[:, None, None]) + beside).cumsum(0)

    return call, (last(2, 8, 6, 10), torch.randn(8, 1, 3, 3), last(2, 8, 6, 10), torch.randn(8))


CASES: dict[str, Callable[[], Case]] = {
    "whole groups": lambda: depthwise(f32, 16, (12, 12), 3, 1, 1),
    "groups that lie over each other": lambda: depthwise(bf16, 8, (9, 14), 5, 1, 2),
    "every second place": lambda: depthwise(f32, 8, (9, 13), 3, 2, 1),
    "every second place, by parity": lambda: depthwise(f16, 16, (16, 16), 5, 2, 2),
    "no margin": lambda: depthwise(f32, 8, (10, 11), 3),
    "wide margin": lambda: depthwise(f32, 8, (7, 8), 3, 2, 3),
    "elements apart": lambda: depthwise(f32, 8, (12, 12), 3, 1, 2, 2),
    "lines": lambda: depthwise(f32, 8, (6, 9), (1, 7), 1, 3),
    "two channels at a time": lambda: depthwise(bf16, 6, (9, 9), 3, 1, 1),
    "one channel at a time": lambda: depthwise(f32, 5, (9, 9), 3, 1, 1),
    "short of a warp": lambda: depthwise(f32, 72, (8, 8), 2),
    "few positions": lambda: depthwise(f32, 128, (2, 2), 2),
    "unaligned": unaligned,
    "followed": followed,
    "fewer places than a thread takes": lambda: depthwise(f32, 8, (3, 3), 3, 1, 1),
}


@pytest.fixture(scope="module", autouse=True)
def target() -> Iterator[None]:
    """The host lowers as for a GPU with sums over images of any size, and kernels of few points take as many at a time as those
    of many."""
    registry.provide("cpu", lambda _: dataclasses.replace(cuda.target(90), depthwise_sums=1 << 20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "FEW_THREADS", 0)
        yield
    registry.provide("cpu", lambda _: cpu.target())


def lowered(case: Case) -> LoopProgram:
    program = lower(trace(*case))
    verify(program)
    return program


@pytest.fixture(scope="module")
def cases(target: None) -> dict[str, tuple[DeviceProgram, Case]]:
    torch.manual_seed(0)
    made = {name: make() for name, make in CASES.items()}
    found = {name: (DeviceProgram(lowered(case)), case) for name, case in made.items()}
    prepare([kernel for device, _ in found.values() for kernel in device.kernels])
    return found


def results(device: DeviceProgram, args: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    return device([t.clone() if t.storage_offset() == 0 else t for t in args])


@pytest.mark.parametrize("name", CASES)
def test_values(cases, name):
    device, (function, args) = cases[name]
    meant = run(device.program, [t.clone() for t in args])
    exact = function(*[t.double() for t in args])
    exact = exact if isinstance(exact, tuple) else (exact,)
    tolerance = {f32: 2e-6, bf16: 5e-3, f16: 1e-3}[args[0].dtype]
    for found, want, true in zip(results(device, args), meant, exact, strict=True):
        torch.testing.assert_close(found, want, rtol=2 * tolerance, atol=tolerance * float(true.abs().max()))
        torch.testing.assert_close(found.double(), true, rtol=tolerance, atol=2 * tolerance * float(true.abs().max()))


@pytest.mark.parametrize(("name", "sums"), {"whole groups": 9, "groups that lie over each other": 5}.items())
def test_a_thread_has_the_sums_of_a_small_window_or_of_a_row(cases, name, sums):
    """What a thread reads at once gets narrower with every sum."""
    texts = [kernel.text for kernel in cases[name][0].kernels]
    assert max(text.count("float acc") for text in texts) == sums


def test_loops_of_windows_are_no_calls(cases):
    for name, (device, _) in cases.items():
        calls = [c.target for c in device.program.computations if isinstance(c, Extern)]
        assert "convolution" not in str(calls), name


def test_what_two_threads_compute_is_stored_by_one(cases):
    """The second may read what it replaces."""
    device, _ = cases["followed"]
    assert device.schedule.in_place
    assert any(" >= skip) p_store" in kernel.text for kernel in device.kernels)


def test_no_kernel_leaves_its_buffers(cases):
    names = ["every second place", "two channels at a time", "unaligned"]
    calls = recorded(lambda: [results(cases[name][0], copy.deepcopy(cases[name][1][1])) for name in names] and None)
    assert len(calls) >= 4 * len(names)
    replay(calls)


def big(window: int, step: int, mask: list[bool]) -> list[str]:
    """Texts of a layer as models have it."""
    channels, margin = 144, window // 2
    size = -(-56 // step)
    call = layer(channels, step, margin)
    x, g = (torch.empty(32, n, n, channels, dtype=bf16).permute(0, 3, 1, 2) for n in (56, size))
    which = mask.index(True)
    program = lowered((lambda *given: call(*given)[which], (g, x, torch.empty(channels, 1, window, window, dtype=bf16))))
    return [kernel.text for kernel in DeviceProgram(program).kernels]


@pytest.mark.parametrize("window", [3, 5])
def test_each_place_is_read_once(window):
    """Four neighbouring results: a row of the image has three more places than the window, each weight is read once; the rest
    is for images that are not aligned. Large windows are read row by row."""
    text = max(big(window, 1, [True, False, False]), key=len)
    aligned = text[: text.index("else {")]
    by_row = window == 5
    assert (f"for (int turn = 0; turn < {window}; turn++)" in aligned) == by_row
    assert aligned.count("p_load") == (1 if by_row else window) * (window + 3 + window)
    assert "p_load_if<8>(" in aligned and "? " not in aligned


def test_sums_read_images_once_for_all_places():
    """A turn reads four gradients, and of each of three rows of the image six places."""
    text = max(big(3, 1, [False, False, True]), key=len)
    aligned = text[: text.index("else {")]
    assert aligned.count("p_load") == 4 + 3 * 6


@pytest.mark.skipif(bool(nvrtc_check.missing()), reason="NVRTC is not installed")
def test_texts_keep_their_values_in_registers():
    layers = [(5, 1, [True, False, False]), (3, 2, [True, False, False]), (3, 1, [False, True, False]), (3, 1, [False, False, True])]
    texts = [text for one in layers for text in big(*one)]
    for text, (registers, spilled) in zip(texts, nvrtc_check.compiled(texts, "sm_90"), strict=True):
        assert spilled == 0 and registers <= 128, text


def test_what_reads_results_is_not_kept_besides_them():
    """Gradients through a layer, an activation and a batch norm: what a sum adds up is computed from the results."""
    channels, options = 32, ([1, 1], [1, 1], [1, 1], False, [0, 0], 32)

    def call(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *norm: torch.Tensor) -> Any:
        of_image = aten.convolution_backward(g, x, w, None, *options, [True, False, False])[0]
        return aten.native_batch_norm_backward(
            aten.silu_backward(of_image, x), x, norm[0], None, None, *norm[1:], True, 1e-5, [True, True, True]
        )

    images = [last(8, channels, 28, 28, dtype=bf16) for _ in range(2)]
    program = lowered((call, (*images, torch.randn(channels, 1, 3, 3).to(bf16), *torch.rand(3, channels))))
    stored = [c.out for c in program.computations if not isinstance(c, Extern) and c.out.shape == program.inputs[0].shape]
    assert [b.dtype for b in stored] == [bf16] * 3
    device = DeviceProgram(program)
    (windows,) = [step for step in device.texts if any(m.loops.out is stored[0] for m in step.members)]
    assert stored[1] in [m.loops.out for m in windows.members]

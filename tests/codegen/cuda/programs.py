"""Run a whole loop program through the CUDA writer on CPU tensors: kernels on the shim, other calls by eager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codegen.cuda.shim import prepare, run_on_shim
from pliant import config
from pliant.codegen.cuda.kernel_text import DeviceKernel
from pliant.codegen.cuda.writer import write_kernel
from pliant.ir.interpret import _State
from pliant.ir.loops import Buffer, LoopProgram
from pliant.schedule.kernel import ExternCall, Kernel, Schedule
from pliant.schedule.schedule import schedule
from pliant.targets import cuda
from pliant.targets.target import Target

TARGET = cuda.target(90)


class DeviceProgram:
    """A program's schedule and its kernels as texts."""

    def __init__(self, program: LoopProgram, target: Target = TARGET) -> None:
        self.program = program
        self.schedule: Schedule = schedule(program, config.get().schedule)
        self.texts: dict[Kernel, list[DeviceKernel]] = {
            step: write_kernel(step, target) for step in self.schedule.steps if isinstance(step, Kernel)
        }

    @property
    def kernels(self) -> list[DeviceKernel]:
        return [text for texts in self.texts.values() for text in texts]

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        prepare(self.kernels)
        state = _State(self.program)
        state.bind(self.program, args)
        for step in self.schedule.steps:
            if isinstance(step, ExternCall):
                state._extern(step.extern)
            else:
                for text in self.texts[step]:
                    self._run(text, state)
        return [state.result(output) for output in self.program.outputs]

    def _run(self, kernel: DeviceKernel, state: _State) -> None:
        for buffer in kernel.buffers:
            if buffer not in state.memory:
                self._make(buffer, state)
        run_on_shim(kernel, state.memory, state.sizes)

    def _make(self, buffer: Buffer, state: _State) -> None:
        donor = self.schedule.in_place.get(buffer)
        if donor is not None and donor in state.memory:
            state.memory[buffer] = state.memory[donor].view(buffer.dtype)
        else:
            state.allocate(buffer)


def run_on_device_text(program: LoopProgram, args: Sequence[Any], target: Target = TARGET) -> list[Any]:
    """The outputs of a program, computed by its CUDA C."""
    return DeviceProgram(program, target)(args)

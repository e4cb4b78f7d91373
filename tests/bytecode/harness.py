"""Run a function one operation at a time through step code, or in two halves through resume code.

Both make real functions of the code under test; nothing here knows how an operation behaves.
"""

import inspect
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pliant.bytecode.decode import decode
from pliant.bytecode.resume import ResumePoint, parameters, point_at, resume_code
from pliant.bytecode.steps import step_code
from pliant.errors import Unsupported


@dataclass(frozen=True)
class _State:
    """A frame between two steps."""

    point: ResumePoint
    cells: tuple[Any, ...]
    values: tuple[Any, ...]


class Stepper:
    """Runs `function` in steps. After `splits` steps the rest runs as resume code (never, if None)."""

    def __init__(self, function: types.FunctionType, splits: int | None = None) -> None:
        self.function = function
        self.splits = splits
        self.steps = 0
        self.points: list[ResumePoint] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        code = self.function.__code__
        program = decode(code)
        first = next(op.index for op in program.ops if op.name not in ("MAKE_CELL", "COPY_FREE_VARS"))
        bound = _bind(self.function, args, kwargs)
        cells = tuple(types.CellType(bound[n]) if n in bound else types.CellType() for n in code.co_cellvars)
        local = [name for name in bound if name not in code.co_cellvars]
        point = point_at(program, first, (), local)
        state = _State(point, cells + (self.function.__closure__ or ()), tuple(bound[name] for name in point.locals))
        while isinstance(state, _State):
            state = self._run(state)
        return state

    def _run(self, state: "_State") -> Any:
        """The state after one step, or what the function returns."""
        point = state.point
        assert len(state.values) == len(parameters(point))
        self.points.append(point)
        if self.steps == self.splits:
            return self._function(resume_code(point), state.cells)(*state.values)
        self.steps += 1
        step = step_code(point)
        resumes = tuple(self._successor(successor) for successor in step.successors)
        return self._function(step.code, state.cells)(resumes, *state.values)

    def _successor(self, point: ResumePoint) -> Callable[..., Any]:
        return lambda cells, *values: _State(point, cells, values)

    def _function(self, code: types.CodeType, cells: tuple[Any, ...]) -> types.FunctionType:
        return types.FunctionType(code, self.function.__globals__, code.co_name, None, cells)


def _bind(function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def outcome(function: Callable[..., Any], *args: Any) -> tuple[str, Any]:
    """What a call gives, in a form that can be compared; also which exception is left being handled."""
    try:
        result = ("returned", function(*args))
    except Unsupported:
        raise
    except Exception as error:
        context = error.__context__
        lines = _lines_in_program(error)
        result = ("raised", (type(error), str(error), type(context), str(context), error.__cause__, lines))
    assert sys.exc_info() == (None, None, None)
    return result


def _lines_in_program(error: BaseException) -> list[int]:
    """Lines of the traceback, repeated ones once (a split frame shows up several times)."""
    lines: list[int] = []
    trace = error.__traceback__
    while trace is not None:
        if "programs" in trace.tb_frame.f_code.co_filename and trace.tb_lineno not in lines[-1:]:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return lines

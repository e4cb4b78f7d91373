"""Write the Python function that runs a schedule.

In:     a `LoopProgram`, its `Schedule`, the entries of its native code.
Out:    `WrapperCode`: readable source of `call(args)`, one line a step, and the objects that its names stand for.
Holds:  the argument list is emptied at once (but for inputs that only native code reads, if these are many) and
        tensors are deleted after their last use, so memory is freed as in eager;
        outputs are tensors of their own; sizes come from symbol arguments or from the shapes of tensors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant.background import give_way
from pliant.codegen.native import Entry
from pliant.codegen.plain_forms import given_as, product, quicker, swapped
from pliant.graph.layouts import preserved_strides
from pliant.graph.packed_weights import packed_transpose
from pliant.graph.tensor_spec import TensorSpec
from pliant.ir.loops import Buffer, Extern, LoopProgram, View
from pliant.lowering.tensors import is_row_major
from pliant.records import dataclass
from pliant.schedule.dependencies import access
from pliant.schedule.kernel import ExternCall, Kernel, Schedule, Step, memory_of, runs
from pliant.schedule.memory import kernel_buffers
from pliant.schedule.sizes import all_guesses
from pliant.symbolic.expr import ONE, ZERO, Expr, Symbol
from pliant.symbolic.printer import to_python
from pliant.symbolic.traverse import linear_coefficient, substitute
from pliant.torch_adapter import OPAQUE_RESULTS, RUNS_AS, current_stream_of
from pliant.wrappers import large_buffers
from pliant.wrappers.wrapper import FIRST_WRITE, WrapperCode, conform, numbers_in_memory, without_memory


@dataclass(slots=True)
class _Names:
    buffers: dict[Buffer, str] = field(default_factory=dict)
    symbols: dict[Symbol, str] = field(default_factory=dict)

    def buffer(self, b: Buffer) -> str:
        found = self.buffers.get(b)
        if found is None:
            found = self.buffers[b] = f"buf{len(self.buffers)}"
        return found


def runs_of(schedule: Schedule) -> list[list[Kernel]]:
    """The kernels of each native call."""
    found = [[step for k in run if isinstance(step := schedule.steps[k], Kernel)] for run in runs(schedule.steps)]
    return [run for run in found if run]


def listed_inputs(program: LoopProgram, schedule: Schedule) -> dict[Buffer, int]:
    """Inputs that stay in the list, from which native code reads them, with their places: those that no statement of
    the wrapper needs, of runs that take many. A hundred parameters then cost no variables and no arguments."""
    externs = [access(step.extern) for step in schedule.steps if isinstance(step, ExternCall)]
    named = {b for touched in externs for b in (*touched.reads, *touched.writes)}
    named |= {v.buffer for v in program.outputs if isinstance(v, View)}
    places = {b: k for k, b in enumerate(program.inputs) if isinstance(b, Buffer) and b not in named and _is_static(b)}
    listed: dict[Buffer, int] = {}
    for run in runs_of(schedule):
        used = {b: places[b] for kernel in run for b in kernel_buffers(kernel) if b in places}
        listed.update(used if len(used) >= _MANY else {})
    return listed


_MANY = 16
_SCATTER_BY_STRIDES = torch.ops.aten.as_strided_scatter.default


def _is_static(b: Buffer) -> bool:
    """Whether no size is read from the input."""
    return _numbers((*b.shape, *b.strides)) is not None


def _numbers(extents: Sequence[Expr]) -> list[int] | None:
    """The values of the expressions; None if one is not known."""
    found = [n for e in extents if (n := e.as_int()) is not None]
    return found if len(found) == len(extents) else None


def write_wrapper(
    program: LoopProgram,
    schedule: Schedule,
    entries: Sequence[Entry],
    listed: Mapping[Buffer, int],
    *,
    takes_tensors: bool,
) -> WrapperCode:
    """The wrapper's source. `listed`: what the entries read from the list of inputs."""
    return _Writer(program, schedule, entries, listed, takes_tensors).write()


def write_row_wrapper(
    program: LoopProgram, sizes: Sequence[Expr], rows: list[list[int]], numbers: list[int]
) -> WrapperCode:
    """The wrapper of an entry that runs for rows of tensors: it is called with the list in which these lie, at the
    places `rows`, and the program's numbers, at `numbers`."""
    found = program.inputs[len(program.inputs) - len(numbers) :]
    symbols = {s: s.name for s in found if isinstance(s, Symbol)}
    lines = [f"    {s.name} = args[{place}]\n" for s, place in zip(found, numbers) if isinstance(s, Symbol)]
    places = [place for row in rows for place in row]
    given = "".join(f", {to_python(s, symbols)}" for s in sizes)
    source = f"def call(args):\n{''.join(lines)}    entry0(args, rows, {len(rows)}{given})\n"
    names = {"rows": numbers_in_memory(tuple(places)), "math": math, FIRST_WRITE: 0}
    return WrapperCode(source, names)


class _Writer:
    def __init__(
        self,
        program: LoopProgram,
        schedule: Schedule,
        entries: Sequence[Entry],
        listed: Mapping[Buffer, int],
        takes_tensors: bool,
    ) -> None:
        self.program, self.schedule, self.entries, self.takes_tensors = program, schedule, entries, takes_tensors
        self.listed = listed
        self.names = _Names()
        self.bound: dict[str, Any] = {
            "empty_strided": torch.empty_strided, "empty_like": torch.empty_like, "conform": conform,
        }  # fmt: skip
        self.guesses = all_guesses(program)
        self.lines: list[str] = []
        self.next_entry = 0
        self.inputs: set[Buffer] = set()
        self.begun: set[Buffer] = set()  # results of operators that begin where what they were given does
        self.takers = {old: new for new, old in schedule.in_place.items()}
        self.waiting: set[Buffer] = set()  # dead, kept because another buffer will take their memory
        self.given_as = given_as(program, schedule)

    def write(self) -> WrapperCode:
        self._unpack()
        for run in runs(self.schedule.steps):
            self._steps(run.start, run.stop)
        self._line(f"return [{', '.join(self._outputs())}]")
        body = "\n".join("    " + text for text in self.lines)
        return WrapperCode(f"def call(args):\n{body}\n", self.bound)

    def _line(self, text: str) -> None:
        self.lines.append(text)

    def _expr(self, e: Expr | int) -> str:
        if isinstance(e, int):
            return str(e)
        text = to_python(e, self.names.symbols)
        if "math." in text:
            self.bound["math"] = __import__("math")
        return text

    def _tuple(self, values: Sequence[Expr]) -> str:
        return "(" + "".join(self._expr(v) + ", " for v in values).rstrip(" ") + ")"

    # -- arguments -------------------------------------------------------------------------------------------------

    def _unpack(self) -> None:
        targets = []
        for k, given in enumerate(self.program.inputs):
            match given:
                case Buffer() if given in self.listed:
                    self.inputs.add(given)
                    targets.append("_")
                case Buffer():
                    self.inputs.add(given)
                    targets.append(self.names.buffers.setdefault(given, f"arg{k}"))
                case Symbol():
                    self.names.symbols[given] = given.name
                    targets.append(given.name)
                case _:
                    targets.append("_")
        if self.listed:
            named = [(k, target) for k, target in enumerate(targets) if target != "_"]
            for k, target in named:
                self._line(f"{target} = args[{k}]")
            self._drop([k for k, _ in named])
        else:
            if targets:
                self._line(f"{', '.join(targets)}, = args")
            self._line("args.clear()")
        self._sizes_from_shapes()
        for k, constant in enumerate(self.program.constants):
            self.inputs.add(constant)
            self.bound[self.names.buffers.setdefault(constant, f"constant{k}")] = constant.value

    def _drop(self, places: Sequence[int]) -> None:
        """Let go of inputs in the list."""
        if places:
            self._line("".join(f"args[{k}] = " for k in places) + "None")

    def _sizes_from_shapes(self) -> None:
        """Sizes that no argument passes are read from the first tensor that has them, or has them times others. The stride of
        a dimension of one element says nothing."""
        named = [(self.names.buffers[b], b) for b in self.program.inputs if isinstance(b, Buffer) and b not in self.listed]
        extents = [(f"{name}.size({d})", n) for name, b in named for d, n in enumerate(b.shape)]
        extents += [
            (f"{name}.stride({d})", step)
            for name, b in named
            for d, (n, step) in enumerate(zip(b.shape, b.strides))
            if n is not ONE
        ]
        for text, e in extents:
            if isinstance(e, Symbol) and e not in self.names.symbols:
                self._size(e, text)
        while any(self._solved(text, e) for text, e in extents):
            pass

    def _solved(self, text: str, e: Expr) -> bool:
        """Whether the extent told the one symbol in it that was not known."""
        unknown = [s for s in e.free if s not in self.names.symbols]
        factor = linear_coefficient(e, unknown[0]) if len(unknown) == 1 else None
        if factor is None or factor is ZERO:
            return False
        rest, divisor = self._expr(substitute(e, {unknown[0]: ZERO})), self._expr(factor)
        self._size(unknown[0], f"({text} - ({rest})) // ({divisor})")
        return True

    def _size(self, s: Symbol, text: str) -> None:
        self.names.symbols[s] = s.name
        self._line(f"{s.name} = {text}")

    # -- steps -----------------------------------------------------------------------------------------------------

    def _steps(self, start: int, stop: int) -> None:
        """One extern call, or one native call for a run of kernels."""
        give_way()
        step = self.schedule.steps[start]
        for k in range(start, stop):
            for b in self.schedule.allocate[k]:
                if not self._is_returned(step, b):
                    self._allocate(b)
        self._note_write(self.schedule.steps[start:stop])
        if isinstance(step, ExternCall):
            self._extern(step.extern)
        else:
            self._native()
        dead = [b for k in range(start, stop) for b in self.schedule.free[k] if b in self.names.buffers]
        dead = [b for b in dead if b not in self.program.constants and not self._waits_for_taker(b)]
        if stop == len(self.schedule.steps):
            return
        if dead:
            self._line("del " + ", ".join(self.names.buffers[b] for b in dict.fromkeys(dead)))
        places = [self.listed[b] for k in range(start, stop) for b in self.schedule.free[k] if b in self.listed]
        self._drop([k for k in places if k not in self.program.held])

    def _note_write(self, steps: Sequence[Step]) -> None:
        """Remember behind which line of the source an input is written: an error of a later one leaves it so."""
        stored = [step.stored if isinstance(step, Kernel) else access(step.extern).writes for step in steps]
        if FIRST_WRITE not in self.bound and any(self._root(b) in self.inputs for found in stored for b in found):
            native = isinstance(steps[0], Kernel)  # native code goes on to its end before its error is raised
            self.bound[FIRST_WRITE] = len(self.lines) + (1 if native else 2)

    def _root(self, b: Buffer) -> Buffer:
        return memory_of(b, self.schedule.in_place)

    def _waits_for_taker(self, b: Buffer) -> bool:
        """Whether the dead buffer's memory is taken over by one that is not allocated yet."""
        taker = self.takers.get(b)
        if taker is None or taker in self.names.buffers:
            return False
        self.waiting.add(b)
        return True

    def _allocate(self, b: Buffer) -> None:
        old = self.schedule.in_place.get(b)
        name = self.names.buffer(b)
        if old is not None:
            same = old.shape == b.shape and old.strides == b.strides
            view = "" if same else f".as_strided({self._tuple(b.shape)}, {self._tuple(b.strides)})"
            self._line(f"{name} = {self.names.buffer(old)}{view}  # its memory is free again")
            if old in self.waiting:
                self._line(f"del {self.names.buffer(old)}")
            return
        lies = self.given_as.get(b, b)
        like = self._like(b, lies)
        facts = "" if like else f"dtype={self._dtype(b)}, device={self._device(b)}"
        made = (
            f"empty_like({like})"
            if like
            else f"empty_strided({self._tuple(lies.shape)}, {self._tuple(lies.strides)}, {facts})"
        )
        if self._is_large(b):
            self.bound["in_large_pages"] = large_buffers.in_large_pages
            made = f"in_large_pages({made})"
        self._line(f"{name} = {made}")

    def _is_large(self, b: Buffer) -> bool:
        return b.device.type == "cpu" and any(sizes.bytes(b) >= large_buffers.LEAST for sizes in self.guesses)

    def _is_returned(self, step: Step, b: Buffer) -> bool:
        """Whether the step is a product that makes the buffer itself, as memory would be allocated for it."""
        if not isinstance(step, ExternCall) or step.extern.out_variant is None or product(step.extern.out_variant) is None:
            return False
        is_result = len(step.extern.outs) == 1 and step.extern.outs[0] is b
        return is_result and b not in self.schedule.in_place and not self._is_large(b) and is_row_major(b)

    def _like(self, b: Buffer, lies: Buffer | View) -> str | None:
        """The name of a tensor without memory whose `empty_like` is the buffer, made in less time than from numbers."""
        size, stride = _numbers(lies.shape), _numbers(lies.strides)
        if size is None or stride is None or 0 in size:
            return None
        name = "_".join(map(str, [self._dtype(b), self._device(b), *size, "by", *stride]))
        if name not in self.bound:
            if preserved_strides(TensorSpec(tuple(size), tuple(stride), b.dtype, b.device)) != tuple(stride):
                return None
            self.bound[name] = without_memory(size, stride, b.dtype, b.device)
        return name

    def _device(self, b: Buffer) -> str:
        """Named, since the program may have another default device."""
        name = str(b.device).replace(":", "")
        self.bound[name] = b.device
        return name

    def _dtype(self, b: Buffer) -> str:
        name = str(b.dtype).removeprefix("torch.")
        self.bound[name] = b.dtype
        return name

    def _native(self) -> None:
        entry = self.entries[self.next_entry]
        self.next_entry += 1
        tensors = [self.names.buffer(b) for b in entry.buffers]
        if not self.takes_tensors:
            tensors = [f"{t}.data_ptr()" for t in tensors]
        numbers = [self._expr(s) for s in entry.sizes]
        self._line(
            f"{entry.name}({', '.join([*['args'] * entry.reads_list, *tensors, *numbers, *self._stream(entry)])})"
        )

    def _stream(self, entry: Entry) -> list[str]:
        """The stream that the program's other work on the device is on."""
        if entry.device is None:
            return []
        if entry.device.type == "cpu":  # tests run kernels of other devices on the host
            return ["0"]
        self.bound["current_stream"] = current_stream_of()
        return [f"current_stream({entry.device.index or 0})"]

    def _extern(self, extern: Extern) -> None:
        runs = _runs_program(extern)
        args = [self._argument(a) for a in extern.args[runs is not None :]]
        if extern.target is _SCATTER_BY_STRIDES and extern.args[0].buffer in self.begun:
            args[4:] = [f"{self.names.buffer(extern.args[0].buffer)}.storage_offset() + {place}" for place in args[4:]]
        args += [f"{k}={self._argument(v)}" for k, v in extern.kwargs.items()]
        if extern.out_variant is not None:
            self._extern_out(extern, args)
            return
        function = self._function(extern.target) if runs is None else self._name("run", runs)
        call = f"{function}({', '.join(args)})"
        used = [b for b in extern.outs if b is not None]
        if not used and not extern.defines:
            self._line(call)
            return
        many = len(extern.outs) > 1 or len(extern.target._schema.returns) > 1
        list_result = any(_is_list(one) for one in extern.target._schema.returns[:1])
        self._line(f"result = {call}")
        for binding in extern.defines:
            self.names.symbols[binding.symbol] = binding.symbol.name
            self._line(f"{binding.symbol.name} = {binding.text('result')}")
        if len(extern.target._schema.returns) > 1 and any(_is_list(one) for one in extern.target._schema.returns):
            self.bound["leaves"] = pytree.tree_leaves
            self._line("result = leaves(result)")
        for k, b in enumerate(extern.outs):
            if b is not None:
                text = f"result[{k}]" if many or list_result else "result"
                if (extern.target, k) in OPAQUE_RESULTS or extern.target is packed_transpose:
                    self._line(f"{self.names.buffer(b)} = {text}")
                else:
                    self._bind_result(b, text)
                    if extern.target is _SCATTER_BY_STRIDES:
                        self.begun.add(b)
        self._line("del result")

    def _bind_result(self, b: Buffer, text: str) -> None:
        """Name a returned tensor."""
        if b in self.inputs or b in self.names.buffers:
            return  # updated in place: it has its name already
        name = self.names.buffer(b)
        self._line(f"{name} = conform({text}, {self._tuple(b.shape)}, {self._tuple(b.strides)}, {self._dtype(b)})")

    def _extern_out(self, extern: Extern, args: list[str]) -> None:
        variant = extern.out_variant
        assert variant is not None
        wanted = [a.name for a in variant._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        for name, b in zip(wanted, extern.outs, strict=True):
            assert b is not None
            if b not in self.names.buffers:  # see `_is_returned`
                self._line(f"{self.names.buffer(b)} = {self._function(variant)}({', '.join(args)})")
                return
            args.append(f"{name}={self.names.buffer(b)}")
        self._line(f"{self._function(variant)}({', '.join(args)})")

    def _function(self, target: Any) -> str:
        """A name for an operator; the fastest callable that does its work."""
        runs = product(target) or RUNS_AS.get(target) or quicker(target) or target
        return self._name(getattr(target, "__name__", "function").replace(".", "_"), runs)

    def _name(self, name: str, runs: Any) -> str:
        """A name for what is called."""
        while name in self.bound and self.bound[name] is not runs:
            name += "_"
        self.bound[name] = runs
        return name

    def _argument(self, value: Any) -> str:
        match value:
            case View():
                return self._view(value)
            case Buffer():
                return self.names.buffer(value)
            case Expr():
                return self._expr(value)
            case list() | tuple():
                inside = ", ".join(self._argument(v) for v in value)
                return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
            case None | bool() | int() | str():
                return repr(value)
            case float() if value == value and abs(value) != float("inf"):
                return repr(value)
            case _:
                name = f"value{len(self.bound)}"
                self.bound[name] = value
                return name

    def _view(self, v: View) -> str:
        b = v.buffer
        name = self.names.buffer(b)
        if self.given_as.get(b) is v:
            return name
        if v.dtype is not b.dtype:
            self.bound["view_dtype"] = torch.ops.aten.view.dtype
            bound = f"value{len(self.bound)}"
            self.bound[bound] = v.dtype
            name = f"{name}.view({bound})"
        if v.offset is ZERO and len(v.shape) == len(b.shape) and v.shape == b.shape and v.strides == b.strides:
            return name
        if v.offset is ZERO and len(b.shape) > 1 and (v.shape, v.strides) == (swapped(b.shape), swapped(b.strides)):
            return f"{name}.mT"
        offset = "" if v.offset is ZERO else f", {self._expr(v.offset)}"  # without one it begins where the tensor does
        if offset and (b in self.inputs or b in self.begun):
            offset = f", {self.names.buffer(b)}.storage_offset() + {self._expr(v.offset)}"
        return f"{name}.as_strided({self._tuple(v.shape)}, {self._tuple(v.strides)}{offset})"

    def _outputs(self) -> list[str]:
        """What is returned. A view that is returned twice is one tensor; two views that look alike are two tensors."""
        outputs = self.program.outputs
        times = Counter(id(one) for one in outputs)
        texts: dict[int, str] = {}
        taken: set[str] = set()
        for value in outputs:
            if not isinstance(value, View) or id(value) in texts:
                continue
            text = self._argument(value)
            if text in taken:
                text = f"{text}.as_strided({self._tuple(value.shape)}, {self._tuple(value.strides)})"
            if times[id(value)] > 1 and not text.isidentifier():
                name = f"view{len(texts)}"
                self._line(f"{name} = {text}")
                text = name
            texts[id(value)] = text
            taken.add(text)
        return [texts[id(one)] if isinstance(one, View) else self._argument(one) for one in outputs]


def _is_list(returned: Any) -> bool:
    """Whether a result of a schema is a list of tensors or numbers."""
    return str(returned.type).startswith("List")


def _runs_program(extern: Extern) -> Callable[..., Any] | None:
    """What runs a branch or loop that is known to this process alone, in place of the operator and its number."""
    if getattr(extern.target, "namespace", None) != "pliant_control":
        return None
    from pliant.graph.control_bodies import running
    from pliant.graph.control_flow import program_numbered

    program = program_numbered(extern.args[0])
    return None if program.has_name else running(program)

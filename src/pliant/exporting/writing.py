"""Write an exported program to one file.

In:     a `Program`, a path.
Out:    a zip archive: `tensors`, the raw little-endian elements of the state, each from a multiple of 64 bytes on, so
        that the file can be mapped; `program.json`, everything else.
Holds:  the file appears whole or not at all. `form.py` has the names and the version.
Reads on: `values.py`, `reading.py`, `docs/export.md#files`.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch
from torch import fx

from pliant.autograd.places import SameAs
from pliant.entries import constants
from pliant.entries.objects import version_of
from pliant.errors import ExportError
from pliant.exporting.control_form import control_of, values_of, written_control
from pliant.exporting.form import ALIGNED, CONTROL, FORMAT, OBJECTS, OPERATORS, PLAIN, PROGRAM, TENSORS
from pliant.exporting.program import Program
from pliant.exporting.trees import names_classes, written_tree
from pliant.exporting.values import (
    Json,
    unsaved,
    written_expr,
    written_operator,
    written_output,
    written_value,
)
from pliant.graph.control_flow import Program as ControlProgram
from pliant.graph.control_flow import name_by_content
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import keys_of
from pliant.symbolic.expr import Symbol, lit
from pliant.torch_adapter import VERSION

_HEADER = 30 + len(TENSORS) + 20 + 4  # of the first member: fixed part, name, zip64, the head of the padding


def save(program: Program, path: Any, more: Mapping[str, bytes] | None = None) -> None:
    """Write the file. `more`: further members."""
    if sys.byteorder != "little":
        raise ExportError("the program cannot be saved on this machine", kind="unsaved", why="it is big-endian")
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open(_tensors_member(), "w", force_zip64=True) as out:
                tensors = dict(_written_tensors(program.state, out))
            text = json.dumps({**written_program(program), "tensors": tensors}, allow_nan=False, indent=1)
            archive.writestr(_member(PROGRAM), text)
            for name, content in (more or {}).items():
                archive.writestr(_member(name), content)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def _member(name: str) -> zipfile.ZipInfo:
    found = zipfile.ZipInfo(name)  # of 1980: equal programs are equal files
    found.compress_type = zipfile.ZIP_DEFLATED
    return found


def _tensors_member() -> zipfile.ZipInfo:
    """The first member, padded so that its content begins at a multiple."""
    found = _member(TENSORS)
    found.compress_type = zipfile.ZIP_STORED
    room = -_HEADER % ALIGNED
    found.extra = struct.pack("<HH", 0xFFFF, room) + bytes(room)
    return found


def _written_tensors(state: Mapping[str, torch.Tensor], out: IO[bytes]) -> Iterator[tuple[str, Json]]:
    """Write each tensor's elements; what the program says of it. Tensors that are one object are written once."""
    at, known = 0, dict[int, Json]()
    for name, tensor in state.items():
        if id(tensor) not in known:
            gap = -at % ALIGNED
            plain = tensor.detach().cpu()
            plain = plain if _is_dense(plain) else plain.contiguous()
            content = bytes_of(plain)
            out.write(bytes(gap))
            out.write(content)
            known[id(tensor)] = {
                "at": at + gap, "bytes": len(content), "crc": zlib.crc32(content), "size": list(plain.shape),
                "stride": list(plain.stride()), "dtype": constants.spelled(plain.dtype)[1], "device": str(tensor.device),
            }  # fmt: skip
            at += gap + len(content)
        yield name, known[id(tensor)]


def _is_dense(tensor: torch.Tensor) -> bool:
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.numel() == reach and tensor.numel() > 0


def weights_of(program: Program, constants: Iterable[torch.Tensor] = ()) -> tuple[bytes, list[int]]:
    """The bytes of a library's `weights`, the state and then these constants, and where each begins."""
    state = [(n, one) for n, one in zip(program.placeholders, program.inputs) if one.leaf is None]
    given = [(program.state[one.target], node.meta["val"].stride_) for node, one in state]
    return _laid_out([*given, *((one, one.stride()) for one in constants)])


def _laid_out(tensors: Iterable[tuple[torch.Tensor, Sequence[int]]]) -> tuple[bytes, list[int]]:
    """The bytes of tensors, each with the strides beside it, and where each begins. One object is written once."""
    content, places, known = bytearray(), list[int](), dict[int, int]()
    for tensor, stride in tensors:
        if id(tensor) not in known:
            plain = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor.detach())
            content += bytes(-len(content) % ALIGNED)
            known[id(tensor)] = len(content)
            content += bytes_of(plain)
        places.append(known[id(tensor)])
    return bytes(content), places


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The elements' memory; the tensor is dense."""
    room = ctypes.c_char * tensor.nbytes
    return memoryview(room.from_address(tensor.data_ptr()) if tensor.nbytes else b"")


def written_program(program: Program) -> dict[str, Json]:
    """Everything but the state."""
    env = program.shape_env
    values = {node: node.meta["val"] for node in program.placeholders}
    nodes = [written_node(node) for node in program.graph.nodes if node.op == "call_function"]
    arguments, result = written_tree(program.form.arguments), written_tree(program.form.result)
    return {
        "format": _format(program, nodes, [arguments, result]), "operators": OPERATORS,
        "made_by": {"pliant": version_of("pliant"), "torch": VERSION},
        "name": program.name,
        "symbols": [_symbol(program, one) for one in (*env.hints, *_unbacked(program)) if one in env.declared or one.kind is bool],
        "facts": [written_expr(guard.expr) for guard in env.final_guards()],
        "notes": list(program.notes),
        "inputs": [
            {"name": one.name, "kind": one.kind, "target": one.target, "leaf": one.leaf, "mutated": one.mutated,
             **_described(values[node])}
            for one, node in zip(program.inputs, program.placeholders, strict=True)
        ],
        "nodes": nodes,
        "results": [written_value(one) for one in program.results],
        "new_values": [written_value(one) for one in program.new_values],
        "outputs": [written_output(one) for one in program.outputs],
        "arguments": arguments,
        "result": result,
        "names": list(program.form.names),
        "constants": [[place, _constant(value)] for place, value in program.form.constants.items()],
        **{word: list(map(list, leaves)) for word, leaves in (("one", program.form.one), ("apart", program.form.apart)) if leaves},
    }  # fmt: skip


def _format(program: Program, nodes: Sequence[Json], trees: Json) -> int:
    """The oldest that says it."""
    if program.form.one or program.form.apart or names_classes(trees) or any(isinstance(one, SameAs) for one in program.outputs):
        return FORMAT
    return OBJECTS if program.form.objects else CONTROL if any("control" in node for node in nodes) else PLAIN


def _constant(value: Any) -> Json:
    if not constants.is_constant(value):
        raise ExportError(
            f"the program cannot be saved: an argument is a {type(value).__qualname__}", kind="unsaved",
            why="a file has no form for it", do="make it an attribute of the model",
        )  # fmt: skip
    return constants.spelled(value)


def _unbacked(program: Program) -> list[Symbol]:
    return [one.symbol for node in program.graph.nodes for one in node.meta.get("binds", ())]


def _symbol(program: Program, symbol: Symbol) -> Json:
    env = program.shape_env
    r = env.declared.get(symbol)  # none of a truth value
    bounds = [None, None] if r is None else [None if math.isinf(value) else value for value in (r.lo, r.hi)]
    return {"symbol": symbol.name, "kind": symbol.kind.__name__, "name": program.names.get(symbol), "bounds": bounds,
            "hint": env.hints.get(symbol), "size": symbol in env.size_like}  # fmt: skip


def _described(fake: FakeTensor) -> dict[str, Json]:
    sizes, strides = ([written_expr(lit(n)) for n in keys_of(of)] for of in (fake.size_, fake.stride_))
    dtype = constants.spelled(fake.dtype_)[1]
    return {"size": sizes, "stride": strides, "dtype": dtype, "device": str(fake.device_)}


def written_node(node: fx.Node) -> Json:
    """One call. Of a branch or loop its values and what it runs are told apart: numbers of programs are a process's own."""
    program = control_of(node)
    if program is not None:
        return _control(node, program)
    found: dict[str, Json] = {"name": node.name, "operator": written_operator(node.target), "args": written_value(list(node.args))}
    if node.kwargs:
        found["kwargs"] = {name: written_value(value) for name, value in node.kwargs.items()}
    if binds := node.meta.get("binds"):
        found["makes"] = [[one.symbol.name, one.item, one.dim] for one in binds]
    return {**found, **_where(node)}


def _control(node: fx.Node, program: ControlProgram) -> Json:
    if "kept" in node.meta:
        raise unsaved(node.meta["kept"])
    control = written_control(program, written_node)
    return {"name": node.name, "control": control, "args": written_value(values_of(node)), **_where(node)}


def _where(node: fx.Node) -> dict[str, Json]:
    where = node.meta.get("where")
    return {} if where is None else {"where": str(where).splitlines()[0]}


def numbered(node: fx.Node, program: ControlProgram, more: str = "") -> None:
    """Have the node run the program, under a number that tells what it does, and `more`."""
    said = [written_control(program, written_node), [_layout(value) for value in values_of(node)]]
    name_by_content(program, json.dumps(said) + more)
    node.target, node.args = program.operator, (program.number, *node.args[1:])


def _layout(value: Any) -> Json:
    """How the value is described, by which bodies lay it out."""
    fake = value.meta["val"] if isinstance(value, fx.Node) else value
    if not isinstance(fake, FakeTensor):
        return written_value(value)
    return [str(fake.dtype_), *([str(n) for n in keys_of(of)] for of in (fake.size_, fake.stride_))]

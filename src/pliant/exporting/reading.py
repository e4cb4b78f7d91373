"""Read an exported program from a file.

In:     a path that `Exported.save` wrote, or anything else.
Out:    a `Program`, its state mapped from the file; `FileError` for what is damaged or made up.
Holds:  nothing of the file runs: no pickle, no import, no text as code. What its nodes make is computed anew from their
        operators and arguments, so descriptions cannot disagree with them. Elements are checked by their sums.
"""

from __future__ import annotations

import json
import math
import mmap
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import fx

from pliant.entries import constants
from pliant.errors import ExportError, FileError, PliantError, Unsupported
from pliant.exporting.control_form import read_control
from pliant.exporting.form import LARGEST_PROGRAM, PROGRAM, TENSORS, upgraded
from pliant.exporting.program import BUFFER, CONSTANT, PARAMETER, USER, CallForm, Input, Program, described
from pliant.exporting.trees import classes_of, read_tree
from pliant.exporting.unchecked import may_leave_memory
from pliant.exporting.values import READ_ERRORS, Json, Reader, text, whole
from pliant.exporting.writing import numbered, written_program
from pliant.graph.body_graph import BodyGraph
from pliant.graph.contracts import AtenGraph
from pliant.graph.fake_mode import FakeMode
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.unbacked import CHECKS, bindings_of
from pliant.symbolic.expr import Bool, Symbol
from pliant.symbolic.facts import Contradiction
from pliant.symbolic.shape_env import ShapeEnv
from pliant.torch_adapter import OpOverload, append_node

_KINDS: dict[str, Any] = {"int": int, "float": float, "bool": bool}
_SYMBOL = re.compile(r"[suzfqb]\d{1,9}")
_ERRORS = (*READ_ERRORS, Unsupported, Contradiction, OSError, zipfile.BadZipFile, zlib.error, struct.error, UnicodeError,
           NotImplementedError, EOFError)  # fmt: skip
Found = TypeVar("Found")


def read(
    path: Any, libraries: Collection[str], classes: Collection[type], check: bool,
    finish: Callable[[Program, zipfile.ZipFile], Found],
) -> Found:
    """What `finish` makes of the program that the file holds, and of the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            said = json.loads(_content(archive, PROGRAM, LARGEST_PROGRAM))
            said = upgraded(said)
            state = _state(said["tensors"], _Mapped(Path(path), archive.getinfo(TENSORS), check))
            return finish(_Program(said, libraries, classes).made(state), archive)
    except PliantError:
        raise
    except FileNotFoundError:
        raise
    except LookupError as error:
        raise _damaged(path, error) from None
    except _ERRORS as error:
        raise _damaged(path, error) from None


def _damaged(path: Any, error: BaseException) -> FileError:
    said = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return FileError(f"`{Path(path).name}` cannot be loaded", kind="damaged", why=said)


def _content(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    if archive.getinfo(name).file_size > most:
        raise ValueError(f"`{name}` is too large")
    with archive.open(name) as member:
        found = member.read(most + 1)
    if len(found) > most:
        raise ValueError(f"`{name}` is too large")
    return found


class _Mapped:
    """The tensors of a file. Pages are read when they are first used, and shared with other processes until written."""

    def __init__(self, path: Path, room: zipfile.ZipInfo, check: bool) -> None:
        self.check = check
        with path.open("rb") as file:
            file.seek(room.header_offset)
            header = file.read(30)
            magic, names, extra = struct.unpack("<I22xHH", header)
            if magic != 0x04034B50 or room.compress_type != zipfile.ZIP_STORED or room.file_size != room.compress_size:
                raise ValueError("the tensors are not stored as they are")
            self.start, self.size = room.header_offset + 30 + names + extra, room.file_size
            self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        if self.start + self.size > len(self.memory):
            raise ValueError("the file is cut off")

    def tensor(self, said: Json) -> torch.Tensor:
        at, count = whole(said["at"]), whole(said["bytes"])
        sizes, strides = tuple(map(whole, said["size"])), tuple(map(whole, said["stride"]))
        dtype = constants.read(["torch", text(said["dtype"])])
        numel = math.prod(sizes)
        fits = isinstance(dtype, torch.dtype) and 0 <= at <= at + count <= self.size and numel * dtype.itemsize == count
        if not fits or min((*sizes, *strides), default=0) < 0 or len(sizes) != len(strides):
            raise ValueError("a tensor does not fit into its file")
        if not numel:
            return torch.empty(sizes, dtype=dtype)
        if 1 + sum((n - 1) * step for n, step in zip(sizes, strides)) > numel:
            raise ValueError("a tensor does not fit into its memory")
        first = self.start + at
        if self.check and zlib.crc32(memoryview(self.memory)[first : first + count]) != whole(said["crc"]):
            raise ValueError("elements of a tensor are damaged")
        flat = torch.frombuffer(self.memory, dtype=dtype, count=numel, offset=first)
        device = torch.device(text(said["device"]))
        return flat.as_strided(sizes, strides) if device.type == "cpu" else flat.as_strided(sizes, strides).to(device)


def _state(said: dict[str, Json], tensors: _Mapped) -> dict[str, torch.Tensor]:
    """The tensors by name; those that the file has once are one object."""
    state, known = dict[str, torch.Tensor](), dict[int, torch.Tensor]()
    for name, one in said.items():
        at = whole(one["at"])
        if not one["bytes"] or at not in known or known[at].shape != torch.Size(one["size"]):
            known[at] = tensors.tensor(one)
        state[text(name)] = known[at]
    return state


def read_again(program: Program) -> Program:
    """The program made anew from its description, as if from a file: what each node makes is computed from its operator and
    arguments. `ExportError` that names the node which does not hold."""
    said = written_program(program)
    spaces = {node.target.namespace for node in program.graph.nodes if isinstance(node.target, OpOverload)}
    classes = {*program.form.objects, *classes_of(program.form.arguments, program.form.result)}
    reader = _Program(said, spaces, classes)
    try:
        mutated = {one.target for one in program.inputs if one.mutated}
        return reader.made({name: t.clone() if name in mutated else t for name, t in program.state.items()})
    except _ERRORS as error:
        names = [one["name"] for one in said["nodes"]]
        first = next((name for name in names if name not in reader.reader.nodes), "the results")
        why = f"{first}: {type(error).__name__}: {error}".splitlines()[0]
        raise ExportError("the graph does not hold", kind="graph", why=why, do="correct what made it") from None


_MOST_PARTS = 1 << 16


def _parts(target: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """How many tensors an operator may make that divides one, before it makes them."""
    rule = _PARTS.get(target._schema.name.partition("::")[2])
    given = dict(zip([one.name for one in target._schema.arguments], args)) | kwargs
    if rule is None or not isinstance(given.get("self"), FakeTensor):
        return 0
    longest = max([n for n in given["self"].size_ if type(n) is int], default=0)
    return rule(longest, *[n for name, n in given.items() if type(n) is int and name != "dim"][:1])


def _by_size(longest: int, size: int = 1) -> int:
    return longest // max(size, 1)


_PARTS: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("split", "unsafe_split", "split_copy", "unbind", "unbind_copy"), _by_size),
    **dict.fromkeys(("chunk", "unsafe_chunk"), lambda longest, count=0: min(longest, count)),
    **dict.fromkeys(("tensor_split", "hsplit", "vsplit", "dsplit"), lambda longest, count=0: count),
}


def computed(mode: FakeMode, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], trusted: bool = False) -> Any:
    """What a call of nodes makes, if its kernel may be called so."""
    if not trusted and may_leave_memory(target, args, kwargs):
        raise ValueError(f"`{target}` is given what its kernel would not check")
    fakes, named = described(args), {name: described(value) for name, value in kwargs.items()}
    if not isinstance(target, OpOverload):  # an item
        whole_, index = fakes
        return whole_[whole(index)]
    if _parts(target, fakes, named) > _MOST_PARTS:
        raise ValueError(f"`{target}` would make more tensors than a program has")
    with torch.no_grad():
        return mode.compute(target, fakes, named)


class _Program:
    def __init__(self, said: dict[str, Json], libraries: Collection[str], classes: Collection[type]) -> None:
        self.said, self.classes = said, classes
        self.env = ShapeEnv(duck_shape=False, specialize_zero_one=False)
        self.env.takes_fallbacks = self.env.takes_copies = True  # as at export: what is asked of sizes stays the same
        self.names: dict[Symbol, str] = {}
        self.reader = Reader(self.env, dict(map(self._symbol, said["symbols"])), libraries)
        self.mode = FakeMode(self.env, allow_unbacked=True)
        self.graph = fx.Graph()

    def made(self, state: dict[str, torch.Tensor]) -> Program:
        said = self.said
        for one in said["facts"]:
            self.env.declare(self.reader.expr(one))
        self.env.replayed = []
        inputs = tuple(map(self._input, said["inputs"]))
        for one in said["nodes"]:
            self._node(one)
        self.env.replayed = None
        results = self.reader.value(said["results"])
        self.graph.output((*results, *self._new_values(inputs)))
        outputs = self.reader.outputs(said["outputs"], len(inputs), len(results))
        form = self._form(inputs, len(outputs))
        program = Program(
            self._name(said["name"]), self.graph, self.env, inputs, outputs, state, form, self.names,
            tuple(map(text, said["notes"])),
        )  # fmt: skip
        self._check_state(program)
        return program

    # ---- symbols
    def _symbol(self, said: Json) -> tuple[str, Symbol]:
        name, kind = text(said["symbol"]), _KINDS[said["kind"]]
        if not _SYMBOL.fullmatch(name):
            raise ValueError(f"`{name}` is no symbol")
        symbol = Symbol(name, kind)
        lo, hi = said["bounds"] if kind is not bool else (None, None)
        hint = None if said["hint"] is None else kind(said["hint"])
        bounds = [end if value is None else kind(value) for value, end in ((lo, -math.inf), (hi, math.inf))]
        if hint is not None and not bounds[0] <= hint <= bounds[1]:
            raise ValueError(f"`{name}` is out of its bounds")
        self.env.restore(symbol, hint, *bounds)
        if said["size"]:
            self.env.size_like.add(symbol)
        if said["name"] is not None:
            self.names[symbol] = self._name(said["name"])
        return name, symbol

    def _name(self, name: Json) -> str:
        if not text(name).isidentifier():
            raise ValueError(f"{name!r} is no name")
        return text(name)

    # ---- nodes
    def _input(self, said: Json) -> Input:
        sizes, strides = (list(map(self.reader.number, said[of])) for of in ("size", "stride"))
        dtype = constants.read(["torch", text(said["dtype"])])
        if len(sizes) != len(strides) or not isinstance(dtype, torch.dtype):
            raise ValueError("an input is described wrongly")
        if said["kind"] not in (PARAMETER, BUFFER, CONSTANT, USER) or (said["leaf"] is None) == (said["kind"] == USER):
            raise ValueError(f"`{said['kind']}` is no kind of input")
        node = self._append("placeholder", said["name"], said["name"], (), {})
        node.meta["val"] = self.mode.new(sizes, strides, dtype, torch.device(text(said["device"])))
        leaf = None if said["leaf"] is None else whole(said["leaf"])
        return Input(node.name, said["kind"], text(said["target"]), leaf, said["mutated"] is True)

    def _append(self, op: str, target: Any, name: Json, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        node = append_node(self.graph, op, target, args, kwargs, self._name(name))
        if op == "placeholder" and name not in self.reader.nodes:
            node.name = node.target = name  # `input`, too, which fx gives no node
        node.meta["stage"] = "forward"
        self.reader.nodes[text(name)] = node
        return node

    def _node(self, said: Json) -> None:
        if "control" in said:
            self._control(said)
            return
        target = self.reader.operator(said["operator"])
        args = tuple(self.reader.value(list(said["args"])))
        kwargs = {text(name): self.reader.value(value) for name, value in said.get("kwargs", {}).items()}
        if target in CHECKS:
            self._check(target, args)
            self._append("call_function", target, said["name"], args, kwargs).meta["val"] = None
            return
        makes = [(self.reader.symbols[name], item, dim) for name, item, dim in said.get("makes", ())]
        self.env.replayed = [symbol for symbol, _, _ in makes]
        outputs = computed(self.mode, target, args, kwargs, self.reader.trusted)
        bound = bindings_of(self.env.take_fresh(), outputs)
        if [(one.symbol, one.item, one.dim) for one in bound] != makes or self.env.replayed:
            raise ValueError(f"`{said['name']}` makes other numbers than it says")
        if self.env.take_asserts():
            raise ValueError(f"`{said['name']}` takes for granted what nothing checks")
        node = self._append("call_function", target, said["name"], args, kwargs)
        node.meta["val"] = outputs
        if bound:
            node.meta["binds"] = bound
        if "where" in said:
            node.meta["where"] = text(said["where"])

    # ---- programs inside the program
    def _control(self, said: Json) -> None:
        """A branch, a loop or a recurrent layer."""
        values = list(self.reader.value(list(said["args"])))
        fakes = list(map(described, values))
        with self.mode.shape_only():
            program = read_control(said["control"], fakes, self._body)
        tensors = [one for one in values if isinstance(one, fx.Node)]
        numbers = [one for one in values if not isinstance(one, fx.Node)]
        if any(type(one) is not int and not isinstance(one, torch.SymInt) for one in numbers):
            raise ValueError("a branch or loop of what is no number")
        at, count = iter(range(len(tensors))), iter(range(len(numbers)))
        places = [next(at) if isinstance(one, fx.Node) else -1 - next(count) for one in values]
        operator = program.operator
        made = self.mode.compute(operator, [program.number, list(map(described, tensors)), numbers, places], {})
        node = self._append("call_function", operator, said["name"], (program.number, tensors, numbers, places), {})
        node.meta["val"] = made
        if "where" in said:
            node.meta["where"] = text(said["where"])
        numbered(node, program)

    def _body(self, said: Json, given: Sequence[Any]) -> BodyGraph:
        """A body, which knows its own nodes alone. Facts and sizes that its elements tell would be known outside, too."""
        outer = self.graph, self.reader.nodes
        self.graph, self.reader.nodes = fx.Graph(), {}
        try:
            for name, one in zip(said["inputs"], given, strict=True):
                node = self._append("placeholder", name, name, (), {})
                fake = isinstance(one, FakeTensor)
                node.meta["val"] = self.mode.new(one.size_, one.stride_, one.dtype_, one.device_, False, one.offset_) if fake else one
            for one in said["nodes"]:
                if one.get("makes") or one.get("operator") in ("check", "assume"):
                    raise ValueError("a body that makes or checks sizes")
                self._node(one)
            results = self.reader.value(list(said["results"]))
            if not all(isinstance(one, fx.Node) for one in results):
                raise ValueError("a body that returns what is no tensor")
            self.graph.output(tuple(results))
            return BodyGraph(AtenGraph(self.graph, self.env, "body"))
        finally:
            self.graph, self.reader.nodes = outer

    def _check(self, target: Any, args: tuple[Any, ...]) -> None:
        """What the graph checks is known behind it."""
        condition = args[0]
        fact = Bool(condition) if type(condition) is bool else self.env.expr_of(condition)
        if fact.kind is not bool or not all(type(one) is str for one in args[1:3]):
            raise ValueError("a check of what is no fact")
        self.env.facts.learn(fact)

    def _new_values(self, inputs: tuple[Input, ...]) -> list[Any]:
        found = self.reader.value(self.said["new_values"])
        placeholders = [node for node, one in zip(self.graph.nodes, inputs) if one.mutated]
        if len(found) != len(placeholders):
            raise ValueError("the new values are not those of the mutated inputs")
        for value, node in zip(found, placeholders):
            one, other = value.meta["val"], node.meta["val"]
            if not isinstance(one, FakeTensor) or one.spec.size_key != other.spec.size_key or one.dtype_ is not other.dtype_:
                raise ValueError(f"the new value of `{node.name}` is of another kind")
        return list(found)

    # ---- the call
    def _form(self, inputs: tuple[Input, ...], outputs: int) -> CallForm:
        said = self.said
        arguments, _ = read_tree(said["arguments"], self.classes)
        result, objects = read_tree(said["result"], self.classes, makes=True)
        held = {whole(place): constants.read(value) for place, value in said["constants"]}
        leaves = [one.leaf for one in inputs if one.leaf is not None]
        if sorted([*leaves, *held]) != list(range(arguments.num_leaves)) or result.num_leaves != outputs:
            raise ValueError("the arguments or results are not those of the graph")
        order = [one.kind == USER for one in inputs]
        if order != sorted(order) or leaves != sorted(leaves):
            raise ValueError("the inputs are in disorder")
        one = tuple(tuple(map(whole, group)) for group in said.get("one", ()))
        apart = tuple((whole(a), whole(b)) for a, b in said.get("apart", ()))
        if not {leaf for group in (*one, *apart) for leaf in group} <= set(leaves) or () in one:
            raise ValueError("tensors that are told apart are no arguments")
        return CallForm(arguments, result, tuple(map(text, said["names"])), held, objects, one, apart)

    def _check_state(self, program: Program) -> None:
        nodes = program.placeholders
        for node, one in zip(nodes, program.inputs, strict=True):
            fake: FakeTensor = node.meta["val"]
            if one.leaf is None:
                tensor = program.state[one.target]
                same = tensor.dtype is fake.dtype_ and tuple(tensor.shape) == fake.size_ and tensor.device == fake.device_
                if not same or tensor.stride() != fake.stride_:
                    raise ValueError(f"`{one.target}` is not as the graph has it")

"""An exported program as PyTorch's own `torch.export.ExportedProgram`.

In:     a `Program`.
Out:    what `torch.export.export` makes of a module that runs the program's graph: parameters and buffers at the model's
        names, the call's arguments and results in the model's own trees.
Holds:  the one module that may use `torch.export`, which it imports when it is called (`tests/test_border.py`). Sizes vary as
        the program's do: a size is a Dim, or derived of one, and every fact that the program needs is in the graph, which
        checks it as it runs. What PyTorch refuses, or cannot say, is an `ExportError`.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.autograd.places import FromInput, FromResult, Literal, Output, ViewOf
from pliant.errors import ExportError
from pliant.exporting.checking import facts_of, homes_of
from pliant.exporting.hierarchy import module_at
from pliant.exporting.program import BUFFER, CONSTANT, PARAMETER, USER, Program
from pliant.exporting.written_back import writing_graph
from pliant.graph.effects import OURS
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.purity import memory_root
from pliant.graph.recurrent import layer_of
from pliant.graph.tensor_spec import keys_of
from pliant.graph.unbacked import CHECKS, unlearnt
from pliant.symbolic.expr import Constant, Expr, Symbol, lit
from pliant.symbolic.facts import Facts
from pliant.symbolic.printer import to_python
from pliant.symbolic.traverse import evaluate, substitute
from pliant.torch_adapter import RUNS_AS, OpOverload
from pliant.torch_adapter import check as torch_check

_aten = torch.ops.aten
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_STRIDED = (_aten.as_strided.default, _aten.as_strided_copy.default, torch.as_strided, torch.Tensor.as_strided)
# The graph writes nothing that it reads afterwards, so a copy is as good where a tensor lies otherwise than the example.
_INSTEAD: dict[Any, Any] = {_aten.view.default: _aten.reshape.default}
_check: Callable[[Any, Callable[[], str]], None] = torch_check
_sym_not: Callable[[Any], Any] = torch.sym_not
_sym_ite: Callable[[Any, Any, Any], Any] = torch.sym_ite
_MOST = 64  # the largest step of a size that is looked for
_Values = dict[str, Any]


def torch_program(program: Program) -> Any:
    """The `ExportedProgram`."""
    from torch import export

    module, sizes = _module(program), Sizes(program)
    try:
        args, kwargs = _example(program, sizes)
        with torch.no_grad():
            made = export.export(
                module, args, kwargs, dynamic_shapes=sizes.said(export.Dim, _parameters(program)), strict=False,
                prefer_deferred_runtime_asserts_over_guards=True,
            )  # fmt: skip
            if program.mutated:  # writes become results that the signature names
                made = made.run_decompositions({})
    except ExportError:
        raise
    except Exception as error:
        raise _refused("PyTorch does not take the program", f"torch.export says: {type(error).__name__}: {error}") from error
    _check_as_wide(program, sizes, made)
    return made


def _refused(what: str, why: str, do: str = "run it as a Pliant program, or export it with other sizes", where: Any = None) -> ExportError:
    return ExportError(what, kind="torch-export", where=where, why=why, do=do, doc="docs/export.md#pytorchs-own-programs")


# ---- the call
def _parameters(program: Program) -> list[str]:
    """Names of the call's arguments: the model's, where it has them."""
    args, kwargs = pytree.tree_unflatten([None] * program.form.arguments.num_leaves, program.form.arguments)
    names = list(program.form.names)
    usable = len(names) == len(args) and all(n.isidentifier() and not keyword.iskeyword(n) for n in names)
    if not usable or len({*names, *kwargs}) < len(names) + len(kwargs):
        names = [f"arg{i}" for i in range(len(args))]
    return [*names, *kwargs]


def _example(program: Program, sizes: Sizes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with the sizes that the program was exported with, and no data."""
    leaves = _leaves(program)
    for _, one in program.user_inputs():
        assert one.leaf is not None
        leaves[one.leaf] = _filled(sizes.fakes[one.leaf], sizes)
    args, kwargs = pytree.tree_unflatten(leaves, program.form.arguments)
    return args, kwargs


def _leaves(program: Program) -> list[Any]:
    """Those of a call that are no tensors, in their places."""
    leaves: list[Any] = [None] * program.form.arguments.num_leaves
    for place, value in program.form.constants.items():
        leaves[place] = value
    return leaves


def _filled(fake: FakeTensor, sizes: Sizes) -> torch.Tensor:
    shape, strides = (tuple(map(sizes.example, keys_of(part))) for part in (fake.size_, fake.stride_))
    return torch.empty_strided(shape, strides, dtype=fake.dtype_, device=fake.device_).zero_()


# ---- sizes
class Sizes:
    """The sizes of a program's arguments. `fakes`: by the leaf of the call."""

    def __init__(self, program: Program) -> None:
        nodes = program.placeholders
        self.program, self.env = program, program.shape_env
        self.fakes: dict[int, FakeTensor] = {one.leaf: nodes[i].meta["val"] for i, one in program.user_inputs()}  # type: ignore[misc]
        self.symbols = list(homes_of([fake.spec for fake in self.fakes.values()]))
        self.hints = {symbol: self._hint(symbol) for symbol in self.symbols}

    def _hint(self, symbol: Symbol) -> int:
        """The size that the program was captured with, if it is neither 0 nor 1, which PyTorch would fix."""
        value = int(self.env.hints[symbol])
        if value < 2:
            raise _refused(
                f"the size `{self.program.names.get(symbol, symbol)}` is {value} in the example",
                "PyTorch takes sizes of 0 and 1 for fixed", "export the program with an example of larger sizes",
            )  # fmt: skip
        return value

    def known(self) -> Facts:
        """What holds of the sizes of every call."""
        found = Facts()
        for symbol in self.symbols:
            found.set_range(symbol, self.env.facts.range_of(symbol))
        for fact in facts_of(self.env):
            found.learn(fact)
        return found

    def example(self, size: Any) -> int:
        return int(evaluate(lit(size), self.hints))

    def of(self, fake: FakeTensor) -> list[Expr]:
        """Of one tensor; those that turned out to be numbers are numbers."""
        return [self.env.simplify(lit(size)) for size in keys_of(fake.size_)]

    def said(self, dim: Any, names: Sequence[str]) -> dict[str, Any]:
        """`dynamic_shapes` by parameter."""
        dims = _Dims(self, dim)
        leaves: list[Any] = [None] * self.program.form.arguments.num_leaves
        for leaf, fake in self.fakes.items():
            leaves[leaf] = {i: found for i, size in enumerate(self.of(fake)) if (found := dims.of(size)) is not None}
        args, kwargs = pytree.tree_unflatten(leaves, self.program.form.arguments)
        return dict(zip(names, [*args, *kwargs.values()], strict=True))

    def step(self, symbol: Symbol) -> tuple[int, int]:
        """(2, 1) if the size is 2*n + 1 for every n."""
        value, known = self.hints[symbol], self.known()
        if any(fact.free == {symbol} and "%" in to_python(fact) for fact in facts_of(self.env)):
            for step in range(_MOST, 1, -1):
                if known.prove_fully(((symbol - value % step) % step).eq(0)):
                    return step, value % step
        return 1, 0


class _Dims:
    """PyTorch's Dims, one for a size. `make`: their class. `roots`: those that sizes are derived of, and how the symbol is."""

    def __init__(self, sizes: Sizes, make: Any) -> None:
        self.sizes, self.make = sizes, make
        self.made: dict[Expr, Any] = {}
        self.roots: dict[Symbol, tuple[Any, int, int]] = {}

    def of(self, size: Expr) -> Any:
        """None of a size that does not vary."""
        if isinstance(size, Constant):
            return None
        if size not in self.made:
            self.made[size] = self._derived(size) or self._own(size)
        return self.made[size]

    def _own(self, size: Expr) -> Any:
        """A Dim of its own: that it is what the program says is a fact that the graph checks."""
        name = "_" + re.sub("[^0-9a-zA-Z]+", "_", to_python(size, self.sizes.program.names))
        found = self.sizes.env.facts.range_of(size)
        return self.make(f"{name}_{len(self.made)}", **_bounds(found.lo, found.hi))

    def _derived(self, size: Expr) -> Any:
        """text: 2*n + 1"""
        if len(size.free) != 1:
            return None
        (symbol,) = size.free
        root, step, first = self._root(symbol)
        of_root = substitute(size, {symbol: symbol * step + first})
        zero, one = (int(evaluate(of_root, {symbol: value})) for value in (0, 1))
        factor = one - zero
        if factor < 1 or not isinstance(symbol * factor + zero - of_root, Constant):
            return None
        return root if (factor, zero) == (1, 0) else factor * root + zero

    def _root(self, symbol: Symbol) -> tuple[Any, int, int]:
        if symbol not in self.roots:
            step, first = self.sizes.step(symbol)
            found = self.sizes.env.facts.range_of(symbol)
            name = self.sizes.program.names.get(symbol, symbol.name) + ("_" if step > 1 else "")
            bounds = _bounds(-((first - found.lo) // step), (found.hi - first) // step)
            self.roots[symbol] = self.make(name, **bounds), step, first
        return self.roots[symbol]


def _bounds(lo: float, hi: float) -> dict[str, int]:
    return {"min": max(int(lo), 0)} | ({} if math.isinf(hi) or math.isnan(hi) else {"max": int(hi)})


# ---- what PyTorch made
def _check_as_wide(program: Program, sizes: Sizes, made: Any) -> None:
    """That it takes every size that the program takes: PyTorch adds conditions of its own without a word."""
    known, nodes = sizes.known(), list(made.graph.find_nodes(op="placeholder"))
    given = nodes[len(nodes) - program.form.arguments.num_leaves :]
    found: dict[fx.Node, Any] = {}
    for leaf, fake in sizes.fakes.items():
        found[given[leaf]] = [program.shape_env.wrap(size) for size in sizes.of(fake)]
        for size, theirs in zip(sizes.of(fake), given[leaf].meta["val"].shape, strict=True):
            _check_range(sizes, size, theirs, made.range_constraints)
    for node in made.graph.nodes:
        if node.target is _aten._assert_scalar.default:
            _check_condition(program, known, found.get(node.args[0]))
        elif node.op == "call_function" and all(one in found for one in node.all_input_nodes):
            _follow(node, found)


def _check_condition(program: Program, known: Facts, condition: Any) -> None:
    """That a condition on sizes always holds. None: it is of what only running tells, or of nothing that is known."""
    if condition is None and not any(node.meta.get("binds") for node in program.graph.nodes):
        raise _narrower("a condition on results")
    if condition is False:
        raise _narrower("what never holds")
    if isinstance(condition, torch.SymBool) and not known.prove_fully(condition.node.expr):
        raise _narrower(to_python(condition.node.expr, program.names))


def _check_range(sizes: Sizes, size: Expr, theirs: Any, ranges: Mapping[Any, Any]) -> None:
    """That a size varies, from where to where the program's does."""
    if isinstance(size, Constant):
        return
    text = to_python(size, sizes.program.names)
    if isinstance(theirs, int):
        raise _narrower(f"{text} == {theirs}")
    wanted = sizes.env.facts.range_of(size)
    for symbol, found in ranges.items():
        if str(symbol) == str(theirs) and isinstance(size, Symbol) and (found.lower > wanted.lo or found.upper < wanted.hi):
            raise _narrower(f"{found.lower} <= {text} <= {found.upper}")


def _narrower(text: str) -> ExportError:
    return _refused(
        f"PyTorch's program would need `{text}`", "the program itself does not: it takes more sizes",
        "export it with `dynamic_shapes` in which this always holds",
    )  # fmt: skip


def _follow(node: fx.Node, found: dict[fx.Node, Any]) -> None:
    """Note what a node that computes with sizes makes, in the program's own symbols."""
    if node.target is _aten.sym_size.int:
        found[node] = found[node.args[0]][node.args[1]]  # type: ignore[index]
    elif not isinstance(node.target, OpOverload) and not isinstance(node.target, str):
        args = fx.map_arg(node.args, found.__getitem__)
        if all(isinstance(one, (*_SYMBOLIC, int, float)) for one in args):
            found[node] = node.target(*args)


def _dropped(facts: Sequence[Expr]) -> list[Expr]:
    """Facts that hold for sizes from 2 on, and not for all: PyTorch believes them, and checks them nowhere."""
    sizes, twos = Facts(), Facts()
    for symbol in {symbol for fact in facts for symbol in fact.free}:
        sizes.learn(symbol.ge(0))
        twos.learn(symbol.ge(2))
    return [fact for fact in facts if twos.prove_fully(fact) and not sizes.prove_fully(fact)]


# ---- the module
def _module(program: Program) -> torch.nn.Module:
    """A module that is called as the model, and runs the graph on the parameters and buffers that it has."""
    names = _parameters(program)
    run = _Run(program)
    text = f"def forward(self, {', '.join(names)}): return run(self, ({''.join(f'{name}, ' for name in names)}))"
    scope: dict[str, Any] = {"run": run.called}
    exec(compile(text if names else "def forward(self): return run(self, ())", "<an exported program>", "exec"), scope)
    module: torch.nn.Module = type(program.name, (torch.nn.Module,), {"forward": scope["forward"]})()
    for one in program.inputs:
        if one.kind in (PARAMETER, BUFFER):
            _hold(module, one.target, program.state[one.target], one.kind, one.mutated)
    return module


def _hold(root: torch.nn.Module, target: str, tensor: torch.Tensor, kind: str, mutated: bool) -> None:
    path, _, name = target.rpartition(".")
    tensor = tensor.clone() if mutated else tensor
    if kind == PARAMETER:
        module_at(root, path).register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
    else:
        module_at(root, path).register_buffer(name, tensor)


class _Run:
    """Runs the graph on tensors that PyTorch follows: sizes are its symbols."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.graph = writing_graph(program).graph
        nodes = program.placeholders
        self.users = [(one, nodes[i].meta["val"]) for i, one in program.user_inputs()]
        self.homes = homes_of([fake.spec for _, fake in self.users])
        self.facts = facts_of(program.shape_env)
        self.known = list(self._known())
        self.dropped = set(_dropped(self.facts))
        for place in program.mutated:
            if program.inputs[place].kind == CONSTANT:
                raise _refused(f"the program writes the constant {program.inputs[place].target}", "it is no buffer of a module",
                               "register it as a buffer of the model")  # fmt: skip
        for node in self.graph.nodes:
            if node.op == "call_function":
                self._check(node)

    def _known(self) -> Iterator[tuple[int, int, Expr]]:
        """Sizes that others tell: the argument, the dimension, what it must be. PyTorch checks those that do not vary."""
        sizes = Sizes(self.program)
        for place, (_, fake) in enumerate(self.users):
            for dim, size in enumerate(sizes.of(fake)):
                home = self.homes.get(size) if isinstance(size, Symbol) else None
                if not isinstance(size, Constant) and home != (place, dim):
                    yield place, dim, size

    def _check(self, node: fx.Node) -> None:
        """Refuse what has another meaning, or none, in PyTorch's programs."""
        target: Any = RUNS_AS.get(node.target, node.target)
        if target in _STRIDED and self._in_argument(node.args[0]):
            raise _refused("the program reads the memory of an argument by strides", "PyTorch's programs do not look how it lies",
                           "use views that do not name strides", node.meta.get("where"))  # fmt: skip
        plain = target is operator.getitem or target in CHECKS or node.target in RUNS_AS or layer_of(node) is not None
        if not plain and (not isinstance(target, OpOverload) or target.namespace in OURS):
            name = str(target) if isinstance(target, OpOverload) else getattr(target, "__qualname__", str(target))
            raise _refused(f"`{name}` has no form in PyTorch's programs", "it is Pliant's own", where=node.meta.get("where"))

    def _in_argument(self, node: Any) -> bool:
        root = memory_root(node)
        return root.op == "placeholder" and any(one.name == root.name for one, _ in self.users)

    # ---- a call
    def called(self, module: torch.nn.Module, arguments: tuple[Any, ...]) -> Any:
        form = self.program.form
        args, kwargs = pytree.tree_unflatten([None] * form.arguments.num_leaves, form.arguments)
        named = dict(zip(kwargs, arguments[len(args) :], strict=True))
        leaves = pytree.tree_leaves((arguments[: len(args)], named))
        return self.outputs(self._given(module, leaves))

    def _given(self, module: torch.nn.Module, leaves: Sequence[Any]) -> list[Any]:
        """What placeholders stand for."""
        found = []
        for one in self.program.inputs:
            if one.leaf is not None:
                found.append(leaves[one.leaf])
            elif one.kind == CONSTANT:
                found.append(self.program.state[one.target])
            else:
                path, _, name = one.target.rpartition(".")
                found.append(getattr(module_at(module, path), name))
        return found

    def outputs(self, given: list[Any]) -> Any:
        values = self._bound(given)
        results = self._results(given, values)
        made = [self._output(one, given, results) for one in self.program.outputs]
        return pytree.tree_unflatten(made, self.program.form.result)

    def _bound(self, given: Sequence[Any]) -> _Values:
        """Symbols by name, after the facts are stated."""
        users = [given[i] for i, one in enumerate(self.program.inputs) if one.kind == USER]
        values = {symbol.name: users[place].size(dim) for symbol, (place, dim) in self.homes.items()}
        for place, dim, size in self.known:
            self._state(users[place].size(dim) == _number(size, values), f"{self.users[place][0].target}.size({dim})", size)
        for fact in self.facts:
            if fact in self.dropped:
                self._state_of_tensors(fact, values)
            else:
                self._state(_number(fact, values), "", fact)
        return values

    def _state_of_tensors(self, fact: Expr, values: _Values) -> None:
        """By an operator, since PyTorch drops what holds for sizes from 2 on."""
        names = {symbol.name for symbol in fact.free}
        tensors = {name: torch.scalar_tensor(values[name], dtype=torch.int64, device="cpu") for name in names}
        _aten._assert_async.msg(_number(fact, tensors), f"{to_python(fact, self.program.names)} does not hold")

    def _state(self, holds: Any, what: str, e: Expr) -> None:
        text = to_python(e, self.program.names)
        _check(holds, lambda: f"{what} is not {text}" if what else f"{text} does not hold")

    def _results(self, given: Sequence[Any], values: _Values) -> list[Any]:
        nodes: dict[fx.Node, Any] = {}
        inputs = iter(given)
        for node in self.graph.nodes:
            if node.op == "output":
                return [_value(one, nodes, values) for one in node.args[0]]
            nodes[node] = next(inputs) if node.op == "placeholder" else self._called(node, nodes, values)
            for binding in node.meta.get("binds", ()):
                values[binding.symbol.name] = binding.value(nodes[node])
        raise AssertionError("a graph without an output node")

    def _called(self, node: fx.Node, nodes: Mapping[fx.Node, Any], values: _Values) -> Any:
        if node.target in CHECKS:
            message = str(node.args[1] if len(node.args) == 2 else node.args[2])
            _check(_number(unlearnt(node.args[0]), values), lambda: message)
            return None
        target: Any = _INSTEAD.get(node.target) or RUNS_AS.get(node.target, node.target)
        args = [_value(a, nodes, values) for a in node.args]
        layer = layer_of(node)
        if layer is not None:
            return layer(*args[1:])
        return target(*args, **{k: _value(v, nodes, values) for k, v in node.kwargs.items()})

    def _output(self, output: Output, given: Sequence[Any], results: Sequence[Any]) -> Any:
        match output:
            case Literal(value):
                return value
            case FromInput(position):
                return given[position]
            case FromResult(position):
                return results[position]
            case ViewOf(source, steps):
                tensor = self._output(source, given, results)
                for step in steps:
                    tensor = _viewed(step, tensor, results)
                return tensor
        raise AssertionError(output)


def _viewed(step: Any, tensor: torch.Tensor, results: Sequence[Any]) -> torch.Tensor:
    if step.func in _STRIDED:
        raise _refused("a result is a view by strides", "PyTorch's programs do not look how arguments lie", "return a copy of it: .clone()")
    args, kwargs = pytree.tree_map_only(FromResult, lambda one: results[one.position], (step.args, step.kwargs))
    view = step.func(tensor, *args, **kwargs)
    found: torch.Tensor = view if step.index is None else view[step.index]
    return found


def _value(value: Any, nodes: Mapping[fx.Node, Any], values: _Values) -> Any:
    if isinstance(value, fx.Node):
        return nodes[value]
    if isinstance(value, (list, tuple)):
        return [_value(one, nodes, values) for one in value]
    return _number(value.node.expr, values) if isinstance(value, _SYMBOLIC) else value


# ---- numbers
_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.And: operator.and_, ast.Or: operator.or_,
}  # fmt: skip
_CALLS: dict[str, Callable[..., Any]] = {
    "min": torch.sym_min, "max": torch.sym_max, "float": torch.sym_float, "math.trunc": math.trunc, "math.floor": math.floor,
    "math.ceil": math.ceil,
}  # fmt: skip


def _number(e: Expr, values: _Values) -> Any:
    """The value of an expression, as one of PyTorch's symbolic numbers: no branch looks at it."""
    return _part(ast.parse(to_python(e), mode="eval").body, values)


def _part(tree: ast.expr, values: _Values) -> Any:
    match tree:
        case ast.Constant(value):
            return value
        case ast.Name(name) if name in values:
            return values[name]
        case ast.UnaryOp(ast.USub(), one):
            return -_part(one, values)
        case ast.UnaryOp(ast.Not(), one):
            return _sym_not(_part(one, values))
        case ast.BinOp(one, sign, other) | ast.Compare(one, [sign], [other]) if type(sign) in _BINARY:
            return _BINARY[type(sign)](_part(one, values), _part(other, values))
        case ast.BoolOp(sign, parts):
            return _folded(_BINARY[type(sign)], [_part(one, values) for one in parts])
        case ast.Call(function, args) if ast.unparse(function) in _CALLS:
            return _folded(_CALLS[ast.unparse(function)], [_part(one, values) for one in args])
        case ast.IfExp(test, then, other):
            return _sym_ite(_part(test, values), _part(then, values), _part(other, values))
    raise _refused(f"the number `{ast.unparse(tree)}` has no form in PyTorch's programs", "sizes there are of +, -, *, //, %, min and max")


def _folded(function: Callable[..., Any], parts: list[Any]) -> Any:
    """Two at a time; of one part what the function gives."""
    if len(parts) == 1:
        return function(parts[0])
    found, *rest = parts
    for one in rest:
        found = function(found, one)
    return found

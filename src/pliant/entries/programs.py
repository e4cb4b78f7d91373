"""What runs an entry's graph, made again by the calls that made it.

In:     the JSON that `program_writer.ProgramWriter` wrote.
Out:    `ProgramReader.made(json)`: the callable, made by the same functions (rows of `MAKERS`).
Holds:  arguments are constants, tensors, operators, functions that modules hold, records of `RECORDS`, and such callables.
"""

from __future__ import annotations

import base64
import functools
import importlib
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.entries import constants
from pliant.entries.constants import Json
from pliant.entries.objects import at_path
from pliant.torch_adapter import RUNS_AS
from pliant.wrappers.wrapper import without_memory

if TYPE_CHECKING:
    from pliant.autograd.higher_order import GradientProgram
    from pliant.autograd.trained import KeptBackwards

# Where each is: a program loads the modules of what it has.
MAKERS = {
    "as_it_is": "autograd.calls", "chain": "autograd.calls", "inference": "autograd.calls", "joined": "autograd.calls", "with_constants": "autograd.calls",
    "asking_writes": "autograd.around", "counting_writes": "autograd.around", "outside_autocast": "autograd.around", "uncounted": "autograd.around",
    "of_given": "autograd.trained", "trained": "autograd.trained",
    "recorded_on": "runtime.cuda.graphs", "made_apart": "runtime.cuda.large_results", "numbers_in_memory": "wrappers.wrapper",
    "_running": "graph.control_bodies", "wrapper_of": "runtime.program", "telling_by_lines": "wrappers.wrapper",
}  # fmt: skip
RECORDS = {
    "Around": "autograd.trained", "Backward": "graph.custom_function", "DeviceLibrary": "runtime.cuda.load", "Ending": "autograd.endings",
    "FromInput": "autograd.places",
    "FromResult": "autograd.places", "FunctionPlan": "graph.custom_function", "HalvesFacts": "autograd.function", "KeptInputs": "autograd.kept_inputs",
    "Launches": "wrappers.launches", "Library": "runtime.program", "Literal": "autograd.places", "MadeOutputs": "autograd.places",
    "Refused": "autograd.refused", "Roles": "runtime.cuda.roles", "Root": "autograd.history", "SameAs": "autograd.places",
    "Saved": "autograd.places",
    "ViewOf": "autograd.places", "ViewStep": "autograd.views", "Watched": "autograd.trained",
}  # fmt: skip
# Modules of captured graphs, with the attributes that are what they were made with; `options` by their names.
MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "ControlFlow": ("graph.control_flow", ("program",)),
    "CustomFunction": ("graph.custom_function", ("plan",)),
    "TensorHook": ("graph.tensor_hook", ("body",)),
    "Mapped": ("graph.transforms", ("body", "in_dims", "out_dims", "options")),
    "OwnMapped": ("graph.transforms", ("rule", "name", "in_dims", "out_dims")),
    **dict.fromkeys(
        ("Gradient", "Jacobian", "PulledBack", "PushedForward"), ("graph.transforms", ("body", "places", "n_outputs", "options"))
    ),
}
# Branches and loops.
CONTROL = {
    **dict.fromkeys(("AssociativeScan", "Branch", "Gradient", "Scan", "While", "_Mapped"), "graph.control_flow"),
    "Layer": "graph.recurrent", "KeptLayer": "graph.recurrent", "KeptGradient": "graph.kept_graphs",
}  # fmt: skip
GRADIENT = {"GradientProgram": "autograd.higher_order"}
_BACKWARD = {"KeptBackwards": "autograd.trained"}
# Our own operators that graphs call, in their namespace, and the module that registers each.
OURS = "pliant"
OWN_OPERATORS = {
    **dict.fromkeys(("packed_convolution", "packed_transpose"), "graph.packed_weights"),
    **dict.fromkeys(("random_state", "set_random_state", "seed", "seed_generator"), "graph.random_state"),
}


def named(table: dict[str, str], name: str) -> Any:
    return getattr(importlib.import_module(f"pliant.{table[name]}"), name)


def parts_of(name: str) -> list[str]:
    """Namespace, name and overload of an operator that says that it is called so."""
    namespace, _, rest = name.partition("::")
    return [namespace, *rest.partition(".")[::2]]


class ProgramReader:
    """Makes it again. `backwards`: those of the program. `compile_body`: how bodies of branches and loops are compiled. NotFound;
    NoKernels where the store has lost them."""

    def __init__(self, compile_body: Callable[..., Callable[..., Any]] | None = None) -> None:
        self.compile_body = compile_body
        self.backwards: list[KeptBackwards] = []
        self.generators: list[torch.Generator] = []  # the program's own, that it draws from

    def made(self, json: Json) -> Any:
        """The value again."""
        word, *rest = json
        return _READ[word](self, *rest)

    def _made(self, maker: str, *args: Json) -> Any:
        return named(MAKERS, maker)(*map(self.made, args))

    def _row(self, name: str, *values: Json) -> Any:
        return named(RECORDS, name)(*map(self.made, values))

    def _backward(self, *runs: Json) -> KeptBackwards:
        make = named(_BACKWARD, "KeptBackwards")
        self.backwards.append(make({missing: self.made(run) for missing, run in runs}))
        return self.backwards[-1]

    def _module(self, name: str, options: dict[str, Json], *given: Json) -> Any:
        make = named({name: MODULES[name][0]}, name)
        return make(*map(self.made, given), **{key: self.made(value) for key, value in options.items()})

    def _control(self, kind: str, random: bool, values: list[Json], bodies: list[Json]) -> Any:
        return named(CONTROL, kind).of_text(random, [*map(self.made, values)], [self._body(*one) for one in bodies])

    def _body(self, text: str, names: dict[str, Json], held: dict[str, Json], varying: list[list[bool] | None]) -> Any:
        """Compiled where it first runs."""
        from pliant.graph.control_bodies import Body, Text, module_of

        values = ({name: self.made(one) for name, one in some.items()} for some in (names, held))
        found = Text(text, *values)
        body = Body(module_of(found), (found, varying))
        if self.compile_body is not None:
            body.compile(self.compile_body)
        return body

    def _gradient(
        self, text: str, scope: dict[str, Json], held: dict[str, Json], name: str, count: int, *facts: Json
    ) -> GradientProgram:
        program = _TextModule(self, text, scope, held)
        found: GradientProgram = named(GRADIENT, "GradientProgram")(name, program, count, *map(self.made, facts), None)
        return found


class _TextModule(torch.nn.Module):
    """A graph module as text, read when it first runs."""

    def __init__(self, reader: ProgramReader, text: str, scope: dict[str, Json], held: dict[str, Json]) -> None:
        super().__init__()
        self._reader, self._text, self._scope, self._held = reader, text, scope, held

    @functools.cached_property
    def _function(self) -> Callable[..., Any]:
        names = {name: self._reader.made(json) for name, json in self._scope.items()}
        held = types.SimpleNamespace(**{name: self._reader.made(json) for name, json in self._held.items()})
        exec(compile(self._text, "<pliant program>", "exec"), names)  # our own text
        forward: Callable[..., Any] = functools.partial(names["forward"], held)
        return forward

    def forward(self, *values: Any) -> Any:
        return self._function(*values)


def operator_named(namespace: str, name: str, overload: str) -> Any:
    """The operator. AttributeError if there is none."""
    if namespace == OURS and name in OWN_OPERATORS:
        importlib.import_module(f"pliant.{OWN_OPERATORS[name]}")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")


def _pure_form(operator: Any) -> Any:
    from pliant.graph.custom_ops import functional_form

    return functional_form(operator)


def _opaque(which: str) -> Callable[..., Any]:
    def made(_: ProgramReader, *names: str) -> Any:
        from pliant.graph.opaque_derivatives import made_again

        return made_again(which, operator_named(*names))

    return made


def _read_tensor(size: Json, stride: Json, dtype: Json, device: Json, content: str) -> torch.Tensor:
    flat = torch.tensor(list(base64.b64decode(content)), dtype=torch.uint8, device="cpu").view(constants.read(dtype))
    return flat.as_strided(constants.read(size), constants.read(stride)).to(constants.read(device))


_READ: dict[str, Callable[..., Any]] = {
    "c": lambda reader, json: constants.read(json),
    "made": ProgramReader._made,
    "row": ProgramReader._row,
    "backward": ProgramReader._backward,
    "gradient": ProgramReader._gradient,
    "module": ProgramReader._module,
    "control": ProgramReader._control,
    "text": lambda reader, text, scope, held: _TextModule(reader, text, scope, held),
    "runs as": lambda reader, *names: RUNS_AS[operator_named(*names)],
    "list": lambda reader, *values: list(map(reader.made, values)),
    "tuple": lambda reader, *values: tuple(map(reader.made, values)),
    "dict": lambda reader, *pairs: {reader.made(key): reader.made(value) for key, value in pairs},
    "operator": lambda reader, *names: operator_named(*names),
    "pure form": lambda reader, *names: _pure_form(operator_named(*names)),
    **{which: _opaque(which) for which in ("opaque form", "opaque derivative")},
    "at": lambda reader, *path: at_path(*path),
    "tensor": lambda reader, *facts: _read_tensor(*facts),
    "generator": lambda reader, place: reader.generators[place],
    "without memory": lambda reader, *facts: without_memory(*map(constants.read, facts)),
}

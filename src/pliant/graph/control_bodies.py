"""Bodies of branches and loops, and the functions that run their programs in compiled code.

In:     graph modules of bodies; programs of `control_flow`.
Out:    `Body`: what runs a body, compiled as a function of its own; `running(program)`: what a wrapper calls.
Holds:  a captured body is its text, with what the names of the text stand for: another process makes the same of it
        (`module_of`), and what is compiled for it is found there. Of modules that the text calls no guard tells what they do, so the
        class of the body has that in its name; one that calls what has no content is compiled anew.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import fx

from pliant import torch_adapter
from pliant.wrappers.remade import remade

if TYPE_CHECKING:
    from pliant.graph.body_graph import BodyGraph
    from pliant.graph.control_flow import Program

Varying = Sequence[list[bool] | None]  # for each parameter which of its sizes are symbols; None of a number
Compile = Callable[[torch.nn.Module, Varying, bool], Callable[..., Any]]  # whether what is compiled may be found by the class

_MODULE = "pliant_body"  # which is nowhere


class Text(NamedTuple):
    """A graph module as text: what its global names stand for, and what the module holds."""

    source: str
    names: Mapping[str, Any]
    held: Mapping[str, Any]


def text_of(module: fx.GraphModule) -> Text:
    """The graph module's."""
    targets = {str(n.target) for n in module.graph.nodes if n.op in ("get_attr", "call_module")}
    held = {name: getattr(module, name, None) for name in sorted(targets)}
    code = module.graph.python_code("self")
    read = _names_in(code.src)
    return Text(code.src, {name: value for name, value in code.globals.items() if name in read}, held)


def content_of(text: Text) -> str | None:
    """All that counts of it beside what guards tell: of tensors and of globals. None where that is not known."""
    held = {name: "" if isinstance(one, torch.Tensor) else getattr(one, "content", None) for name, one in text.held.items()}
    known = None not in held.values()
    return hashlib.sha256(repr([text.source, held]).encode()).hexdigest()[:24] if known else None


def _names_in(text: str) -> set[str]:
    """Global names that the functions of the text read."""
    codes = [one for one in compile(text, "<pliant>", "exec").co_consts if isinstance(one, types.CodeType)]
    return {name for code in codes for name in code.co_names}


def module_of(text: Text) -> torch.nn.Module:
    """A module that runs the text, with a class of its own, which is no standard one: its code counts wherever it is named."""
    space = {"__name__": _MODULE, **text.names}
    exec(compile(text.source, "<pliant body>", "exec"), space)  # our own text
    cls = type(f"TextOfBody_{content_of(text)}", (torch.nn.Module,), {"forward": space["forward"], "__module__": _MODULE})
    module: torch.nn.Module = cls()
    for name, value in text.held.items():
        setattr(module, name, value)
    return module


class Body:
    """A graph that a program calls, as it is on fakes and wrappers of transforms. On real tensors it is compiled: with
    gradients recorded and without as two functions, which do not recompile for one another. `of_text`: it was read."""

    def __init__(self, module: fx.GraphModule | BodyGraph | torch.nn.Module, of_text: tuple[Text, Varying] | None = None) -> None:
        self.module, self._of_text = module, of_text
        self.compiled: dict[bool, Callable[..., Any]] = {}

    def compile(self, way: Compile) -> None:
        if (found := self.text) is not None:
            text, varying = found
            module, known = module_of(text), content_of(text) is not None
            self.compiled = {recorded: way(module, varying, known) for recorded in (False, True)}

    @property
    def text(self) -> tuple[Text, Varying] | None:
        """What another process makes it of; None of a graph of an exported program."""
        module = self.module
        return (text_of(module), _varying(module)) if isinstance(module, fx.GraphModule) else self._of_text

    def __call__(self, *values: Any) -> Any:
        if not self.compiled or any(map(_is_no_data, values)):
            return self.module(*values)
        recorded = torch.is_grad_enabled()
        return self.compiled[recorded](*[_alike(v, recorded) if isinstance(v, torch.Tensor) else v for v in values])


def _varying(module: fx.GraphModule) -> Varying:
    parameters = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]
    return [
        [type(size) is not int for size in value.shape] if isinstance(value, torch.Tensor) else None
        for value in parameters
    ]


def _alike(tensor: torch.Tensor, recorded: bool) -> torch.Tensor:
    """The tensor, no leaf if it has a gradient, so that a body need not be compiled for both."""
    if not tensor.requires_grad:
        return tensor
    return tensor.view_as(tensor) if recorded else tensor.detach()


def _is_no_data(value: Any) -> bool:
    plain = type(value) is torch.Tensor or type(value) is torch.nn.Parameter
    return isinstance(value, torch.Tensor) and (not plain or torch_adapter.is_transformed(value))


@functools.cache  # a program lives as long as the process
def running(program: Program) -> Callable[..., list[torch.Tensor]]:
    """What runs the program on its tensors, numbers and places: its number is this process' own, and in no text."""
    return _running(program)


@remade
def _running(program: Program) -> Callable[..., list[torch.Tensor]]:
    return functools.partial(program.operator, program.number)

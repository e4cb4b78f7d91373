"""Patterns: a function that says what to find, another that says what to put there.

In:     plain Python functions of tensors, an example of the tensors.
Out:    `Pattern`.
Holds:  a pattern only computes, of all its arguments, and what it returns it has computed; else it is a `PatternError`.
Reads on: `finding.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.errors import ConfigError, PatternError
from pliant.patterns.traced import Traced, trace

if TYPE_CHECKING:
    from pliant.patterns.finding import Match

Number = int | float | bool


class Pattern:
    """Calls to be found, and what takes their place.

    `search`, `replacement`: functions of the same tensors and keyword numbers. `example`: tensors to call them with, of the
    ranks that are to be found; their sizes and dtypes do not matter unless the functions ask. `numbers`: an example of the
    keyword numbers, which then may be any. `check(match)`: whether a match is taken. `shared`: values inside a match may be
    used outside of it, where they stay. Without a replacement, a pattern to `find`.
    """

    def __init__(
        self, search: Callable[..., Any], replacement: Callable[..., Any] | None = None, *, example: Sequence[torch.Tensor],
        numbers: Mapping[str, Number] | None = None, check: Callable[[Match], object] | None = None, shared: bool = False,
        name: str = "",
    ) -> None:  # fmt: skip
        self.search, self.replacement, self.check, self.shared = search, replacement, check, shared
        self.example, self.numbers = tuple(example), dict(numbers or {})
        self.name = name or getattr(search, "__name__", type(search).__name__)
        if not all(isinstance(one, torch.Tensor) for one in self.example):
            raise PatternError(f"the example of `{self.name}` has what is no tensor", kind="example", do="give numbers as `numbers=`")
        self.forms = self._forms()

    def __repr__(self) -> str:
        return f"Pattern({self.name})"

    def __call__(self, program: Any) -> None:
        """As a pass: `program.transform(pattern)`."""
        from pliant.patterns.program_pass import replace_in

        replace_in(program, self)

    def _forms(self) -> list[tuple[Traced, dict[str, tuple[fx.Node, Any]]]]:
        """The graphs that the function records: where autograd follows the arguments some calls become others."""
        found: dict[str, Traced] = {}
        for grad in (False, True):
            follows = [grad and one.dtype.is_floating_point for one in self.example]
            traced = self.traced(self.example, self.numbers, None, follows)
            found.setdefault(str(traced.graph), traced)
        return [(one, self._sites(one)) for one in found.values()]

    def traced(self, tensors: Sequence[Any], numbers: Mapping[str, Any], env: Any, follows: Sequence[bool]) -> Traced:
        """What the function records."""
        try:
            traced = trace(self.search, tensors, numbers, env, follows)
        except PatternError:
            raise
        except Exception as error:
            raise PatternError(
                f"the pattern `{self.name}` cannot be traced", kind="trace", why=f"{type(error).__name__}: {error}",
                do="give an `example` that the function takes, and a function that asks no element of a tensor",
            ) from error  # fmt: skip
        if any(one.op != "call_function" for one in traced.outputs):
            raise PatternError(f"the pattern `{self.name}` returns an argument", kind="result", do="return what is computed")
        unread = [place for place, node in enumerate(traced.inputs) if not node.users]
        if unread or traced.constants:
            what = f"does not read argument {unread[0]}" if unread else "holds a tensor"
            raise PatternError(f"the pattern `{self.name}` {what}", kind="argument", do="make its arguments all that it computes on")
        return traced

    def _sites(self, traced: Traced) -> dict[str, tuple[fx.Node, Any]]:
        """Where the keyword numbers are found as they are: by name, a call and the place among its arguments."""
        found: dict[str, tuple[fx.Node, Any]] = {}
        for name, number in self.numbers.items():
            for node in traced.calls:
                for place, value in [*enumerate(node.args), *node.kwargs.items()]:
                    if type(value) is type(number) and value == number:
                        found.setdefault(name, (node, place))
            if name not in found:
                raise PatternError(
                    f"`{name}` is no argument of a call in the pattern `{self.name}`", kind="number",
                    why=f"no operator is given {number!r} as it is", do="pass it to an operator, or make it a constant",
                )  # fmt: skip
        return found


def check_replacing(patterns: Sequence[object]) -> None:
    """What `compile(patterns=)` takes."""
    for one in patterns:
        if not isinstance(one, Pattern) or one.replacement is None:
            why = "it does not say what is to be found and what takes its place"
            do = "pass pliant.patterns.Pattern(search, replacement, example=...)"
            raise ConfigError(f"patterns cannot have {one!r}", kind="wrong-type", why=why, do=do)

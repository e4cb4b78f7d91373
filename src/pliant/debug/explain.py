"""What compiling a function does, as one object to print or to look into.

In:     a way to compile, a function, and the arguments of one call.
Out:    `Explanation`: graphs, breaks, guards, symbols, fallbacks and seconds of that call.
Holds:  the function is compiled afresh and called once; its effects happen once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pliant import config
from pliant.debug import events
from pliant.dispatch import behind
from pliant.records import dataclass

_KINDS = (
    "graph",
    "graph_code",
    "graph_break",
    "guard",
    "dynamic",
    "specialize",
    "fallback",
    "extern",
    "skip",
    "is_compiling",
    "pattern",
    "pattern_left",
    "stage",
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The events of one call, by kind, and what the call returned. `numerics`: the option of that name, as it was."""

    result: Any
    events: dict[str, list[events.Event]]
    numerics: str = "default"

    @property
    def graphs(self) -> list[str]:
        """The code of each graph."""
        return [str(e.fields["text"]) for e in self.events["graph_code"]]

    @property
    def operators(self) -> int:
        """Operators in all graphs."""
        return sum(int(str(e.fields["nodes"])) for e in self.events["graph"])

    @property
    def breaks(self) -> list[str]:
        """Each break: kind, line, why, what to do."""
        return [e.line for e in self.events["graph_break"]]

    @property
    def guards(self) -> list[str]:
        """Each fact that the compiled code relies on, once."""
        return list(dict.fromkeys(str(e.fields["text"]) for e in self.events["guard"]))

    @property
    def fallbacks(self) -> list[str]:
        """What runs eagerly, or as an extern call, and why."""
        return [e.line for kind in ("fallback", "skip", "extern") for e in self.events[kind]]

    @property
    def questions(self) -> list[str]:
        """Where the program or a library asked whether it is compiled, and may have computed otherwise for it."""
        return list(dict.fromkeys(e.line for e in self.events["is_compiling"]))

    @property
    def patterns(self) -> list[str]:
        """Each pattern that is replaced, and each that nearly is, with the reason."""
        return [e.line for kind in ("pattern", "pattern_left") for e in self.events[kind]]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by stage, inclusive."""
        found: dict[str, float] = {}
        for e in self.events["stage"]:
            name, path = str(e.fields["name"]), str(e.fields["path"]).split("/")
            if name not in path[:-1]:
                found[name] = found.get(name, 0.0) + float(str(e.fields["seconds"]))
        return found

    def __str__(self) -> str:
        sizes = (len(self.graphs), "graph"), (self.operators, "operator"), (len(self.breaks), "graph break")
        lines = [", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in sizes)]
        if self.numerics != "default":
            lines.append(f"numerics: {self.numerics}")
        state = {str(e.fields["text"]): None for e in self.events["guard"] if e.fields["is_state"]}
        for title, texts in (
            ("break", self.breaks),
            ("fallback", self.fallbacks),
            ("asked", self.questions),
            ("pattern", self.patterns),
            ("symbol", [e.line for kind in ("dynamic", "specialize") for e in self.events[kind]]),
            ("guard", [text for text in self.guards if text not in state]),
        ):
            lines += _numbered(title, texts)
        lines.append(f"guards of the state around the call: {', '.join(state)}")
        lines += _numbered("graph", self.graphs)
        lines.append("seconds: " + ", ".join(f"{name} {s:.3f}" for name, s in self.seconds.items()))
        return "\n".join(lines)


def _numbered(title: str, texts: Sequence[str]) -> list[str]:
    return [f"{title} {i}: " + text.replace("\n", "\n    ") for i, text in enumerate(texts)]


def explain(
    compile_: Callable[[Any], Callable[..., Any]], fn: Any, overrides: Mapping[str, object]
) -> Callable[..., Explanation]:
    """A function of the arguments of `fn` that compiles it, calls it once and returns what happened. `overrides`: the options
    that `compile_` sets."""

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        with events.collect(*_KINDS) as seen, config.patch(keep_entries=False):
            compiled = compile_(fn)
            result = compiled(*args, **kwargs)
            behind.wait()
            numerics = config.get().with_options(overrides).build.numerics
        return Explanation(result, {kind: [e for e in seen if e.kind == kind] for kind in _KINDS}, numerics)

    return explained

"""A graph module whose Python text is written when it is first asked for.

In:     what `fx.GraphModule` takes.
Out:    a `GraphModule` in all that can be seen of it. Ours are mostly read node by node: to write their text and have
        Python compile it costs a tenth of a capture.
Holds:  after the first use (`code`, `forward`, a call, `recompile`), it is as any other. `with_code` is for those that
        look at the class itself, as other people's tools do.
"""

from __future__ import annotations

from typing import Any

from torch import fx

_OF_THE_TEXT = ("_code", "_lineno_map", "_prologue_start")


class LateModule(fx.GraphModule):
    """Each has a class of its own (`fx.GraphModule.__new__`), into which its code is written."""

    def __init__(self, root: Any, graph: fx.Graph, name_of_class: str = "GraphModule") -> None:
        own: Any = type(self)
        own.recompile = lambda self: None
        try:
            super().__init__(root, graph, name_of_class)
        finally:
            del own.recompile

    def __getattr__(self, name: str) -> Any:
        if name in _OF_THE_TEXT:
            self.recompile()
            return vars(self)[name]
        return super().__getattr__(name)

    def __reduce__(self) -> Any:
        with_code(self)
        return super().__reduce__()

    def forward(self, *inputs: Any) -> Any:
        """The first call writes the code, which is `forward` from then on."""
        self.recompile()
        return type(self).forward(self, *inputs)


def with_code(module: fx.GraphModule) -> fx.GraphModule:
    """The module, whose text is written."""
    module.code  # noqa: B018
    return module

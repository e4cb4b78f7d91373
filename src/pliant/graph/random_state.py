"""The state of the random generators, read and set by operators of the graph.

In:     nothing, a state (bytes), or a seed.
Out:    operators `pliant::random_state`, `pliant::set_random_state`, `pliant::seed`, `pliant::seed_generator`.
Holds:  they are tagged as random draws are, so that passes keep them in their order among these.
"""

from __future__ import annotations

from typing import Any

import torch

_TAGS = (torch.Tag.nondeterministic_seeded,)
_library: Any = torch.library.Library("pliant", "DEF")  # type: ignore[no-untyped-call]  # lives as long as the process


def _set_state(state: torch.Tensor) -> None:
    torch.set_rng_state(state)


def _seed(seed: int) -> None:
    torch.manual_seed(seed)


def _seed_generator(generator: torch.Generator, seed: int) -> None:
    generator.manual_seed(seed)


for _schema, _function in (
    ("random_state() -> Tensor", torch.get_rng_state),
    ("set_random_state(Tensor state) -> ()", _set_state),
    ("seed(SymInt seed) -> ()", _seed),
    ("seed_generator(Generator generator, SymInt seed) -> ()", _seed_generator),
):
    _library.define(_schema, tags=_TAGS)
    _library.impl(_schema.split("(")[0], _function, "CompositeExplicitAutograd")

random_state: Any = torch.ops.pliant.random_state.default
set_random_state: Any = torch.ops.pliant.set_random_state.default
seed: Any = torch.ops.pliant.seed.default
seed_generator: Any = torch.ops.pliant.seed_generator.default

"""Functions below `vmap` at batches of several sizes: results equal eager's, and one graph serves them all.

    python -m tests.capture.vmap_table [--only WORD] [--way WAY]

prints a line for each row (`vmap_rows`) and way of mapping it that differs from eager, breaks, falls back or is compiled
for each size.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tests.capture.vmap_rows import ROWS, Row
from torch.func import grad, jvp, vmap
from torch.utils._pytree import tree_leaves

import pliant

SIZES = (11, 12, 14)  # no size of a sample, which would share its symbol


def total(values: Any) -> torch.Tensor:
    """A number with a gradient of its own for each element."""
    parts = [one for one in tree_leaves(values) if isinstance(one, torch.Tensor) and one.is_floating_point()]
    return sum(((one * one + one).sum() for one in parts), torch.zeros(()))


def floats_of(given: Sequence[Any]) -> tuple[int, ...]:
    return tuple([i for i, one in enumerate(given) if isinstance(one, torch.Tensor) and one.is_floating_point()])


def mapped(function: Callable[..., Any], given: Sequence[Any], in_dims: tuple[int | None, ...]) -> Any:
    return vmap(function, in_dims=in_dims)(*given)


def gradients(function: Callable[..., Any], given: Sequence[Any], in_dims: tuple[int | None, ...]) -> Any:
    def of_floats(*values: Any) -> Any:
        return grad(lambda *inner: total(function(*inner)), argnums=floats_of(values))(*values)

    return vmap(of_floats, in_dims=in_dims)(*given)


def tangents(function: Callable[..., Any], given: Sequence[Any], in_dims: tuple[int | None, ...]) -> Any:
    def moved(*values: Any) -> Any:
        places = floats_of(values)

        def of_floats(*floats: Any) -> Any:
            inner = list(values)
            for place, one in zip(places, floats):
                inner[place] = one
            return function(*inner)

        floats = tuple([values[place] for place in places])
        return jvp(of_floats, floats, tuple([one.cos() for one in floats]))

    return vmap(moved, in_dims=in_dims)(*given)


def twice(function: Callable[..., Any], given: Sequence[Any], in_dims: tuple[int | None, ...]) -> Any:
    more = [torch.stack([one, one.flip(0)], 1) if dim is not None else one for one, dim in zip(given, in_dims)]
    return vmap(vmap(function, in_dims=in_dims), in_dims=in_dims)(*more)


Way = tuple[Callable[..., Any], str]  # how it is mapped, and which tensors have a batch
WAYS: dict[str, Way] = {
    "map": (mapped, "all"),
    "first": (mapped, "first"),
    "rest": (mapped, "rest"),
    "train": (mapped, "all"),
    "grad": (gradients, "all"),
    "grad first": (gradients, "first"),
    "grad rest": (gradients, "rest"),
    "train grad": (gradients, "all"),
    "jvp": (tangents, "all"),
    "twice": (twice, "all"),
}


def in_dims_of(given: Sequence[Any], which: str) -> tuple[int | None, ...]:
    places = [i for i, one in enumerate(given) if isinstance(one, torch.Tensor)]
    chosen = {"all": places, "first": places[:1], "rest": places[1:]}[which]
    return tuple([0 if i in chosen else None for i in range(len(given))])


def inputs(make: Callable[[], tuple[Any, ...]], dims: Sequence[int | None], size: int, train: bool) -> list[Any]:
    """Arguments for a batch; whole ones are always those of the same sample."""
    torch.manual_seed(size)
    samples = [make() for _ in range(size)]
    given = [torch.stack(list(column)) if dim == 0 else column[0] for column, dim in zip(zip(*samples), dims)]
    return [one.clone().requires_grad_() if train and i in floats_of(given) else one for i, one in enumerate(given)]


def _outcome(function: Callable[..., Any], given: list[Any], train: bool) -> list[Any]:
    found = tree_leaves(function(*given))
    leaves = [one for one in given if isinstance(one, torch.Tensor) and one.requires_grad]
    if train and any(one.requires_grad for one in found):
        found += torch.autograd.grad(total([one for one in found if one.requires_grad]), leaves, allow_unused=True)
    return found


def judged(row: Row, way: str, backend: str = "aot_eager", sizes: Sequence[int] = SIZES) -> str:
    """What is wrong with a row mapped this way; empty if nothing is, or if eager refuses it."""
    function, make = row
    how, which = WAYS[way]
    train = way.startswith("train")
    torch.manual_seed(0)
    dims = in_dims_of(make(), which)
    if all(dim is None for dim in dims):
        return ""

    def program(*given: Any) -> Any:
        return how(function, given, dims)

    pliant.reset()
    compiled = pliant.compile(program, dynamic=True, backend=backend)
    for size in sizes:
        try:
            wanted = _outcome(program, inputs(make, dims, size, train), train)
        except Exception:
            return ""
        try:
            found = _outcome(compiled, inputs(make, dims, size, train), train)
            torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-4, equal_nan=True)
        except Exception as error:
            return f"at {size}: {type(error).__name__} {str(error).strip().splitlines()[0][:110]}"
    stats = pliant.stats()
    if stats["graph_breaks"] or stats["fallbacks"]:
        return f"breaks {stats['break_reasons']} fallbacks {stats['fallback_reasons']}"[:200]
    return "" if stats["graphs"] == 1 else f"{stats['graphs']} graphs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--way", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seen = bad = 0
    for way in filter(lambda way: options.way in ("", way), WAYS):
        for name, row in ROWS.items():
            if options.only in name:
                seen += 1
                if wrong := judged(row, way):
                    bad += 1
                    print(f"{way:12} {name:28} {wrong}", flush=True)
    print(f"{bad} of {seen}")


if __name__ == "__main__":
    main()

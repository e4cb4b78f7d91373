"""Models of diffusers: their constructors' defaults made small, and inputs whose widths the models themselves tell.

In:     the name of a model class of the library.
Out:    `builds(name)`: small models, the smallest first; `Recipe.inputs(model, size)`: inputs by the names of forward's
        parameters. Which names need which width stands in no list: each tensor is given a width of its own that divides
        no other, and the message with which a model refuses it says which one it wants instead.
"""

import importlib.util
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from benchmarks.zoo_inputs import SIZES, Size
from benchmarks.zoo_shrink import ladder

FRAMES, SIDE = 5, 16  # of a latent: one frame, and whole groups of four after it
ROUNDS = 24  # refusals from which widths are learnt
PRIMES = (61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109)


def names() -> list[str]:
    if not importlib.util.find_spec("diffusers"):
        return []
    import diffusers.models as models

    kept = []
    for name in sorted(n for n in dir(models) if n[0].isupper()):
        with suppress(Exception):
            kind = getattr(models, name)
            if isinstance(kind, type) and issubclass(kind, nn.Module) and hasattr(kind, "load_config"):
                kept.append(name)
    return kept


def builds(name: str) -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    import diffusers.models as models

    kind = getattr(models, name)
    found = {n: p.default for n, p in inspect.signature(kind.__init__).parameters.items() if p.default is not p.empty}
    tuples = {n for n, v in found.items() if isinstance(v, tuple)}
    defaults = {n: list(v) if n in tuples else v for n, v in found.items()}
    for level, fields in enumerate(ladder(defaults)):

        def build(fields: Any = fields) -> nn.Module:
            torch.manual_seed(0)
            return kind(**{n: type(found[n])(v) if n in tuples else v for n, v in fields.items()})

        yield f"level {level}", build


# ---- inputs: `...` is a width that the model tells

LATENTS: tuple[tuple[Any, ...], ...] = (("rows", ..., SIDE, SIDE), ("rows", "length", ...), ("rows", ..., FRAMES, SIDE, SIDE),
                                        ("rows", ..., 16 * SIDE), ("rows", ..., 4 * SIDE, 4 * SIDE))  # fmt: skip
NAMED: tuple[tuple[str, Any], ...] = (  # the first whose pattern is in the name
    (r"^(hidden_states|sample|x|mel|z|latents)$|latent|controlnet_cond|control_context|_cond_?hidden", "latent"),
    (r"ids$|_indexes$", "positions"),
    (r"mask", "mask"),
    (r"timestep|^t$|_time$|guidance|sigma|ratio", "time"),
    (r"pooled|proj_embedding|vector|global", ("rows", ...)),
    (r"class_labels|labels", "labels"),
    (r"^(height|width|num_frames|fps)$", "number"),
    (r"size|crop_coords|micro_conds", ("rows", 2)),
    (r"feats|states|embed|text|tokens", ("rows", "length", ...)),
)
OPTIONAL = re.compile(r"^(encoder_hidden_states\w*|timesteps?|pooled_\w+|class_labels|img_ids|txt_ids|encoder_\w*mask|text_embedding_mask\w*|"
                      r"global_hidden_states|height|width|num_frames)$")  # fmt: skip


@dataclass
class Recipe:
    """Which parameters are given, the shape of the latent, times whole or not; widths as they are known."""

    given: tuple[str, ...]
    latent: tuple[Any, ...]
    whole: bool
    axes: int = 3  # of positions
    widths: dict[str, int] = field(default_factory=dict)

    def inputs(self, model: nn.Module, size: Size) -> dict[str, Any]:
        torch.manual_seed(1)
        return {name: self.made(name, size) for name in self.given}

    def made(self, name: str, size: Size) -> Any:
        kind = next((kind for pattern, kind in NAMED if re.search(pattern, name)), ())
        rows, length = size
        latent = length if "length" in self.latent else SIDE
        match kind:
            case "latent":
                return torch.randn(self.shape(name, self.latent, size))
            case "positions":
                return torch.zeros(length, self.axes)
            case "mask":
                return torch.ones(rows, length)
            case "time":
                return torch.full((rows,), 3) if self.whole else torch.full((rows,), 0.3)
            case "labels":
                return torch.ones(rows, dtype=torch.long)
            case "number":
                return {"num_frames": 1, "height": 1, "width": latent}.get(name, 8)
        return torch.randn(self.shape(name, kind, size))

    def shape(self, name: str, kind: tuple[Any, ...], size: Size) -> tuple[int, ...]:
        known = {"rows": size[0], "length": size[1], ...: self.widths[name]}
        return tuple(known.get(part, part) for part in kind)


def recipes(model: nn.Module) -> Iterator[Recipe]:
    """Latents of each shape, times whole and not; a model that takes one at some widths is given those."""
    parameters = inspect.signature(model.forward).parameters
    needed = {n for n, p in parameters.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD}
    optional = [n for n in parameters if OPTIONAL.match(n)]
    unmasked = {n for n in optional if "mask" not in n}
    choices = (set(optional), unmasked, unmasked - {"class_labels"}, set())
    axes = next((len(v) for k, v in dict(model.config).items() if re.match(r"axes_dim", k)), 3)  # type: ignore[arg-type]
    seen = set()
    for chosen, latent, whole in itertools.product(choices, LATENTS, (True, False)):
        given = tuple(n for n in parameters if n in needed or n in chosen)
        if (given, latent, whole) not in seen:
            seen.add((given, latent, whole))
            recipe = Recipe(given, latent, whole, axes, dict(zip(given, itertools.cycle(PRIMES), strict=False)))
            learn_widths(recipe, model)
            yield recipe


# What PyTorch says of a width that does not fit: what it got, and what it wants.
REFUSALS: tuple[tuple[str, int, int], ...] = (
    (r"cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", 1, 2),
    (r"to have (\d+) channels, but got (\d+) channels", 2, 1),
    (r"input with shape \[\*, (\d+)\], but got input of size\[[\d, ]*?(\d+)\]", 2, 1),
    (r"[Ee]xpected (\d+) [\w ]*channels,? (?:but )?got (\d+)", 2, 1),
    (r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", 1, 2),
    (r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", 2, 1),
)


def learn_widths(recipe: Recipe, model: nn.Module) -> None:
    """Calls the model until it takes what it is given, or refuses it for something else than a width."""
    for _ in range(ROUNDS):
        try:
            with torch.no_grad():
                model(**recipe.inputs(model, SIZES[0]))
            return
        except Exception as error:
            matches = ((re.search(pattern, str(error)), got, wanted) for pattern, got, wanted in REFUSALS)
            if not any(learn(recipe, match, got, wanted) for match, got, wanted in matches if match):
                return


def learn(recipe: Recipe, match: re.Match[str], got: int, wanted: int) -> bool:
    """Whether a message tells the width of a parameter: the one whose width divides what a layer got (patches of it)."""
    taken, right = int(match[got]), int(match[wanted])
    for name, width in recipe.widths.items():
        if width in PRIMES and taken % width == 0 and right % (taken // width) == 0:
            recipe.widths[name] = right // (taken // width)
            return True
    return False

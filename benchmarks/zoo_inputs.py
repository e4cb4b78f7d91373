"""Inputs for a model from the names of its forward's parameters, and the tokens that images and audio take in the text.

In:     a model, its configuration (anything with nested fields) and a size (rows, length).
Out:    `recipes(model)`: which parameters to give and how each is made, likely ones first; which one a model takes is
        found by calling it. `Recipe.inputs(model, size)`: the tensors.
"""

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Size = tuple[int, int]
SIZES: tuple[Size, ...] = ((2, 12), (3, 18), (4, 28))
ORDINARY = 90  # ordinary tokens are below
SIDE = 64


@dataclass(frozen=True)
class Need:
    """What a maker may look at."""

    config: Any
    size: Size

    @property
    def rows(self) -> int:
        return self.size[0]

    @property
    def length(self) -> int:
        return self.size[1]

    def field(self, *names: str, default: int) -> int:
        """The first of these fields that the configuration has, sub-configurations included."""
        for name in names:
            found = find(self.config, name)
            if found is not None:
                return int(found[0] if isinstance(found, (list, tuple)) else found)
        return default

    @property
    def side(self) -> int:
        return self.field("image_size", "img_size", default=SIDE)

    @property
    def channels(self) -> int:
        return self.field("num_channels", "in_channels", "in_chans", default=3)

    @property
    def mels(self) -> int:
        return self.field("num_mel_bins", "n_mels", "mel_bins", "input_feat_size", "input_dim", "feature_size", default=80)

    @property
    def patch(self) -> tuple[int, int]:
        return self.field("patch_size", default=14), self.field("temporal_patch_size", default=1)

    def integers(self, *shape: int, high: int = ORDINARY) -> Tensor:
        return torch.randint(3, max(4, min(high, self.field("vocab_size", default=high))), shape)


def find(config: Any, name: str) -> Any:
    value = getattr(config, name, None)
    if isinstance(value, (int, list, tuple)) and not isinstance(value, bool) and value != []:
        return value
    parts = getattr(config, "sub_configs", None) or {}
    found = (find(getattr(config, part, None), name) for part in parts if getattr(config, part, None) is not None)
    return next((v for v in found if v is not None), None)


Maker = Callable[[Need], Any]


def image(need: Need) -> Tensor:
    return torch.randn(need.rows, need.channels, need.side, need.side)


def images(need: Need) -> Tensor:
    """A list of images (or of tiles) a row."""
    return torch.randn(need.rows, 1, need.channels, need.side, need.side)


def tiles(need: Need) -> Tensor:
    return torch.randn(need.rows, 3, need.channels, need.side, need.side)


def video(need: Need) -> Tensor:
    frames = need.field("num_frames", "frames_per_clip", "tubelet_size", default=4)
    return torch.randn(need.rows, frames, need.channels, need.side, need.side)


def grids(need: Need) -> Tensor:
    """Frames, height and width of each image in patches."""
    return torch.tensor([[1, 4, 2 * need.rows]] * need.rows)


def patches(need: Need) -> Tensor:
    side, frames = need.patch
    return torch.randn(int(grids(need).prod(1).sum()), need.channels * frames * side * side)


def flat_patches(need: Need) -> Tensor:
    side, _ = need.patch
    return torch.randn(need.rows, 16, need.channels * side * side)


def boxes(need: Need) -> Tensor:
    low = need.integers(need.rows, need.length, 2, high=40)
    return torch.cat([low, low + 20], -1)


def features(need: Need) -> Tensor:
    return torch.randn(need.rows, need.mels, frames(need))


def frames(need: Need) -> int:
    """Frames of a spectrogram: what the positions allow where they are counted, else growing with the length."""
    fixed = need.field("max_source_positions", default=0)
    return 2 * fixed if 0 < fixed <= 64 else 8 * need.length


def frames_first(need: Need) -> Tensor:
    return torch.randn(need.rows, frames(need), need.mels)


def long_features(need: Need) -> Tensor:
    return torch.randn(need.rows, need.mels, 3000)


def spectrogram(need: Need) -> Tensor:
    return torch.randn(need.rows, need.field("max_length", "spec_size", default=1024), need.mels)


def square_spectrogram(need: Need) -> Tensor:
    return torch.randn(need.rows, 1, need.field("spec_size", default=256) * 4, need.mels)


def wave(need: Need) -> Tensor:
    return torch.randn(need.rows, 3200 + 320 * need.length)


def wave_channel(need: Need) -> Tensor:
    return wave(need)[:, None]


def series(need: Need) -> Tensor:
    lags = getattr(need.config, "lags_sequence", None) or [0]
    return torch.randn(need.rows, need.field("context_length", default=32) + max(lags))


def many_series(need: Need) -> Tensor:
    return torch.randn(*series(need).shape, need.field("num_input_channels", "input_size", default=1))


def time_features(need: Need) -> Tensor:
    return torch.randn(*series(need).shape, need.field("num_time_features", default=0))


def future(need: Need) -> Tensor:
    return torch.randn(need.rows, need.field("prediction_length", default=8))


def future_features(need: Need) -> Tensor:
    return torch.randn(*future(need).shape, need.field("num_time_features", default=0))


def tokens(need: Need) -> Tensor:
    return need.integers(need.rows, need.length)


def hidden(need: Need) -> Tensor:
    width = need.field("hidden_size", "d_model", "embed_dim", "dim", default=64)
    return torch.randn(need.rows, need.length, width)


# Parameter -> ways to make it. A model is given those of its parameters that are named here.
TEXT: dict[str, tuple[Maker, ...]] = {
    "input_ids": (tokens, lambda n: n.integers(n.rows, n.length, n.field("num_codebooks", default=4), high=60)),
    "attention_mask": (lambda n: torch.ones(n.rows, n.length, dtype=torch.long),),
    "decoder_input_ids": (tokens,),
    "bbox": (boxes,),
    "labels": (tokens,),
}
VISION: dict[str, tuple[Maker, ...]] = {
    "pixel_values": (image, patches, images, tiles, video, flat_patches),
    "pixel_values_videos": (video,),
    "image_grid_thw": (grids,),
    "grid_thw": (grids,),
    "image_sizes": (lambda n: torch.tensor([[n.side, n.side]] * n.rows),),
    "image": (image,),
    "aspect_ratio_ids": (lambda n: torch.ones(n.rows, 1, dtype=torch.long),),
    "aspect_ratio_mask": (lambda n: torch.ones(n.rows, 1, n.field("max_num_tiles", default=4), dtype=torch.long),),
    "spatial_shapes": (lambda n: torch.tensor([[4, 4]] * n.rows),),
    "pixel_attention_mask": (lambda n: torch.ones(n.rows, 16, dtype=torch.long),),
    "task_inputs": (tokens,),
}
SOUND: dict[str, tuple[Maker, ...]] = {
    "input_features": (features, frames_first, long_features, spectrogram, square_spectrogram),
    "input_values": (wave, wave_channel, spectrogram, frames_first, features),
}
OTHER: dict[str, tuple[Maker, ...]] = {
    "past_values": (many_series, series),
    "past_time_features": (time_features,),
    "past_observed_mask": (lambda n: torch.ones_like(series(n)),),
    "future_values": (future,),
    "future_time_features": (future_features,),
    "inputs_embeds": (hidden,),
    "hidden_states": (hidden, patches),
    "visual_feats": (lambda n: torch.randn(n.rows, 5, n.field("visual_feat_dim", default=64)),),
    "visual_pos": (lambda n: torch.rand(n.rows, 5, n.field("visual_pos_dim", default=4)),),
    "states": (lambda n: torch.randn(n.rows, n.length, n.field("state_dim", default=17)),),
    "actions": (lambda n: torch.randn(n.rows, n.length, n.field("act_dim", default=4)),),
    "rewards": (lambda n: torch.randn(n.rows, n.length, 1),),
    "returns_to_go": (lambda n: torch.randn(n.rows, n.length, 1),),
    "timesteps": (lambda n: torch.arange(n.length).expand(n.rows, n.length),),
}
MAKERS = TEXT | VISION | SOUND | OTHER
FOLLOWS = {"pixel_values": "image", "input_features": "audio", "input_values": "audio"}  # what takes tokens in the text


def makers_of(name: str) -> tuple[Maker, ...]:
    """Further texts are made as the main one is (`qformer_input_ids`)."""
    return MAKERS.get(name) or next((MAKERS[n] for n in ("input_ids", "attention_mask") if name.endswith("_" + n)), ())


@dataclass(frozen=True)
class Recipe:
    """Parameters with the way each is made."""

    makers: tuple[tuple[str, Maker], ...]

    @property
    def given(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.makers)

    def inputs(self, model: nn.Module, size: Size) -> dict[str, Any]:
        torch.manual_seed(1)
        need = Need(getattr(model, "config", None), size)
        made = {name: make(need) for name, make in self.makers}
        return with_places(model, need, made) if "input_ids" in made else made


def recipes(model: nn.Module) -> Iterator[Recipe]:
    """What the model may take: all its modalities first, then its main ones alone."""
    parameters = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", None) or "input_ids"
    mains = {main} if isinstance(main, str) else set(main)
    required = {n for n, p in parameters.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD}
    config = getattr(model, "config", None)
    decoder = {"decoder_input_ids"} if getattr(config, "is_encoder_decoder", False) else set()
    text = {"input_ids", "attention_mask", "bbox"} | decoder
    vision = set(VISION) - {"pixel_values_videos", "pixel_attention_mask", "spatial_shapes", "task_inputs", "labels"}
    patched = vision | {"pixel_attention_mask", "spatial_shapes"}
    sound, other = set(SOUND), set(OTHER) - {"inputs_embeds", "hidden_states"}
    plain = vision - {"image_sizes", "aspect_ratio_ids", "aspect_ratio_mask"}
    wanted = [text | vision | sound, text | plain | sound, text | patched, text | plain, text | sound, text, mains | decoder, mains | other, mains, set()]
    seen = set()
    for names in wanted:
        given = tuple(n for n in parameters if n in (names | required | mains if names else required) and makers_of(n))
        if "input_ids" not in given:  # a mask of text
            given = tuple(n for n in given if n != "attention_mask" or n in required)
        if given in seen:
            continue
        seen.add(given)
        for makers in itertools.islice(itertools.product(*map(makers_of, given)), 40):
            yield Recipe(tuple(zip(given, makers, strict=True)))


# ---- places for images and audio in the text


def with_places(model: nn.Module, need: Need, made: dict[str, Any]) -> dict[str, Any]:
    """The text with as many special tokens as the images or the audio have features, and what depends on its length."""
    for name, what in FOLLOWS.items():
        token = next((t for suffix in ("token_id", "token_index") if (t := find_token(need.config, f"{what}_{suffix}"))), None)
        if name not in made or token is None:
            continue
        count = features_of(model, what, made)
        if not count:
            continue
        each = count // need.rows
        places = torch.full((need.rows, each), token)
        ids = made["input_ids"]
        made["input_ids"] = torch.cat([ids[:, :2], places, ids[:, 2:]], 1)
        if what == "image":
            accepted = inspect.signature(model.forward).parameters
            for kinds in ("mm_token_type_ids", "token_type_ids"):
                if kinds in accepted:
                    made[kinds] = (made["input_ids"] == token).long()
    if "attention_mask" in made:
        made["attention_mask"] = torch.ones(made["input_ids"].shape[:2], dtype=torch.long)
    return made


def find_token(config: Any, name: str) -> int | None:
    found = find(config, name)
    return found if isinstance(found, int) else None


def features_of(model: nn.Module, what: str, made: dict[str, Any]) -> int:
    """How many rows of features the model itself makes of its images or audio."""
    getter = next((g for m in model.modules() if (g := getattr(m, f"get_{what}_features", None))), None)
    if getter is None:
        return 0
    accepted = inspect.signature(getter).parameters
    with torch.no_grad():
        got = getter(**{n: v for n, v in made.items() if n in accepted and n not in TEXT})
    got = getattr(got, "pooler_output", got)
    parts = list(got) if isinstance(got, (list, tuple)) else [got]
    return sum(p.numel() // p.shape[-1] for p in parts if isinstance(p, Tensor))

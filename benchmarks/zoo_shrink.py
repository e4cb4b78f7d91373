"""Configurations made small by rules on the names of their fields, not by a list for each model.

In:     a configuration as nested dictionaries (a library's own defaults).
Out:    `ladder(config)`: smaller ones, the smallest first; which of them the model can be built with is found by
        trying. Each keeps the kinds of layers, and gives every special token its own small number.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

Config = dict[str, Any]
Rule = tuple[str, Callable[[Any], Any]]

LAYERS, VOCABULARY = 2, 160
MOST_STAGES = 8  # longer lists go with the layers
STAGES = ("stage_names", "out_features", "out_indices")  # follow from the layers that stay
FIRST_SPECIAL = 100  # ordinary tokens are below, special ones from here


def at_most(limit: int) -> Callable[[Any], Any]:
    """Numbers, also those in lists, cut to a limit."""

    def cut(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(cut(v) for v in value)
        return min(value, limit) if isinstance(value, int) and not isinstance(value, bool) else value

    return cut


def shares(least: int) -> Callable[[Any], Any]:
    """Lists of such numbers (one a stage) by the same power of two, so that what divides another still does."""

    def cut(value: Any) -> Any:
        numbers = isinstance(value, (list, tuple)) and value and all(isinstance(v, int) for v in value)
        part = next((p for p in (8, 4, 2) if numbers and all(v % p == 0 and v // p >= least for v in value)), 1)
        return type(value)(v // part for v in value) if numbers else value

    return cut


def only_number(limit: int) -> Callable[[Any], Any]:
    """A single number cut to a limit, also where a list repeats it; other lists (one width a stage) stay."""

    def cut(value: Any) -> Any:
        repeated = isinstance(value, (list, tuple)) and len(value) > 1 and all(v == value[0] for v in value)
        return at_most(limit)(value) if repeated or isinstance(value, int) else value

    return cut


def eighth(least: int) -> Callable[[Any], Any]:
    """An eighth of a number of at least this, where it is whole."""

    def cut(value: Any) -> Any:
        number = isinstance(value, int) and not isinstance(value, bool)
        return value // 8 if number and value >= least and value % 8 == 0 else value

    return cut


def zero(value: Any) -> Any:
    """Of the type that it had, which some configurations check."""
    return type(value)(0) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def layer_indices(value: Any) -> Any:
    """Indices of layers that are still there, as many as before where that can be."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, int) for v in value):
        return value
    return type(value)(dict.fromkeys(v if v < 0 else min(v, LAYERS - 1) for v in value))


def sections(value: Any) -> Any:
    """Parts of half a head (rotary sections): the same shares of a head of 16."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, int) for v in value):
        return value
    first = [max(1, v * 8 // max(1, sum(value))) for v in value]
    return [8 - sum(first[1:]), *first[1:]]


def axes(value: Any) -> Any:
    """Parts of a head, one an axis of the positions: even parts of a head of 16."""
    if not isinstance(value, (list, tuple)) or not 1 < len(value) < 5 or not all(isinstance(v, int) for v in value):
        return value
    each = 2 * (8 // len(value))
    return type(value)([16 - each * (len(value) - 1), *[each] * (len(value) - 1)])


NOISE: tuple[Rule, ...] = ((r"drop(out|_?path)?|pdrop|mask_(time|feature)_prob|layerdrop|jitter_noise", zero),)

DEPTH: tuple[Rule, ...] = (
    (r"^(num_hidden_layers|n_layers?|num_layers|(\w+_)?(num_)?(encoder|decoder|hidden)?_?layers|depth|\w*num_\w*_layers|"
     r"num_blocks|num_\w*_?blocks|first_k_dense_replace|max_window_layers|\w*_depth)$", only_number(LAYERS)),
    (r"^(depths|\w*num_blocks|layers|num_layers|layers_per_block|num_block_repeats|stage_num_blocks)$", at_most(1)),
    (r"(indexes|indices|layer_ids?|mlp_only_layers|layers_block_type_ids|cross_attention_layers)$", layer_indices),
    (r"^(num_experts|n_routed_experts|num_local_experts|moe_num_experts|num_\w*experts|n_\w*experts|\w*_expert_num)$", only_number(4)),
    (r"^(num_experts_per_tok|moe_top_?k|top_k|num_selected_experts|moe_k|num_experts_per_token|topk)$", only_number(2)),
    (r"^(n_group|topk_group|num_expert_groups?|n_groups_topk)$", only_number(1)),
)  # fmt: skip

SIZES: tuple[Rule, ...] = (
    (r"(^|_)vocab_size$|^vocab_size_\w+$|^n_vocab$", only_number(VOCABULARY)),
    (r"^(image_size|img_size|pretrain_image_size|crop_size)$", at_most(64)),
    (r"^(max_source_positions)$", only_number(48)),
    (r"^context_length$", at_most(512)),
    (r"^(num_queries|num_query_tokens|num_object_queries|num_proposals)$", only_number(12)),
    (r"^index_topk$", only_number(4)),
)

# Widths and heads that grow with the stages.
STAGED: tuple[Rule, ...] = (
    (r"heads?$", shares(1)),
    (r"(hidden_size|embed_dim|_dim|^dim|width|channels)s?$", shares(8)),
)

# Widths of stages alone, whose normalizations take them in groups.
GROUPED: tuple[Rule, ...] = ((r"channels$", shares(8)), (r"num_groups$", only_number(4)))


def widths(width: int, head: int) -> tuple[Rule, ...]:
    """Four heads of a size, and the widths that go with them."""
    return (
        (r"mrope_section$", sections),
        (r"^axes_dims?(_rope)?$", axes if head == 16 else lambda value: value),
        (r"^qk_head_dim$", only_number(2 * head)),
        (r"head_dim$|^d_kv$|head_size$|^kv_channels$|^attention_key_size$|^dim_head$", only_number(head)),
        (r"^rotary_dim$", only_number(head)),
        (r"(kv_heads|key_value_heads|num_kv_heads|query_groups)$", only_number(2)),
        (r"heads?$", only_number(4)),
        (r"lora_rank$|_rank$", only_number(16)),
        (r"intermediate_size|ffn|d_ff|inner|feedforward|mlp_hidden", only_number(2 * width)),
        (r"hidden_size|hidden_dim|d_model|n_embd|embed_dim|embd|embedding_size|_dim$|^dim$|^width$|_width$",
         only_number(width)),
        (r"^(num_channels|in_channels|patch_size)$", lambda value: value),
        (r"channels$", only_number(width)),
        (r"filters$", only_number(4)),
    )  # fmt: skip


# The same shares of everything, for models whose widths depend on one another.
SHARES: tuple[Rule, ...] = (
    (r"lora_rank$|_rank$|head_dim$|^d_kv$|head_size$|patch_size|in_channels|num_channels", lambda value: value),
    (r"heads?$", eighth(8)),
    (r"intermediate_size|ffn|d_ff|inner|feedforward|mlp_hidden|hidden_size|hidden_dim|d_model|n_embd|embed_dim|embd|"
     r"embedding_size|_dim$|^dim$|^width$|_width$|channels$", eighth(256)),
)  # fmt: skip

# Where numbers of heads must be the same, and numbers of tokens multiples.
ALIKE: tuple[Rule, ...] = ((r"(kv_heads|key_value_heads|num_kv_heads|query_groups)$", only_number(4)), (r"topk$", only_number(16)))

# What is made small, the smallest configuration first: fixed widths serve most; where widths depend on one another in a
# way that no name tells, they stay.
LADDER: tuple[tuple[Rule, ...], ...] = (
    NOISE + DEPTH + SIZES + widths(64, 16),
    NOISE + DEPTH + ALIKE + SIZES + widths(64, 16),
    NOISE + DEPTH + SIZES + GROUPED + widths(64, 16),
    NOISE + DEPTH + SIZES + widths(512, 128)[1:],  # parts of a head that are given in numbers
    NOISE + DEPTH + SIZES + SHARES,
    NOISE + DEPTH + SIZES,
    NOISE + DEPTH,
    NOISE,
)


def ladder(config: Config) -> Iterator[Config]:
    seen: list[Config] = []
    for rules in LADDER:
        tokens: dict[Any, int] = {}
        small = shrink(config, rules, tokens if SIZES[0] in rules else None)
        if small not in seen:
            seen.append(small)
            yield small


def shrink(config: Config, rules: tuple[Rule, ...], tokens: dict[Any, int] | None) -> Config:
    """One configuration after the rules; `tokens` maps special tokens that were met already, None leaves them."""
    kept = kept_layers(config) if DEPTH[0] in rules else None
    named = STAGES if kept is not None else ()
    config = config | {"out_indices": last_of(kept[1], config)} if kept is not None and many_outputs(config) else config
    named = tuple(name for name in named if name != "out_indices" or not many_outputs(config))
    if any(isinstance(v, list) and re.search(r"heads$", k) for k, v in config.items()):  # widths grow with the stages
        image = SIZES[1:2] if "window_size" in config else ()  # windows must fit into the last stage
        stages = STAGED if rules is LADDER[0] else ()
        rules = (*stages, *(rule for rule in rules if rule in NOISE + DEPTH + SIZES and rule not in image))
    counts = {k for k, v in config.items() if is_count(v, config)}
    return {
        key: value if key in counts else shrunk(key, value, rules, tokens, kept)
        for key, value in config.items()
        if key not in named
    }


def is_count(value: Any, config: Config) -> bool:
    """Whether a number is the length of several lists of numbers: of what has widths of its own, which stay."""
    lists = [v for v in config.values() if isinstance(v, (list, tuple)) and len(v) == value and not not_widths(v)]
    return isinstance(value, int) and not isinstance(value, bool) and value > 2 and len(lists) > 2


def shrunk(key: str, value: Any, rules: tuple[Rule, ...], tokens: dict[Any, int] | None, kept: Any) -> Any:
    if isinstance(value, dict):
        return value if key in ("id2label", "label2id") else shrink(value, rules, tokens)
    if re.search(r"token_(id|index|idx)s?$|^(image|video|audio)_token$", key):
        return value if tokens is None else special(key, value, tokens)
    if key in STAGES:
        return value
    if kept is not None and isinstance(value, list) and len(value) == kept[0] and (not_widths(value) or kept[0] > MOST_STAGES):
        return [value[i] for i in kept[1]]
    if kept is not None and value == kept[0] and re.search(DEPTH[0][0], key):
        return len(kept[1])
    return next((change(value) for name, change in rules if re.search(name, key)), value)


def special(key: str, value: Any, tokens: dict[Any, int]) -> Any:
    """Each special token's own number in the small vocabulary; images and sounds have one."""
    if isinstance(value, (list, tuple)):
        return type(value)(special(key, v, tokens) for v in value)
    if value is None and re.search(r"^(image|audio)_token_(id|index)$", key):
        return tokens.setdefault(key, FIRST_SPECIAL + len(tokens))
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return value
    return tokens.setdefault(value, FIRST_SPECIAL + len(tokens))


def not_widths(value: list[Any]) -> bool:
    """Whether a list says something of each layer other than a number (then it goes with the layers)."""
    return all(isinstance(v, (str, bool)) for v in value)


def kept_layers(config: Config) -> tuple[int, list[int]] | None:
    """How many layers there are, and which of them stay: the first of each kind, two at least."""
    count = next(
        (v for k in ("num_hidden_layers", "n_layer", "num_layers", "depth") if isinstance(v := config.get(k), int)), None
    )
    if count is None:
        return None
    lists = [v for v in config.values() if isinstance(v, list) and len(v) == count and not_widths(v)]
    kinds = list(zip(*lists, strict=True)) if lists else [()] * count
    first = {kind: i for i, kind in reversed(list(enumerate(kinds)))}
    rest = [i for i in range(count) if i not in first.values()]
    wanted = max(LAYERS, many_outputs(config))
    return count, sorted([*first.values(), *rest[: max(0, wanted - len(first))]])


def many_outputs(config: Config) -> int:
    """How many layers' outputs a backbone gives, if several."""
    outputs = config.get("out_indices")
    return len(outputs) if isinstance(outputs, (list, tuple)) and len(outputs) > 1 else 0


def last_of(layers: list[int], config: Config) -> list[int]:
    """As many outputs as before: those of the last layers that stay (the first stage is what the layers are given)."""
    return list(range(len(layers) + 1))[-many_outputs(config) :]

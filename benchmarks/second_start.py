"""The second start of a program: what its first call costs once another process has compiled it.

Each model runs in four processes, forks that have loaded PyTorch and the model's library and nothing of Pliant: one in
which eager makes its first call; a cold one; a warm one that finds built code; a warm one that finds whole entries.
Seconds are those of the first call (with its gradients, in training), without those of loading Pliant, which are told
apart. `added` is what the first call takes above eager's where the entry is found.

    python -m benchmarks.second_start [--models bert gpt2...] [--modes inference training] [--public 1/20]

`--public k/n`: in place of these a part of the public models that `benchmarks.zoo` lists (`--library hf timm...`), and which
were kept and found, or why not.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks import zoo_models
from benchmarks.children import geometric_mean, print_row
from benchmarks.models import MODELS, VOCABULARY
from benchmarks.sizes import relative_error
from benchmarks.zoo import ALLOWED, without_dropout

_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "use_cache": False,
}  # fmt: skip
_DECODER: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "use_cache": False, "max_position_embeddings": 128,
}  # fmt: skip
# Of transformers: model class, configuration class, its values.
_HUGGING_FACE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert-base": ("BertModel", "BertConfig", {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
    "albert": ("AlbertModel", "AlbertConfig", {**_TEXT, "embedding_size": 32}),
    "roberta": ("RobertaModel", "RobertaConfig", _TEXT),
    "electra": ("ElectraModel", "ElectraConfig", {**_TEXT, "embedding_size": 32}),
    "distilbert": (
        "DistilBertModel", "DistilBertConfig",
        {"vocab_size": VOCABULARY, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "dropout": 0.0,
         "attention_dropout": 0.0},
    ),
    "mistral": ("MistralForCausalLM", "MistralConfig", _DECODER),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {k: v for k, v in _DECODER.items() if k != "head_dim"}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", _DECODER),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {k: v for k, v in _DECODER.items() if "key" not in k}),
    "opt": (
        "OPTForCausalLM", "OPTConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "dropout": 0.0, "use_cache": False, "word_embed_proj_dim": 64, "max_position_embeddings": 128},
    ),
}  # fmt: skip


class Residual(nn.Module):
    """A small network of residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8) for _ in range(6)])
        self.convolutions = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(6)])
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            x = x + torch.relu(norm(convolution(x)))
        found: torch.Tensor = self.head(x.mean((2, 3)))
        return found


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


def _function(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x * 2) + x.sin().sum(-1, keepdim=True)


def _image() -> dict[str, Any]:
    return {"x": torch.randn(2, 3, 16, 16)}


_OWN: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "function": (lambda: _function, lambda: {"x": torch.randn(64, 64)}),
    "residual": (Residual, _image),
    "encoder": (_encoder, lambda: {"src": torch.randn(2, 16, 64)}),
    "autoencoder": (
        lambda: nn.Sequential(nn.Linear(64, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 64), nn.Sigmoid()),
        lambda: {"input": torch.randn(8, 64)},
    ),
    "gru": (lambda: _Recurrent(), lambda: {"x": torch.randn(2, 5, 16)}),
}


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(x.shape[0], 16)
        for step in x.unbind(1):
            h = self.cell(step, h)
        return h


NAMES = ["function", "mlp", "autoencoder", "residual", "convnet", "encoder", "gru", "bert", "gpt2", "llama", *_HUGGING_FACE]


def built(name: str) -> tuple[Any, dict[str, Any]]:
    """The model, or function, and the arguments of a call."""
    torch.manual_seed(0)
    if name in _OWN:
        build, inputs = _OWN[name]
        return build(), inputs()
    if "/" in name:
        case = case_of(name)
        made = without_dropout(case.build())
        return made, case.inputs(copy.deepcopy(made).eval(), case.sizes[0])
    if name in MODELS:
        model = MODELS[name]
        return model.build(), model.inputs(*model.sizes[0])
    import transformers

    kind, configuration, values = _HUGGING_FACE[name]
    made = getattr(transformers, kind)(getattr(transformers, configuration)(**values))
    return made, {"input_ids": torch.randint(10, VOCABULARY, (2, 16))}


@functools.cache
def case_of(name: str) -> zoo_models.Case:
    """A public model that runs; asked for before processes are forked, it is looked for once. NoCase."""
    return zoo_models.find_case(name)


def without_case(name: str) -> str | None:
    """Why the public model cannot be run; None if it can."""
    try:
        return None if "/" not in name or case_of(name) else ""
    except zoo_models.NoCase as error:
        return f"no case: {error}"[:120]


_STAGES = ("capture", "symbolic", "lowering", "codegen")


def eager_call(name: str, training: bool) -> dict[str, Any]:
    """What the first call costs a process without Pliant."""
    warnings.simplefilter("ignore")
    target, inputs = prepared(name, training)
    start = time.perf_counter()
    with torch.set_grad_enabled(training):
        called(target, inputs, training)
    return {"call": time.perf_counter() - start}


def prepared(name: str, training: bool) -> tuple[Any, dict[str, Any]]:
    target, inputs = built(name)
    if isinstance(target, nn.Module):
        target.train(training)
    elif training:
        inputs["x"].requires_grad_()
    return target, inputs


def first_call(name: str, training: bool) -> dict[str, Any]:
    """What the first call costs this process, and whether it computes what eager does."""
    warnings.simplefilter("ignore")
    target, inputs = prepared(name, training)
    start = time.perf_counter()
    import pliant
    from pliant import background

    compiled = pliant.compile(target)
    loaded = time.perf_counter()
    with torch.set_grad_enabled(training):
        result = called(compiled, inputs, training)
        end = time.perf_counter()
        background.finish()
        stats = pliant.stats()
        called(compiled, inputs, training)
        again = pliant.stats()
        right = _alike(result, called(target, inputs, training))
    modules = [name for name in sys.modules if name.startswith("pliant.")]
    return {
        "load": loaded - start,
        "call": end - loaded,
        "right": right,
        "captures": stats["calls"].get("capture", 0),  # type: ignore[attr-defined]
        "later": again["calls"].get("capture", 0),  # type: ignore[attr-defined]
        "entries": stats["entries"],
        "reasons": [str(e.fields["why"])[:90] for e in pliant.debug.events.events("entry") if "not" in str(e.fields["what"])],
        "imported": {stage: sum(m.startswith(f"pliant.{stage}") for m in modules) for stage in _STAGES},
        "dynamo": "torch._dynamo" in sys.modules,
        "seconds": {k: v for k, v in stats["seconds"].items() if k in ("find", "keep", "capture")},  # type: ignore[attr-defined]
    }


def called(call: Any, inputs: dict[str, Any], training: bool) -> list[torch.Tensor]:
    """The results of a call, and in training its gradients."""
    torch.manual_seed(1)
    leaves = torch.utils._pytree.tree_leaves(call(**inputs))
    tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
    if not training:
        return tensors
    loss = [t.float().sum() for t in tensors if t.requires_grad]
    if not loss:
        raise zoo_models.NoCase("no output has a gradient")
    torch.stack(loss).sum().backward()
    parameters = list(call.parameters()) if isinstance(call, nn.Module) else list(inputs.values())
    found = [p.grad.clone() for p in parameters if p.grad is not None]
    for p in parameters:
        p.grad = None
    return [*(t.detach() for t in tensors), *found]


def _alike(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return relative_error(one, other) <= ALLOWED


def in_a_fork(work: Callable[[], dict[str, Any]], environment: dict[str, str]) -> dict[str, Any]:
    """What the work returns in a process of its own."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.environ.update(environment)
        try:
            found = work()
        except Exception as error:
            found = {"failed": f"{type(error).__name__}: {error}"[:300]}
        with os.fdopen(write, "w") as pipe:
            json.dump(found, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(process, 0)
    return dict(json.loads(text)) if text else {"failed": "the process died"}


def measured(name: str, training: bool) -> list[dict[str, Any]]:
    """Eager's process, the cold one, the warm one with built code, the warm one with entries."""
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        work = {"PLIANT_CACHE_DIR": folder}
        return [in_a_fork(lambda: eager_call(name, training), {})] + [
            in_a_fork(lambda: first_call(name, training), {**work, "PLIANT_KEEP_ENTRIES": keep}) for keep in ("1", "0", "1")
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--modes", nargs="*", default=["inference", "training"], choices=["inference", "training"])
    parser.add_argument("--public", default="")
    parser.add_argument("--library", nargs="*", default=["hf", "timm"], choices=list(zoo_models.LIBRARIES))
    given = parser.parse_args()
    if given.public:
        part, count = map(int, given.public.split("/"))
        zoo_models.import_libraries(given.library)
        given.models = zoo_models.names(given.library)[part - 1 :: count]
    elif not {*given.models} <= {*_OWN}:
        zoo_models.import_libraries(["hf"])
        for kind in ("BertForMaskedLM", "GPT2LMHeadModel", *(row[0] for row in _HUGGING_FACE.values())):
            getattr(__import__("transformers"), kind)
    with tempfile.TemporaryDirectory(prefix="pliant-bytecode-") as folder:
        # Modules are loaded from bytecode, as where Pliant is installed, whatever this environment says of writing it.
        sys.dont_write_bytecode, sys.pycache_prefix = False, folder
        measured("function", training=True)  # which writes it
        print_rows(given.models, given.modes)


def print_rows(models: list[str], modes: list[str]) -> None:
    """What each model costs, and the means."""
    widths = (max(14, *(len(name) + 2 for name in models)), 10, 8, 8, 8, 8, 8, 9, 9, 10)
    print_row(("model", "mode", "eager", "cold", "warm", "entries", "added", "of cold", "of warm", "captures"), widths)
    shares: list[tuple[float, float]] = []
    loads: list[float] = []
    for mode in modes:
        for name in models:
            rows = measured(name, mode == "training") if (none := without_case(name)) is None else [{"failed": none}]
            failed = next((row["failed"] for row in rows if "failed" in row), "")
            if failed:
                print_row((name, mode, failed), widths)
                continue
            eager, cold, warm, entries = (row["call"] for row in rows)
            last = rows[3]
            loads.append(last["load"])
            if not last["captures"]:
                shares.append((entries / cold, entries / warm))
            captures = f"{last['captures']}{'' if all(row['right'] for row in rows[1:]) else ' WRONG'}"
            times = (eager, cold, warm, entries, entries - eager, entries / cold, entries / warm)
            print_row((name, mode, *times, captures), widths)
            for text in [*rows[1]["reasons"], *last["reasons"]]:
                print(f"    {text}")
    of_cold, of_warm = (geometric_mean([share[k] for share in shares]) for k in (0, 1))
    print(f"where the entry is found, in the geometric mean: {of_cold:.3f} of the cold call, {of_warm:.3f} of the warm one")
    print(f"loading Pliant where the entry is found: {statistics.median(loads):.3f} s in the median")
    print(f"modules of each stage in the last process: {last['imported']}")


if __name__ == "__main__":
    main()

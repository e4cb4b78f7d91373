"""Models on a GPU beside eager and torch.compile: `python -m benchmarks.gpu [--models bert] [--peer] [--opt reduce-overhead]`.

bf16 autocast, the sizes that one GPU is used with. A row is a model in inference or training: milliseconds of eager and of
the compiled model (medians, called in turn), their ratio, seconds of the first call with an empty cache, peak memory over
eager's, and the largest error of a result or gradient against float64, over eager's. Each compiler runs in a process of
its own. `--cache FOLDER` keeps the caches there: a second run measures first calls of a second process.
"""

import argparse
import copy
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.children import geometric_mean, print_row

Inputs = dict[str, torch.Tensor]
WIDTHS = (30, 10, 10, 10, 8, 8, 8, 10)


def _language(name: str, shape: tuple[int, int] = (8, 512), **changed: Any) -> tuple[torch.nn.Module, Inputs]:
    import transformers

    kinds = {
        "bert": "BertForMaskedLM",
        "gpt2": "GPT2LMHeadModel",
        "llama": "LlamaForCausalLM",
        "t5": "T5ForConditionalGeneration",
    }
    cls = getattr(transformers, kinds[name])
    config = cls.config_class(**changed)
    torch.manual_seed(0)
    ids = torch.randint(0, config.vocab_size, shape, device="cuda")
    return cls(config).cuda(), {"input_ids": ids, "labels": ids}


def _images(name: str, **changed: Any) -> tuple[torch.nn.Module, Inputs]:
    import timm

    torch.manual_seed(0)
    return timm.create_model(name, **changed).cuda(), {"x": torch.randn(64, 3, 224, 224, device="cuda")}


NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
SMALL_LLAMA = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4}  # fmt: skip
SMALL_T5 = {"d_model": 512, "num_layers": 6, "dropout_rate": 0.0, "decoder_start_token_id": 0}
MODELS: dict[str, Callable[[], tuple[torch.nn.Module, Inputs]]] = {
    "bert": lambda: _language("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    "gpt2": lambda: _language("gpt2", use_cache=False, **NO_DROPOUT),
    "llama": lambda: _language("llama", use_cache=False, **SMALL_LLAMA),
    "llama_decode": lambda: _language("llama", (1, 2), use_cache=False, **SMALL_LLAMA),
    "t5": lambda: _language("t5", use_cache=False, **SMALL_T5),
    "resnet50": lambda: _images("resnet50"),
    "vit_base_patch16_224": lambda: _images("vit_base_patch16_224"),
    "convnext_tiny": lambda: _images("convnext_tiny"),
    "mobilenetv3_large_100": lambda: _images("mobilenetv3_large_100"),
    "efficientnet_b0": lambda: _images("efficientnet_b0"),
    "swin_tiny_patch4_window7_224": lambda: _images("swin_tiny_patch4_window7_224", drop_path_rate=0.0),
}

INFERENCE_ONLY = ("llama_decode",)


def step(
    model: Callable[..., Any],
    inputs: Inputs,
    parameters: list[torch.Tensor] | None,
    dtype: torch.dtype = torch.bfloat16,
) -> list[torch.Tensor]:
    """Results of a call, or a loss and gradients. Products are in `dtype`."""
    lower = torch.autocast("cuda", dtype, enabled=dtype is torch.bfloat16)
    with lower, torch.set_grad_enabled(parameters is not None):
        out = model(*inputs.values()) if "x" in inputs else model(**inputs)
        found = [out] if isinstance(out, torch.Tensor) else [out.loss, out.logits]
        wide = found[0] if dtype is torch.float64 else found[0].float()
        loss = wide.square().mean() if isinstance(out, torch.Tensor) else out.loss
    return found if parameters is None else [loss, *torch.autograd.grad(loss, parameters)]


def in_float64(model: torch.nn.Module, inputs: Inputs, training: bool) -> list[torch.Tensor]:
    wide = copy.deepcopy(model).double()
    parameters = [p for p in wide.parameters() if p.requires_grad] if training else None
    given = {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}
    return step(wide, given, parameters, torch.float64)


def apart(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """How far results or gradients are from the exact ones, all together, by the length of these."""
    exact = [e for e in exact if e.dim()] or exact  # a loss is a sum of what is compared anyway
    found = [f for f in found if f.dim()] or found
    off = sum(float((f.double() - e).square().sum()) for f, e in zip(found, exact, strict=True))
    return math.sqrt(off / sum(float(e.square().sum()) for e in exact))


def milliseconds(call: Callable[[], object], turns: int = 10) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(turns):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / turns


def peak(call: Callable[[], object], kept: int = 0) -> int:
    """Bytes that are allocated at most; `kept`: what recordings keep, which is not counted as allocated."""
    torch.cuda.reset_peak_memory_stats()
    call()
    return torch.cuda.max_memory_allocated() + kept


def kept_by_recordings() -> int:
    """Bytes in the pools of CUDA graphs that no tensor has."""
    pools = [s for s in torch.cuda.memory_snapshot() if tuple(s.get("segment_pool_id", (0, 0))) != (0, 0)]
    return sum(s["total_size"] - s["allocated_size"] for s in pools)


def one(name: str, training: bool, compiler: str, opt: str | None) -> dict[str, float]:
    """What one compiler makes of one model."""
    import pliant

    torch.set_float32_matmul_precision("high")
    model, inputs = MODELS[name]()
    model.train(training)
    parameters = [p for p in model.parameters() if p.requires_grad] if training else None
    compiled = (pliant.compile if compiler == "pliant" else torch.compile)(model, **({"mode": opt} if opt else {}))
    calls = {"eager": lambda: step(model, inputs, parameters), "compiled": lambda: step(compiled, inputs, parameters)}
    expected = calls["eager"]()
    torch.cuda.synchronize()
    began = time.perf_counter()
    found = calls["compiled"]()
    torch.cuda.synchronize()
    first = time.perf_counter() - began
    exact = in_float64(model, inputs, training)
    error = apart(found, exact) / apart(expected, exact)
    del found, expected, exact
    times: dict[str, list[float]] = {"eager": [], "compiled": []}
    for _ in range(6):
        for kind, call in calls.items():
            times[kind].append(milliseconds(call))
    medians = {kind: statistics.median(seen[1:]) for kind, seen in times.items()}
    memory = peak(calls["compiled"], kept_by_recordings()) / peak(calls["eager"])
    if pliant.stats()["fallbacks"]:
        raise RuntimeError(f"ran eagerly: {next(iter(pliant.stats()['fallback_reasons']))}")
    return {**medians, "first": first, "memory": memory, "error": error}


@contextmanager
def caches(kept: str | None) -> Iterator[str]:
    """A folder for what compilers keep on disk: `kept`, or one that is gone afterwards."""
    if kept:
        yield kept
        return
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def in_a_process(name: str, mode: str, compiler: str, opt: str | None, kept: str | None) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gpu", "--one", name, compiler, mode]
    with caches(kept) as cache:
        variables = {
            "PLIANT_CACHE_DIR": f"{cache}/pliant",
            "TORCHINDUCTOR_CACHE_DIR": f"{cache}/peer",
            "TRITON_CACHE_DIR": f"{cache}/triton",
        }
        done = subprocess.run(
            ["env", *(f"{k}={v}" for k, v in variables.items()), *command, *(["--opt", opt] if opt else [])],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:100]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--modes", nargs="*", default=["inference", "training"], choices=["inference", "training"])
    parser.add_argument("--peer", action="store_true", help="torch.compile beside it")
    parser.add_argument("--opt", help="mode of the compiler: reduce-overhead")
    parser.add_argument("--cache", metavar="FOLDER", help="where the caches of both compilers are, and stay")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, compiler, mode = options.one
        print(json.dumps(one(name, mode == "training", compiler, options.opt)))
        return
    print_row(["model", "mode", "eager ms", "ms", "eager/", "first s", "memory", "error"], WIDTHS)
    ratios: dict[str, list[float]] = {}
    for name in options.models:
        for mode in options.modes:
            if name in INFERENCE_ONLY and mode == "training":
                continue
            for compiler in ["pliant", *["peer"] * options.peer]:
                seen = in_a_process(name, mode, compiler, options.opt, options.cache)
                label = name if compiler == "pliant" else "  torch.compile"
                if "failed" in seen:
                    print_row([label, mode, seen["failed"]], WIDTHS)
                    continue
                ratio = seen["eager"] / seen["compiled"]
                ratios.setdefault(compiler, []).append(ratio)
                numbers = [seen["eager"], seen["compiled"], ratio, seen["first"], seen["memory"]]
                print_row([label, mode, *(f"{n:.2f}" for n in numbers), f"{seen['error']:.2f}"], WIDTHS)
    for compiler, seen in ratios.items():
        print(f"{compiler}: {geometric_mean(seen):.2f} times eager over {len(seen)} rows")


if __name__ == "__main__":
    main()

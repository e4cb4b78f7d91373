"""Time that simplifying takes while BERT-base is compiled with symbolic sizes: `python -m benchmarks.simplification`.

In:     the model with random weights; `--training` for forward and backward.
Out:    a row: expressions simplified (each once for every state of the facts), the milliseconds that took in all, and
        the seconds of the whole first call.
Holds:  what a table of earlier answers gives at once counts neither as an expression nor as time.
"""

import argparse
import time

import torch

import pliant
from benchmarks.children import fresh_cache, print_row
from benchmarks.models import hugging_face, labelled_ids
from pliant import config
from pliant.symbolic.expr import Expr
from pliant.symbolic.facts import Facts

WIDTHS = (14, 12, 14, 8, 14)


class Watch:
    """Stands in for `Facts.simplify` and times what is not known yet, the outermost call only."""

    def __init__(self) -> None:
        self.simplify, self.count, self.seconds, self.inside = Facts.simplify, 0, 0.0, False

    def __call__(self, facts: Facts, e: Expr) -> Expr:
        known = facts._simple_memo.get(e)
        if known is not None:
            return known
        if self.inside or not e.free:
            return self.simplify(facts, e)
        self.inside, self.count = True, self.count + 1
        start = time.perf_counter()
        try:
            return self.simplify(facts, e)
        finally:
            self.seconds += time.perf_counter() - start
            self.inside = False


def measure(training: bool) -> tuple[Watch, float]:
    base = hugging_face(
        "BertForMaskedLM", "BertConfig", hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
        intermediate_size=3072, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = base().train(training)
    compiled, inputs = pliant.compile(model, dynamic=True), labelled_ids(2, 16)
    watch = Watch()
    Facts.simplify = lambda facts, e: watch(facts, e)  # type: ignore[method-assign]
    start = time.perf_counter()
    with torch.set_grad_enabled(training):
        loss = compiled(**inputs)["loss"]
    if training:
        loss.backward()
    whole = time.perf_counter() - start
    Facts.simplify = watch.simplify  # type: ignore[method-assign]
    return watch, whole


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--training", action="store_true")
    options = parser.parse_args()
    with fresh_cache() as cache, config.patch(cache_dir=str(cache)):
        watch, whole = measure(options.training)
    print_row(["mode", "expressions", "simplified ms", "limit", "first call s"], WIDTHS)
    mode = "training" if options.training else "inference"
    print_row([mode, watch.count, f"{1e3 * watch.seconds:.1f}", 50, f"{whole:.2f}"], WIDTHS)
    raise SystemExit(watch.seconds > 0.05)


if __name__ == "__main__":
    main()

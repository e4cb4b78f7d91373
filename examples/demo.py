"""Compile a transformer and a convolutional net, run them with changing sizes, and compare with eager.

    python examples/demo.py [--quick] [--threads N]

Each row of the table is one model in inference or training: medians of eager and compiled calls made in turn, the
seconds spent compiling over all sizes, how often a size compiled again, and the largest error of outputs, gradients
and buffers relative to the largest value of the tensor.
"""

import argparse
import copy
import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn

import pliant


class Residual(nn.Module):
    """Two convolutions beside a shortcut; the first may halve the image."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.silu(self.norm1(self.first(x)))
        return nn.functional.silu(self.norm2(self.second(y)) + self.shortcut(x))


class ConvNet(nn.Module):
    """A small residual network for images. Its activations are smooth: beside a kink rounding alone decides a gradient."""

    def __init__(self, width: int = 32, classes: int = 100) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, padding=1), nn.BatchNorm2d(width), nn.SiLU())
        widths = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2), (4 * width, 4 * width, 1)]
        self.blocks = nn.Sequential(*(Residual(*w) for w in widths))
        self.head = nn.Linear(4 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def transformer(quick: bool) -> nn.Module:
    """BERT with random weights."""
    # transformers imports torchvision wherever it is installed: slow, not needed here, and it may not fit this torch.
    sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=4096, hidden_size=256, num_hidden_layers=2 if quick else 6, num_attention_heads=4,
        intermediate_size=1024, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForMaskedLM(config)


def tokens(batch: int, length: int) -> dict[str, Tensor]:
    ids = torch.randint(10, 4096, (batch, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def images(batch: int, side: int) -> dict[str, Tensor]:
    return {"images": torch.randn(batch, 3, side, side)}


@dataclass
class Case:
    """One row: a model, how its inputs are made, the sizes it meets."""

    name: str
    model: Callable[[bool], nn.Module]
    inputs: Callable[..., dict[str, Tensor]]
    sizes: list[tuple[int, int]]
    training: bool

    @property
    def title(self) -> str:
        return f"{self.name} {'training' if self.training else 'inference'}"


CASES = [
    Case("BERT", transformer, tokens, [(4, 128), (2, 96), (8, 64), (3, 160)], False),
    Case("BERT", transformer, tokens, [(4, 128), (2, 96), (8, 64), (3, 160)], True),
    Case("ConvNet", lambda quick: ConvNet(), images, [(8, 64), (4, 64), (12, 96), (6, 80)], False),
    Case("ConvNet", lambda quick: ConvNet(), images, [(8, 64), (4, 64), (12, 96), (6, 80)], True),
]


@dataclass
class Row:
    """What was measured for a case, over all its sizes."""

    eager: list[float] = field(default_factory=list)
    compiled: list[float] = field(default_factory=list)
    compile_seconds: float = 0.0
    recompiles: int = 0
    error: float = 0.0

    @property
    def speedup(self) -> float:
        return statistics.geometric_mean(e / c for e, c in zip(self.eager, self.compiled))


def output_of(result: object) -> Tensor:
    return result if isinstance(result, Tensor) else result.logits


def call(function: Callable[..., object], inputs: dict[str, Tensor], training: bool) -> Tensor:
    """One inference call, or forward and backward."""
    if not training:
        with torch.no_grad():
            return output_of(function(**inputs))
    result = function(**inputs)
    loss = result.loss if hasattr(result, "loss") else nn.functional.cross_entropy(result, fixed_targets(result))
    loss.backward()
    return output_of(result).detach()


def fixed_targets(logits: Tensor) -> Tensor:
    return torch.arange(len(logits)) % logits.shape[-1]


def state(model: nn.Module) -> list[Tensor]:
    """Gradients and buffers: what a call leaves behind in the model."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return [*grads, *model.buffers()]


def relative_error(got: Tensor, wanted: Tensor, scale: float) -> float:
    if not wanted.is_floating_point():
        return 0.0 if torch.equal(got, wanted) else float("inf")
    return float((got - wanted).abs().max()) / max(float(wanted.abs().max()), scale)


def largest_error(got: list[Tensor], wanted: list[Tensor]) -> float:
    """Gradients that are zero but for rounding are measured against the largest tensor's scale."""
    scale = 1e-3 * max((float(w.abs().max()) for w in wanted if w.is_floating_point()), default=1.0)
    return max(relative_error(g, w, scale) for g, w in zip(got, wanted, strict=True))


def start_afresh(eager: nn.Module, ours: nn.Module) -> None:
    """No gradients, the same buffers in both."""
    ours.load_state_dict(eager.state_dict())
    for p in [*eager.parameters(), *ours.parameters()]:
        p.grad = None


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(case: Case, row: Row, quick: bool) -> Iterator[str]:
    """Fill the row; yields before each step what is being done."""
    torch.manual_seed(0)
    eager = case.model(quick).train(case.training)
    ours = copy.deepcopy(eager)
    compiled = pliant.compile(ours)
    before = pliant.stats()["recompiles"]
    for size in case.sizes:
        inputs = case.inputs(*size)
        run_eager = functools.partial(call, eager, inputs, case.training)
        run_compiled = functools.partial(call, compiled, inputs, case.training)
        yield f"compiling for {size}"
        wanted = run_eager()
        start = time.perf_counter()
        got = run_compiled()
        first = time.perf_counter() - start
        row.error = max(row.error, largest_error([got, *state(ours)], [wanted, *state(eager)]))
        yield f"measuring {size}"
        e, c = in_turn(run_eager, run_compiled, 3 if quick else 9)
        row.eager.append(e)
        row.compiled.append(c)
        row.compile_seconds += max(0.0, first - c)
        row.recompiles = pliant.stats()["recompiles"] - before
        start_afresh(eager, ours)
    yield "done"


def in_turn(a: Callable[[], object], b: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median seconds of both, called alternately so that a busy machine hits both alike."""
    a(), b()
    times = [(seconds(a), seconds(b)) for _ in range(rounds)]
    return statistics.median(t[0] for t in times), statistics.median(t[1] for t in times)


def table(rows: list[tuple[Case, Row]]) -> Table:
    made = Table(title=f"Four sizes each; torch {torch.__version__}, {torch.get_num_threads()} threads")
    made.add_column("model", no_wrap=True)
    for heading in ("eager ms", "ours ms", "speedup", "compile s", "recompiles", "error"):
        made.add_column(heading, justify="right")
    for case, row in rows:
        made.add_row(
            case.title,
            f"{1e3 * statistics.fmean(row.eager):.1f}",
            f"{1e3 * statistics.fmean(row.compiled):.1f}",
            f"[{'green' if row.speedup >= 1 else 'red'}]{row.speedup:.2f} x[/]",
            f"{row.compile_seconds:.2f}",
            str(row.recompiles),
            f"{row.error:.0e}",
        )
    return made


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compile two models and compare with eager.")
    parser.add_argument("--quick", action="store_true", help="smaller models, fewer rounds")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    console = Console()
    rows: list[tuple[Case, Row]] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        for case in CASES:
            task = progress.add_task(case.title, total=2 * len(case.sizes) + 1)
            row = Row()
            for what in measure(case, row, options.quick):
                progress.update(task, advance=1, description=f"{case.title}: {what}")
            rows.append((case, row))
    console.print(table(rows))
    stats = pliant.stats()
    console.print(
        f"{stats['graphs']} graphs, {stats['graph_breaks']} graph breaks, {stats['fallbacks']} fallbacks; "
        "seconds by stage: " + ", ".join(f"{k} {v:.2f}" for k, v in stats["seconds"].items())
    )
    worst = max(row.error for _, row in rows)
    if worst > 1e-3:
        console.print(f"[red]a result differs from eager by {worst:.1e}[/]")
    return int(worst > 1e-3)


if __name__ == "__main__":
    sys.exit(main())

"""How long exporting takes: `python -m benchmarks.export [--peer]`.

Each model is built in a process of its own and exported once, its varying sizes left to the compiler, after a trivial model
that loads what the compiler needs. Seconds of the process and of the clock; `/peer` is pliant's share of torch.export's
processor time. Then the first call of the exported program in the same process, compared with eager.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.children import print_row
from benchmarks.models import MODELS

WIDTHS = (12, 10, 10, 10, 10, 10)


def varying(one: dict[str, Tensor], other: dict[str, Tensor], auto: object) -> dict[str, dict[int, object]]:
    """`dynamic_shapes`: every size that differs between two calls."""
    return {
        name: {dim: auto for dim, (a, b) in enumerate(zip(one[name].shape, other[name].shape, strict=True)) if a != b}
        for name in one
    }


def export_by(compiler: str) -> Callable[[nn.Module, dict[str, Tensor], dict[str, Tensor]], Callable[..., object]]:
    """A function of a model and two calls' inputs that exports it by the first."""
    if compiler == "pliant":
        import pliant

        return lambda model, one, two: pliant.export(model, (), one, dynamic_shapes=varying(one, two, pliant.AUTO))
    from torch.export import Dim, export

    return lambda model, one, two: export(model, (), one, dynamic_shapes=varying(one, two, Dim.AUTO)).module()


def measure(compiler: str, name: str) -> dict[str, float]:
    """Seconds of one export in this process, and how far the program's results are from eager's."""
    export, chosen = export_by(compiler), MODELS[name]
    trivial = {"input": torch.ones(2, 4)}
    export(nn.Linear(4, 4).eval(), trivial, {"input": torch.ones(3, 4)})
    torch.manual_seed(0)
    model = chosen.build().eval()
    one, two = (chosen.inputs(*size) for size in chosen.sizes[:2])
    with torch.no_grad():
        clock, process = time.perf_counter(), time.process_time()
        program = export(model, one, two)
        seconds, of_process = time.perf_counter() - clock, time.process_time() - process
        found, wanted = first_tensor(program(**two)), first_tensor(model(**two))
    return {"seconds": seconds, "process": of_process, "error": float((found - wanted).abs().max())}


def first_tensor(value: Any) -> Tensor:
    while not isinstance(value, Tensor):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return value


def child(compiler: str, name: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.export", "--compiler", compiler, "--models", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:100]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--peer", action="store_true", help="measure torch.export too")
    parser.add_argument("--compiler", choices=["pliant", "peer"], help="one measurement in this process")
    options = parser.parse_args()
    if options.compiler:
        print(json.dumps(measure(options.compiler, options.models[0])))
        return
    print_row(["model", "pliant", "process", "error", "peer", "/peer"], WIDTHS)
    for name in options.models:
        own = child("pliant", name)
        peer = child("peer", name) if options.peer else {}
        if "failed" in own or "failed" in peer:
            print_row([name, own.get("failed", ""), peer.get("failed", "")], WIDTHS)
            continue
        row = [name, own["seconds"], own["process"], f"{own['error']:.0e}"]
        print_row([*row, peer["process"], own["process"] / peer["process"]] if peer else row, WIDTHS)


if __name__ == "__main__":
    main()

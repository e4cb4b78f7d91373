"""Models as ONNX (run by onnxruntime) and as PyTorch's programs (saved and loaded), at five sizes: as eager.

    python -m tests.exporting.round_trips [--models bert] [--registry FILE.py] [--forms onnx torch]

A registry is as for `tests.exporting.models`.
"""

import argparse
import copy
import io
import sys
import tempfile
from pathlib import Path

import torch
from tests.exporting.models import exported, models_of, own_models
from torch.utils import _pytree as pytree

import pliant
from pliant.patterns import Pattern


def by_onnx(program):
    """What calls the ONNX model of it: results' tensors and numbers, constants left out. It writes what the program does."""
    import onnx
    import onnxruntime

    folder = tempfile.TemporaryDirectory()
    path = str(Path(folder.name) / "model.onnx")
    program.to_onnx(path)
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    state = {}

    def call(*args, **kwargs):
        given = pytree.tree_leaves((args, kwargs))
        tensors = {one.name: given[one.leaf].numpy() for one in program.inputs if one.leaf is not None}
        made = session.run(None, tensors | state)
        found = {one.name: torch.from_numpy(value) for one, value in zip(session.get_outputs(), made, strict=True)}
        for one in program.inputs:
            if one.mutated and one.leaf is None:
                state[one.name] = found.pop(f"new_{one.name}").numpy()
            elif one.mutated:
                given[one.leaf].copy_(found.pop(f"new_{one.name}"))
        return list(found.values())

    call.folder = folder
    return call


def by_torch(program):
    """PyTorch's program of it, written and read again."""
    file = io.BytesIO()
    torch.export.save(program.to_exported_program(), file)
    file.seek(0)
    module = torch.export.load(file).module()
    return lambda *args, **kwargs: [one for one in pytree.tree_leaves(module(*args, **kwargs)) if one is not None]


def replaced(program):
    """The program with PyTorch's operators in place of those of libraries, which ONNX has no form for."""
    operators = [one for one in program.operators() if one in PATTERNS]
    return program.transform(*(PATTERNS[one]() for one in operators)) if operators else program


def _groups():
    example = (torch.randn(6, 8), torch.randn(2, 8, 4), torch.tensor([2, 6], dtype=torch.int32))
    return Pattern(torch.ops.transformers.grouped_mm_fallback, lambda rows, weights, ends: torch._grouped_mm(rows, weights, offs=ends), example=example)


PATTERNS = {"transformers.grouped_mm_fallback.default": _groups}
FORMS = {"onnx": lambda program: by_onnx(replaced(program)), "torch": by_torch}


def difference(fn, call, calls):
    """The largest difference from eager, relative to the largest element of each result and argument behind the call."""
    worst = 0.0
    for given in calls:
        mine, (args, kwargs) = copy.deepcopy(given), given
        with torch.no_grad():
            found = [*call(*mine[0], **mine[1]), *pytree.tree_leaves(mine)]
            wanted = [torch.as_tensor(one) for one in pytree.tree_leaves((fn(*args, **kwargs), given)) if one is not None]
        for a, b in zip(found, wanted, strict=True):
            a, b = torch.as_tensor(a).double(), b.double()
            assert a.shape == b.shape
            if a.numel():
                worst = max(worst, float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--registry")
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=list(FORMS))
    options, failed = parser.parse_args(), 0
    for name, sizes, make in models_of(options.registry) if options.registry else own_models():
        if options.models and name not in options.models:
            continue
        fn, inputs = make()
        calls = [inputs(size) for size in sizes]
        try:
            program, _ = exported(fn, calls if len(calls) > 1 else calls * 2, sizes[0])
        except pliant.PliantError as error:
            print(f"{name:24} is not exported: {str(error).splitlines()[0]}", flush=True)
            continue
        for form in options.forms:
            try:
                worst = difference(fn, FORMS[form](program), [inputs(size) for size in sizes])
                print(f"{name:24} {form:6} differs by {worst:.1e}", flush=True)
                failed += not worst < 1e-4
            except Exception as error:
                print(f"{name:24} {form:6} {type(error).__name__}: {' '.join(str(error).split())[:400]}", flush=True)
                failed += 1
    sys.exit(failed)


if __name__ == "__main__":
    main()

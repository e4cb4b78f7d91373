"""Export models with batch and length dynamic, save them, load them in a new process, run them at five sizes: as eager.

    python -m tests.exporting.models --models bert llama
    python -m tests.exporting.models --zoo hf/whisper timm/swin_transformer

Another registry of models takes the place of the project's own with `--registry FILE.py`: a module with `MODELS`, by name
objects with `sizes` and `build()`, whose result has `fn` and `inputs(size) -> (args, kwargs)`.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.utils import _pytree as pytree

import pliant
from pliant.exporting.trees import is_plain, name_of

LOADING = """
import importlib, sys, torch, pliant
from benchmarks import zoo_models
from tests.exporting import models
zoo_models.import_libraries(())  # what models' modules import
modules, libraries, classes, paths = sys.argv[1].split(), sys.argv[2].split(), sys.argv[3].split(), sys.argv[4:]
for module in modules:
    importlib.import_module(module)
classes = [getattr(importlib.import_module(module), name) for module, _, name in (one.partition(":") for one in classes)]
for path in paths:
    program = pliant.load(path, libraries=libraries, classes=classes)
    calls = torch.load(path + ".calls", weights_only=False)
    torch.save([list(models.leaves_of(program(*args, **kwargs))) for args, kwargs in calls], path + ".found")
"""


def dynamic(one, other, size):
    """Sizes of arguments that differ between two calls, by what they are of the first call's size."""
    if isinstance(one, torch.Tensor):
        names = {size[0]: pliant.Dim("batch"), **({size[1]: pliant.Dim("length")} if len(size) > 1 else {})}
        pairs = enumerate(zip(one.shape, other.shape, strict=True))
        return {dim: names.get(a, pliant.AUTO) for dim, (a, b) in pairs if a != b} or None
    if isinstance(one, dict):
        return {key: dynamic(one[key], other[key], size) for key in one}
    if isinstance(one, (list, tuple)):
        return [dynamic(a, b, size) for a, b in zip(one, other, strict=True)]
    return None


def exported(fn, calls, size):
    """The program, and how long exporting took."""
    from pliant.exporting.dims import arguments_of

    (args, kwargs), (others, named) = calls[:2]
    said = dynamic(arguments_of(fn, args, kwargs), arguments_of(fn, others, named), size)
    start = time.perf_counter()
    program = pliant.export(fn, args, kwargs, dynamic_shapes=said)
    return program, time.perf_counter() - start


def exported_as_advised(fn, calls, size):
    """The same; and that the model had to be called once before, if the error says so and that is enough."""
    try:
        return *exported(fn, calls, size), ""
    except pliant.PliantError as error:
        if error.kind != "effect":
            raise
        args, kwargs = calls[0]
        with torch.no_grad():
            fn(*args, **kwargs)
        return *exported(fn, calls, size), " after a call"


def classes_of(value):
    """Modules that register the classes of a result."""
    found = {type(value).__module__} - {"builtins", "torch"}
    children = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return found.union(*map(classes_of, children))


def differences(programs, folder):
    """For (name, program, eager function, calls): the largest difference of results in a process that loaded the program."""
    wanted, modules, libraries, classes = {}, set(), set(), set()
    for name, program, fn, calls in programs:
        path = Path(folder) / name
        program.save(path)
        torch.save(calls, f"{path}.calls")
        with torch.no_grad():
            wanted[path] = [fn(*args, **kwargs) for args, kwargs in calls]
        modules = modules.union(*map(classes_of, wanted[path]))
        libraries |= {name.partition(".")[0] for name in program.operators()} - {"aten"}
        classes |= {name_of(cls) for cls in program.form.objects}
        modules |= {type(fn).__module__} if "transformers" in libraries else set()  # which registers its operators
    command = [sys.executable, "-c", LOADING, " ".join(sorted(modules)), " ".join(sorted(libraries)), " ".join(sorted(classes)), *map(str, wanted)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    for path, trees in wanted.items():
        yield path.name, max(map(_difference, trees, torch.load(f"{path}.found", weights_only=False)))


def leaves_of(tree):
    """Leaves of a result, and of the attributes of objects in it."""
    for leaf in pytree.tree_leaves(tree):
        yield from leaves_of(vars(leaf)) if is_plain(type(leaf)) else [leaf]


def _difference(tree, found):
    worst = 0.0
    for a, b in zip(leaves_of(tree), found, strict=True):
        assert type(a) is type(b)
        if isinstance(a, torch.Tensor):
            worst = max(worst, float((a.double() - b.double()).abs().max()) if a.numel() else 0.0)
    return worst


def own_models():
    from benchmarks.models import MODELS

    for name, model in MODELS.items():
        def make(model=model):
            torch.manual_seed(0)
            return model.build().eval(), lambda size: ((), model.inputs(*size))

        yield name, model.sizes, make


def models_of(file):
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location("models", file)
    module = sys.modules["models"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, one in module.MODELS.items():
        def make(one=one):
            case = one.build()
            case.set_mode(False)
            return case.fn, case.inputs

        yield name, one.sizes, make


def of_the_zoo(names):
    from benchmarks import zoo_models

    zoo_models.import_libraries({name.partition("/")[0] for name in names})
    for name in names:
        try:
            case = zoo_models.find_case(name)
        except zoo_models.NoCase as error:
            print(f"{name:16} no case: {str(error)[:150]}", flush=True)
            continue

        def make(case=case):
            model = case.build().eval()
            return model, lambda size: ((), case.inputs(model, size))

        yield name.replace("/", "_"), (*case.sizes, *MORE_SIZES), make


MORE_SIZES = ((5, 20), (1, 16))  # of the zoo's models, which are looked for with three


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--registry")
    parser.add_argument("--zoo", nargs="*")
    options = parser.parse_args()
    failed = 0
    rows = of_the_zoo(options.zoo) if options.zoo else models_of(options.registry) if options.registry else own_models()
    for name, sizes, make in rows:
        if options.models and name not in options.models:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                fn, inputs = make()
                calls = [inputs(size) for size in sizes]
                program, seconds, after = exported_as_advised(fn, calls if len(calls) > 1 else calls * 2, sizes[0])
                fresh = [inputs(size) for size in sizes]
                ((_, worst),) = differences([(name, program, fn, fresh)], folder)
                print(f"{name:16} {len(program.graph.nodes):5} nodes, exported in {seconds:.2f} s{after}, differs by {worst:.1e}", flush=True)
                failed += worst > 1e-5
            except (pliant.PliantError, subprocess.CalledProcessError, ImportError, NotImplementedError) as error:
                print(f"{name:16} {type(error).__name__}: {' '.join(str(error).split())[:400]}", flush=True)
                failed += 1
    sys.exit(failed)


if __name__ == "__main__":
    main()

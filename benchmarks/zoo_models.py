"""The models of the zoo: every one that a library can make of a small configuration, found by the library's own lists.

In:     a name such as `hf/bert`, `timm/resnet`, `pyg/GATConv` or `diffusers/UNet2DModel`.
Out:    `names()`: all of them in an order that puts a spread of families first; `find_case(name)`: how to build one
        and its inputs at several sizes, checked by calling it.
"""

import contextlib
import copy
import importlib
import importlib.util
import inspect
import itertools
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import nn

from benchmarks import zoo_diffusers
from benchmarks.zoo_inputs import SIZES, Size, recipes
from benchmarks.zoo_shrink import ladder

LARGEST = 60_000_000  # parameters
PATIENCE = 25.0  # seconds of looking for a case, of the processor
_libraries: list[torch.library.Library] = []
Builder = Callable[[], nn.Module]


@dataclass(frozen=True)
class Case:
    """One model that runs: how to build it, what to call it with, and how its kind was found."""

    build: Builder
    inputs: Callable[[nn.Module, Size], dict[str, Any]]
    sizes: tuple[Size, ...]
    what: str


SHARED = (
    ("hf", "transformers.modeling_utils"), ("hf", "transformers.models.auto.modeling_auto"),
    ("timm", "timm"), ("pyg", "torch_geometric.nn"),
)  # fmt: skip


class NoCase(Exception):
    """No way was found to run this model; the text says what was seen last."""


def import_libraries(libraries: Iterable[str]) -> None:
    """Imports once what all models of these libraries share. torchvision's wheel for GPUs has no native part beside a CPU
    build of PyTorch; its Python part needs the two schemas only."""
    with contextlib.suppress(ImportError):
        if torch.version.cuda is None and importlib.util.find_spec("torchvision") and not _libraries:
            _libraries.append(torch.library.Library("torchvision", "FRAGMENT"))
            for operator in ("nms", "qnms"):
                with contextlib.suppress(RuntimeError):
                    _libraries[0].define(operator + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        importlib.import_module("torchvision")
    for library, name in SHARED:
        if library in libraries:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def names(libraries: Iterable[str]) -> list[str]:
    found = [f"{library}/{name}" for library in libraries for name in LIBRARIES[library][0]()]
    return sorted(found, key=lambda name: random.Random(name).random())


def find_case(name: str) -> Case:
    library, _, which = name.partition("/")
    limit(PATIENCE, lambda: NoCase(f"no case within {PATIENCE:.0f} s"))
    try:
        return LIBRARIES[library][1](which)
    except NoCase:
        raise
    except Exception as error:  # of the library
        raise NoCase(f"{type(error).__name__}: {error}") from error
    finally:
        limit(0, lambda: NoCase())


def limit(seconds: float, error: Callable[[], BaseException]) -> None:
    """Raise this error in the main thread once the process has taken so much of the processor, which other processes do
    not shorten; 0: never."""

    def over(*_: object) -> None:
        raise error()

    signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def first_that_runs(candidates: Iterator[tuple[str, Builder]], recipes: Callable[[nn.Module], Iterator[Any]] = recipes) -> Case:
    """The first candidate that takes one of its recipes at all sizes. Where none does, what the first one that could be
    built said at last: later ones are larger, and refuse what it refused."""
    why, refused, end = "no candidate", "", time.process_time() + PATIENCE
    for what, build in candidates:
        try:
            if too_large(build):
                raise NoCase("too large")
            model = build().eval()
        except Exception as error:
            why = f"{what}: {type(error).__name__}: {error}"
            continue
        for recipe in recipes(model):
            if time.process_time() > end:
                raise NoCase(refused or why)
            trouble = refusal(model, recipe)
            if trouble is None:
                return Case(build, recipe.inputs, SIZES, what)
            why = f"{what} {list(recipe.given)}: {trouble}"
        refused = refused or why
    raise NoCase(refused or why)


def too_large(build: Callable[[], nn.Module]) -> bool:
    with contextlib.suppress(NotImplementedError, RuntimeError), torch.device("meta"):  # some need more than shapes
        return sum(p.numel() for p in build().parameters()) > LARGEST
    return False


def refusal(model: nn.Module, recipe: Any) -> str | None:
    """Why the model does not take these inputs: in eager, and as compiled code, where a library may go other ways."""
    for size in SIZES:
        try:
            with torch.no_grad():
                model(**recipe.inputs(model, size))
                if size == SIZES[0]:
                    with mock.patch("torch.compiler.is_compiling", lambda: True):
                        model(**recipe.inputs(model, size))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return None


# ---- transformers

# The head that is taken, where there are several; the bare model is last.
HEADS = (
    "MULTIMODAL_LM IMAGE_TEXT_TO_TEXT SEQ_TO_SEQ_CAUSAL_LM SPEECH_SEQ_2_SEQ CAUSAL_LM MASKED_LM OBJECT_DETECTION "
    "ZERO_SHOT_OBJECT_DETECTION UNIVERSAL_SEGMENTATION SEMANTIC_SEGMENTATION IMAGE_CLASSIFICATION VIDEO_CLASSIFICATION CTC "
    "AUDIO_CLASSIFICATION DEPTH_ESTIMATION KEYPOINT_DETECTION KEYPOINT_MATCHING IMAGE_TO_IMAGE TIME_SERIES_PREDICTION "
    "MASK_GENERATION TABLE_QUESTION_ANSWERING QUESTION_ANSWERING PRETRAINING BACKBONE TEXT_TO_SPECTROGRAM TEXT_TO_WAVEFORM "
    "ZERO_SHOT_IMAGE_CLASSIFICATION"
).split()


def hugging_face_names() -> list[str]:
    from transformers.models.auto import configuration_auto, modeling_auto

    mappings = [v for k, v in vars(modeling_auto).items() if k.startswith("MODEL_") and k.endswith("_NAMES")]
    return [n for n in configuration_auto.CONFIG_MAPPING_NAMES if any(n in m for m in mappings)]


def hugging_face(which: str) -> Case:
    return first_that_runs(hugging_face_candidates(which))


def hugging_face_candidates(which: str) -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    import transformers
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[which]
    tables = [f"MODEL_FOR_{head}_MAPPING_NAMES" for head in HEADS]
    more = [t for t in vars(modeling_auto) if t.startswith("MODEL_FOR_") and t.endswith("_MAPPING_NAMES")]
    tables += [*(t for t in more if t not in tables), "MODEL_MAPPING_NAMES"]
    heads = dict.fromkeys(h for t in tables if (h := getattr(modeling_auto, t, {}).get(which)))
    for head in [h if isinstance(h, str) else h[0] for h in heads][:2] + list(heads)[-1:]:
        for level, fields in enumerate(ladder(fitted(kind().to_dict()))):

            def build(head: Any = head, fields: Any = fields) -> nn.Module:
                torch.manual_seed(0)
                config = kind.from_dict(copy.deepcopy(fields))
                return getattr(transformers, head if isinstance(head, str) else head[0])(config).float()

            yield f"{head} at level {level}", build


def fitted(fields: dict[str, Any]) -> dict[str, Any]:
    """Images of a few whole patches: what a processor would have made of any image."""
    patch = fields.get("patch_size")
    if isinstance(patch, int) and isinstance(fields.get("image_size"), int) and "window_size" not in fields:
        fields["image_size"] = min(fields["image_size"], patch * max(2, 64 // patch))
    return {k: fitted(v) if isinstance(v, dict) else v for k, v in fields.items()}


# ---- timm: one small member of each family

SMALL = "test_ atto femto pico nano tiny xxs xx_small lite mini _xs x_small small mobile _s 18 b0 _t".split()


def timm_names() -> list[str]:
    if not importlib.util.find_spec("timm"):
        return []
    import timm

    return [m for m in timm.list_modules() if timm.list_models(module=m)]


def timm_case(which: str) -> Case:
    import timm

    def smallness(name: str) -> tuple[int, int]:
        return next((i for i, tag in enumerate(SMALL) if tag in name), len(SMALL)), len(name)

    def candidates() -> Iterator[tuple[str, Callable[[], nn.Module]]]:
        for name in sorted(timm.list_models(module=which), key=smallness)[:3]:
            for options in ({"img_size": SIDE_OF_TIMM}, {}):

                def build(name: str = name, options: Any = options) -> nn.Module:
                    torch.manual_seed(0)
                    return timm.create_model(name, pretrained=False, **options)

                yield name, build

    for what, build in candidates():
        try:
            model = build().eval()
        except Exception:
            continue
        side = getattr(model, "pretrained_cfg", {}).get("input_size", (3, 224, 224))[-1]
        for tried in dict.fromkeys((SIDE_OF_TIMM, 128, side)):

            def inputs(model: nn.Module, size: Size, tried: int = tried) -> dict[str, Any]:
                torch.manual_seed(1)
                return {"x": torch.randn(size[0], 3, tried, tried)}

            try:
                with torch.no_grad():
                    model(**inputs(model, SIZES[0]))
            except Exception:
                continue
            return Case(build, inputs, SIZES, what)
    raise NoCase("no member runs")


SIDE_OF_TIMM = 64


# ---- PyTorch Geometric: every convolution with its defaults


def geometric_names() -> list[str]:
    if not importlib.util.find_spec("torch_geometric"):
        return []
    from torch_geometric.nn import conv, models

    basic = ["GCN", "GraphSAGE", "GIN", "GAT", "PNA", "EdgeCNN"]
    return [n for n in conv.classes if n != "MessagePassing"] + [n for n in basic if hasattr(models, n)]


# Arguments of their constructors and of their calls.
BUILT_WITH = {
    "num_layers": 2, "dim": 1, "kernel_size": 3, "num_relations": 3, "K": 2, "heads": 2, "edge_dim": 4, "alpha": 0.1,
    "filter_size": 2, "aggregators": ["mean", "max"], "scalers": ["identity", "amplification"], "first_aggr": True,
    "deg": torch.tensor([0, 2, 4, 4, 2]), "num_node_types": 2, "num_edge_types": 3, "edge_type_emb_dim": 4,
    "edge_attr_emb_dim": 4,
}  # fmt: skip


def geometric_inputs(model: nn.Module, size: Size, edge_width: int) -> dict[str, Any]:
    torch.manual_seed(1)
    nodes, edges = 8 * size[1], 24 * size[1]
    made = {
        "x": torch.randn(nodes, 16), "edge_index": torch.randint(nodes, (2, edges)), "pos": torch.randn(nodes, 3),
        "pos_edge_index": torch.randint(nodes, (2, edges)), "neg_edge_index": torch.randint(nodes, (2, edges)),
        "hyperedge_index": torch.randint(nodes, (2, edges)),
        "normal": torch.randn(nodes, 3), "edge_attr": torch.randn(edges, edge_width or 4),
        "edge_type": torch.randint(3, (edges,)), "node_type": torch.randint(2, (nodes,)), "x_0": torch.randn(nodes, 16),
    }  # fmt: skip
    found = inspect.signature(model.forward).parameters
    given = {"x", "edge_index", "edge_type"} | ({"edge_attr"} if edge_width else set())
    return {n: v for n, v in made.items() if n in found and (n in given or found[n].default is inspect.Parameter.empty)}


def geometric_case(which: str) -> Case:
    from torch_geometric import nn as geometric

    kind = getattr(geometric, which)
    needed = [
        n for n, p in inspect.signature(kind.__init__).parameters.items()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and n != "self"
    ]  # fmt: skip
    options = {n: 16 if "channels" in n or n == "channels" else BUILT_WITH.get(n) for n in needed}
    why = ""
    for width, edges in itertools.product((16, 32), (0, 4, 16)):  # of a network of its own: a node, or a pair

        def build(width: int = width) -> nn.Module:
            torch.manual_seed(0)
            network = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 16))
            return kind(**copy.deepcopy(options) | ({"nn": network} if "nn" in options else {}))  # type: ignore[no-any-return]

        def inputs(model: nn.Module, size: Size, edges: int = edges) -> dict[str, Any]:
            return geometric_inputs(model, size, edges)

        try:
            with torch.no_grad():
                model = build().eval()
                model(**inputs(model, SIZES[0]))
            return Case(build, inputs, SIZES, which)
        except Exception as error:
            why = why or f"{type(error).__name__}: {error}"
    raise NoCase(why)


# ---- diffusers: models by their constructors' defaults, made small by the same rules


def diffusers_case(which: str) -> Case:
    return first_that_runs(zoo_diffusers.builds(which), zoo_diffusers.recipes)


Library = tuple[Callable[[], list[str]], Callable[[str], Case]]
LIBRARIES: dict[str, Library] = {
    "hf": (hugging_face_names, hugging_face),
    "timm": (timm_names, timm_case),
    "pyg": (geometric_names, geometric_case),
    "diffusers": (zoo_diffusers.names, diffusers_case),
}

if __name__ == "__main__":
    import_libraries(LIBRARIES)
    for each in sys.argv[1:] or names():
        print(each, find_case(each).what if sys.argv[1:] else "")

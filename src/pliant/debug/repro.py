"""Write a script that repeats a failure: the graph, inputs of the same kind, and the comparison with eager.

In:     an `fx.GraphModule`, example inputs (tensors real or fake, numbers, symbolic numbers) and the exception.
Out:    the path of a script that runs by itself, in `<cache>/repros/`; None if nothing could be written.
Holds:  never raises and never reads a tensor's values: data in the script is random, so nothing private is kept.

`crash_report` is the border where a crash of a stage becomes an `InternalError` that names the stage and the script.
"""

import contextlib
import itertools
import os
import sys
import textwrap
import time
import traceback
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

from pliant import config
from pliant.cache.store import own_folder
from pliant.debug import events
from pliant.errors import CompileError, InternalError, NoKernels, Unsupported, UserError
from pliant.interruptions import pass_on

KEPT = 50  # newest scripts that stay in the folder
_numbers = itertools.count()

_SCRIPT = '''\
"""A graph on which Pliant failed{stage}. Run this file to see whether it still does.

{error}
"""

import torch
{imports}

DYNAMIC = {dynamic!r}  # what `dynamic=` is given
OPTIONS = {options!r}  # those that were not as they are by default


def make(shape, dtype, stride, device, requires_grad):
    """A random tensor of this kind; strides as they were."""
    size = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
    kind = torch.tensor([], dtype=dtype)
    if kind.is_floating_point() or kind.is_complex():
        data = torch.randn(size).to(dtype)
    else:
        data = torch.randint(0, 2, (size,)).to(dtype)
    return data.to(device).as_strided(shape, stride).requires_grad_(requires_grad)


def put(module, path, value):
    """module.a.b = value for the path "a.b"."""
    *parents, name = path.split(".")
    for parent in parents:
        if not hasattr(module, parent):
            setattr(module, parent, torch.nn.Module())
        module = getattr(module, parent)
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


class Repro(torch.nn.Module):
    def __init__(self):
        super().__init__()
{attributes}

{forward}


def inputs():
    torch.manual_seed(0)
    return [
{inputs}
    ]


if __name__ == "__main__":
    import pliant

    torch.manual_seed(0)
    model = Repro()
    expected = model(*inputs())
    print("eager runs")
    with pliant.config.patch(OPTIONS, strict=True):
        got = pliant.compile(model, dynamic=DYNAMIC)(*inputs())
    torch.testing.assert_close(got, expected)
    print("pliant agrees")
'''


def write_repro(
    module: fx.GraphModule,
    inputs: Sequence[object],
    error: BaseException | None = None,
    *,
    stage: str = "",
    dynamic: bool | None = None,
) -> Path | None:
    """The path of the script, or None if it could not be written. `dynamic`: None where the inputs tell."""
    try:
        text = _script(module, inputs, error, stage, dynamic)
    except Exception as trouble:  # a repro is a favour; it must not hide the failure it is about
        pass_on(trouble)
        events.record("skip", name="repro", why=repr(trouble))
        text = f'"""No script could be made: {trouble!r}\n\n{_error_text(error)}\n"""\n'
    try:
        return _write(own_folder("repros"), text)
    except OSError as trouble:
        pass_on(trouble)
        return None


@contextlib.contextmanager
def crash_report(
    module: fx.GraphModule, inputs: Sequence[object], *, name: str, where: object = None
) -> Iterator[None]:
    """Inside, an unexpected exception becomes an `InternalError`; errors that blame us get the path of a script."""
    try:
        yield
    except (UserError, Unsupported):
        raise
    except (InternalError, CompileError) as error:
        if not isinstance(error, NoKernels):
            error.do = _remedy(write_repro(module, inputs, error, stage=events.failed_stage(error)))
        raise
    except Exception as error:
        pass_on(error)
        stage = events.failed_stage(error)
        path = write_repro(module, inputs, error, stage=stage)
        raise InternalError(
            f"stage `{stage}` failed on {name}",
            kind="crash",
            where=where,
            why=f"{type(error).__name__}: {error}",
            do=_remedy(path),
        ) from error


def _remedy(path: Path | None) -> str:
    return f"report it{f' with {path}' if path else ''}; the program goes on eagerly unless strict is set"


def _write(folder: Path, text: str) -> Path:
    path = folder / f"repro-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{next(_numbers)}.py"
    with path.open("x", encoding="utf-8") as file:  # follows no link
        file.write(text)
    for old in sorted(folder.glob("repro-*.py"), key=_written_at)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def _written_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:  # another process removes old ones, too
        return 0.0


def _script(
    module: fx.GraphModule, inputs: Sequence[object], error: BaseException | None, stage: str, dynamic: bool | None
) -> str:
    graph = _with_plain_numbers(module.graph)
    code = graph.python_code("self")
    return _SCRIPT.format(
        stage=f" in stage `{stage}`" if stage else "",
        error=_error_text(error),
        imports=_imports(code.globals),
        dynamic=True if dynamic is None and any(map(is_symbolic, inputs)) else dynamic,
        options=_options(),
        attributes=textwrap.indent(_attributes(module, graph), " " * 8),
        forward=textwrap.indent(code.src.strip(), " " * 4),
        inputs=textwrap.indent("\n".join(describe_value(v) + "," for v in inputs), " " * 8),
    )


def is_symbolic(value: object) -> bool:
    """Whether it is a symbolic number, or a tensor of symbolic sizes."""
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    return any(isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)) for size in sizes)


def _options() -> dict[str, object]:
    """Options in force that generated code depends on and that are not as they are by default."""
    now = config.get()
    found = {name: now.value(name) for name, known in config.OPTIONS.items() if known.code and name not in ("verify", "stop_after")}
    return {name: value for name, value in found.items() if value != config.OPTIONS[name].default}


def _error_text(error: BaseException | None) -> str:
    if error is None:
        return "No error was raised: the result was wrong."
    text = "".join(traceback.format_exception(error))
    return text.replace("\\", "\\\\").replace('"""', "'''").strip()


def _with_plain_numbers(graph: fx.Graph) -> fx.Graph:
    """A copy in which symbolic numbers are their hints, so that it prints as Python."""
    copy = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        args, kwargs = tree_map(
            lambda a: made.get(a, a) if isinstance(a, fx.Node) else plain_number(a), (node.args, node.kwargs)
        )
        made[node] = copy.create_node(node.op, node.target, args, kwargs, node.name)
    return copy


def plain_number(value: Any) -> Any:
    """A symbolic number's hint (8 where there is none); anything else as it is."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    hint = getattr(value.node, "hint", None)
    if callable(hint):
        hint = hint()
    if hint is not None:
        return hint
    return {torch.SymInt: 8, torch.SymFloat: 8.0, torch.SymBool: True}[type(value)]


def describe_value(value: object) -> str:
    """An expression that makes a value of the same kind."""
    if isinstance(value, torch.Tensor):
        shape = tuple(plain_number(n) for n in value.shape)
        stride = tuple(plain_number(n) for n in value.stride()) if value.layout is torch.strided else None
        if stride is None:
            return f"torch.empty({shape}, dtype={value.dtype}, layout={value.layout}, device={str(value.device)!r})"
        return f"make({shape}, {value.dtype}, {stride}, {str(value.device)!r}, {value.requires_grad})"
    return repr(plain_number(value))


def _imports(names: dict[str, Any]) -> str:
    return "\n".join(line for name, value in names.items() if (line := _import(name, value)))


def _import(name: str, value: Any) -> str:
    if value is torch:
        return ""
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}"
    if isinstance(value, (torch.device, torch.dtype, float, int)):
        text = f"float({str(value)!r})" if isinstance(value, float) else repr(value)
        return f"{name} = {text if 'torch.' in text or isinstance(value, (int, float)) else 'torch.' + text}"
    if value is type(None):
        return f"{name} = type(None)"
    module, qualified = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if getattr(sys.modules.get(module), qualified, None) is value:
        return f"from {module} import {qualified} as {name}"
    return f"{name} = None  # {value!r} has no name to import it by"


def _attributes(module: fx.GraphModule, graph: fx.Graph) -> str:
    lines = []
    for node in graph.nodes:
        if node.op in ("get_attr", "call_module"):
            line = _attribute(str(node.target), _reach(module, str(node.target)))
            if line not in lines:
                lines.append(line)
    return "\n".join(lines) or "pass"


def _reach(module: object, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _attribute(path: str, value: Any) -> str:
    if isinstance(value, torch.nn.Parameter):
        made = f"torch.nn.Parameter({describe_value(value.detach())}, {value.requires_grad})"
    elif isinstance(value, torch.nn.Module):
        made = f"torch.nn.{value!r}" if hasattr(torch.nn, type(value).__name__) else f"None  # {value!r}"
    else:
        made = describe_value(value)
    return f'put(self, "{path}", {made})'

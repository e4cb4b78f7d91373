"""An exported program as PyTorch's own `torch.export.ExportedProgram`.

In:     a `Program`.
Out:    what `torch.export.export` makes of a module that runs the program's graph: parameters and buffers at the model's
        names, the call's arguments and results in the model's own trees.
Holds:  the one module that may use `torch.export`, which it imports when it is called (`tests/test_border.py`). Sizes vary as
        the program's do: a size is a Dim, or derived of one, and every fact that the program needs is in the graph, which
        checks it as it runs. What PyTorch refuses, or cannot say, is an `ExportError`.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.errors import ExportError
from pliant.exporting.program import Program
from pliant.exporting.torch_form.call import example_of, parameters_of
from pliant.exporting.torch_form.module import module_of
from pliant.exporting.torch_form.refusal import refused
from pliant.exporting.torch_form.sizes import Sizes
from pliant.exporting.torch_form.width import check_as_wide


def torch_program(program: Program) -> Any:
    """The `ExportedProgram`."""
    from torch import export

    program.form.refuse_one()
    module, sizes = module_of(program), Sizes(program)
    try:
        args, kwargs = example_of(program, sizes)
        with torch.no_grad():
            made = export.export(
                module, args, kwargs, dynamic_shapes=sizes.said(export.Dim, parameters_of(program)), strict=False,
                prefer_deferred_runtime_asserts_over_guards=True,
            )  # fmt: skip
            if program.mutated:  # writes become results that the signature names
                made = made.run_decompositions({})
    except ExportError:
        raise
    except Exception as error:
        raise refused("PyTorch does not take the program", f"torch.export says: {type(error).__name__}: {error}") from error
    check_as_wide(program, sizes, made)
    return made

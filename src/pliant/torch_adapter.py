"""Private names of torch that Pliant needs, in one place, so that a new torch release breaks one file.

In:     torch.
Out:    small functions and aliases, each with the reason why the public interface does not do.
"""

from __future__ import annotations

import os
from typing import Any

import torch


def dlpack_exchange_capsule() -> Any | None:
    """The capsule of DLPack's C exchange table (torch >= 2.10): reads a tensor's address without a Python call."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


def torch_library_folders() -> tuple[str, ...]:
    """Folders of the shared objects that torch's wheel brings: `torch/lib` and the `torch.libs` beside the package."""
    package = os.path.dirname(os.path.realpath(torch.__file__))
    return (os.path.join(package, "lib"), package + ".libs")

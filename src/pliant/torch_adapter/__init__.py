"""Private names of torch that Pliant needs, in one place, so that a new torch release breaks one folder.

In:     torch.
Out:    small functions and aliases, each with the reason why the public interface does not do: of programs' names (`names`),
        modes and settings (`modes`), tensors (`tensors`), the autograd engine (`autograd`), operators (`operators`), other
        processes, GPUs and the build (`machines`).
"""

from pliant.torch_adapter.autograd import *  # noqa: F403
from pliant.torch_adapter.machines import *  # noqa: F403
from pliant.torch_adapter.modes import *  # noqa: F403
from pliant.torch_adapter.names import *  # noqa: F403
from pliant.torch_adapter.operators import *  # noqa: F403
from pliant.torch_adapter.tensors import *  # noqa: F403

"""Kernels built without optimization: half of the C compiler's time.

Out:    `quickly()`: a block in which they are, in processes that it starts too; `ENVIRONMENT` says so to a process.
"""

import contextlib
import os

FLAGS = ("-O0", "-march=native", "-fno-math-errno")
ENVIRONMENT = {"PLIANT_CFLAGS": " ".join(FLAGS)}


@contextlib.contextmanager
def quickly():
    from pliant import config

    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        with config.patch(opt_flags=FLAGS):
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})

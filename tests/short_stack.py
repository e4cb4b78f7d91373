"""Calls below few frames: PyTorch's samples of operators and `inspect.stack()` look for the source of every frame that is
above them, and a test runner has fifty.

Out:    `called(function, *args)`: what the function returns, called in a thread of its own, under the options that are set here.
"""

import contextvars
from concurrent.futures import ThreadPoolExecutor


def called(function, *args):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, function, *args).result()

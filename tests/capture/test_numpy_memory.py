"""Which functions of NumPy return memory of their argument: what is written into it later shows there, or does not."""

import numpy as np
import pytest
import torch

import pliant

SAME = (
    "flip(v)", "flipud(v)", "fliplr(v)", "rot90(v)", "diagonal(v)", "diag(v)", "ravel(v)", "transpose(v)",
    "moveaxis(v, 0, 1)", "split(v, 2)[0]", "asarray(v)", "asarray(v, dtype=v.dtype)", "expand_dims(v, 0)", "squeeze(v)",
)  # fmt: skip
COPIES = ("positive(v)", "copy(v)", "array(v)", "roll(v, 1)", "tril(v)", "clip(v, 0, 9)")
METHODS = ("flatten()", "ravel()", "astype(v.dtype)", "astype(v.dtype, copy=False)", "astype('f8')", "T.reshape(-1)")
EXPRESSIONS = [f"np.{text}" for text in SAME + COPIES] + [f"v.{text}" for text in METHODS] + ["v[::-1]", "v[...]"]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_memory_of_results(expression):
    namespace = {"np": np}
    text = f"def program(x):\n    v = x.numpy() * 1.0\n    w = {expression}\n    v[:] = 9\n    return w\n"
    exec(text, namespace)
    x = torch.arange(4.0).reshape(2, 2)
    got, want = (f(x) for f in (pliant.compile(namespace["program"], backend="eager"), namespace["program"]))
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)

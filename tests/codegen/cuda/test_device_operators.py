"""One in some rows of the operator table through the CUDA writer and the shim; `operators.py` runs all of them."""

import pytest

from codegen.cuda.operators import samples
from codegen.cuda.shim import prepare


@pytest.mark.parametrize("symbolic", [False, True])
def test_operators(symbolic):
    found = list(samples(symbolic=symbolic, every=20))
    assert len(found) >= 30
    prepare([kernel for sample in found for kernel in sample.device.kernels])
    for sample in found:
        sample.check()

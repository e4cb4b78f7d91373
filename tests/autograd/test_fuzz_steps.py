"""Some random training loops; `python -m tests.autograd.fuzz_steps --count 50 [--backend pliant]` runs more."""

import pytest
from tests.autograd.fuzz_steps import KINDS, Loop, disagreement, loop_of

pytestmark = pytest.mark.filterwarnings("ignore")  # the optimizers' and autograd's own, which eager gives too


@pytest.mark.parametrize("seed", range(4))
def test_random_training_loops_agree_with_eager(seed):
    assert disagreement(loop_of(seed)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_layer_is_trained_as_in_eager(kind):
    names = ("two_calls_before_a_backward", "gradients_of_parameters", "step_with_closure", "accumulate")
    loop = Loop((kind,), "sgd", tuple((name, 2 + number) for number, name in enumerate(names)))
    assert disagreement(loop, "pliant") is None

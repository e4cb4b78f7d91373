"""Programs called at sizes where questions about sizes have other answers than at the example's."""

import pytest
from tests.exporting.generated import Generated, outcomes

STEPS = ("z[:4]", "z[2:]", "z[-2:]", "z[:-3]", "z[1:3]", "z.squeeze(0)", "z.squeeze()", "z.diagonal(2)", "torch.linalg.qr(z).R",
         "[c := z.clone(), c.t().reshape(-1).add_(1), c][2]", "z * 2 if z.t().is_contiguous() else z",
         "torch.linalg.svdvals(z)", "z.expand(y.shape[0], -1, -1)", "x + y", "z.reshape(-1)", "z.t().reshape(-1)")  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_right_at_every_size_or_refused(step):
    made = Generated(0)
    made.example, made.forms, made.empty = (6, 5), [("n", 3), ("m", 3), ("n", "m")], True
    if "x + y" in step:
        made.example = (6, 6)
    made.append(step)
    found = [outcome for _, outcome in outcomes(made)]
    assert not [one for one in found if one.startswith("wrong")]
    assert "as eager" in found


@pytest.mark.parametrize("seed", [42, 47, 58, 71, 83, 1000])
def test_a_generated_program_is_right_at_every_size_or_refused(seed):
    found = [outcome for _, outcome in outcomes(Generated(seed).grow(4), saved=True)]
    assert found and not [one for one in found if one.startswith("wrong")]

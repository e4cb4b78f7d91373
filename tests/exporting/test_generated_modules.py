"""Modules that write what they are given and return views, loaded from files."""

import pytest
from tests.exporting.generated_modules import Generated, kept, tried

SEEDS = (1, 2, 3, 4, 153, 240)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_generated_module_is_as_eager_or_refused(seed, tmp_path):
    why = kept(Generated(seed), tmp_path / "file")
    assert not [one for _, one in ([] if why else tried(seed, tmp_path / "file")) if one.startswith("wrong")]

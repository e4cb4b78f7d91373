"""Attention with another mask is called with everything else that the program gave."""

import pytest

from pliant.capture.handlers.rewrites import with_mask


@pytest.mark.parametrize("places", range(8))
def test_other_arguments_stay(places):
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
    given = dict(zip(names, ("q", "k", "v", "old", 0.25, True, 2.0)))
    args, kwargs = with_mask(tuple(given.values())[:places], {n: given[n] for n in names[places:]}, "new")
    assert dict(zip(names, args)) | kwargs == given | {"attn_mask": "new"}

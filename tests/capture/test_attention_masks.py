"""Attention with another mask: where the target wants one, and called with everything else that the program gave."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.capture.handlers.rewrites import with_mask
from pliant.debug import events
from pliant.targets import registry


@pytest.mark.parametrize("places", range(8))
def test_other_arguments_stay(places):
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
    given = dict(zip(names, ("q", "k", "v", "old", 0.25, True, 2.0)))
    args, kwargs = with_mask(tuple(given.values())[:places], {n: given[n] for n in names[places:]}, "new")
    assert dict(zip(names, args)) | kwargs == given | {"attn_mask": "new"}


@pytest.mark.parametrize("dense", [False, True])
def test_a_broadcast_mask_is_made_dense_where_the_target_wants_it(dense):
    def program(q, mask):
        return F.scaled_dot_product_attention(q, q, q, mask.expand(2, 1, 4, 4))

    q, mask = torch.randn(2, 1, 4, 8), torch.randn(2, 1, 4, 1)
    there = registry.target_of(torch.device("cpu"))
    registry.provide("cpu", lambda _: dataclasses.replace(there, dense_masks=dense))
    try:
        pliant.reset()
        with events.collect("graph_code") as found:
            result = pliant.compile(program, backend="eager")(q, mask)
    finally:
        registry.provide("cpu", lambda _: there)
    assert ("contiguous" in str(found[0].fields["text"])) == dense
    torch.testing.assert_close(result, program(q, mask))

"""Passes over functional ATen graphs: each takes a `fx.Graph`, changes it in place and says whether it did."""

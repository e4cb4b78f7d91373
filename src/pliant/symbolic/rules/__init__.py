"""Canonical forms of everything that is not a sum or a product, one file a theme."""

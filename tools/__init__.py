"""Developers' commands: `python -m tools.sizes`."""

"""ATen operators to loop nests, or to calls of the operator itself: a table of rules by theme, applied by `lower.py`."""

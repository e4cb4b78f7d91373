"""Symbolic shapes: expressions, ranges, what guards taught, and PyTorch's SymNode protocol on top."""

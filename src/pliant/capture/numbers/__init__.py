"""Numbers, arrays and small tensors whose elements are known, or vary.

Symbolic numbers:     number_domains (where arithmetic raises, what a tensor or a number computes), varying_text (texts that show them),
                      given_numbers (to functions that take them as they are), progressions (ranges of them, lists that repeat a number).
NumPy:                arrays, made_arrays (of Python's numbers), array_memory (arrays and the tensors under them), numpy_rules (where tensors compute otherwise),
                      numpy_scalars.
Elements of tensors:  elements, element_rules (as numbers), node_values (calls run while capturing), ranges (of drawn ones).
Branches on them:     foreseen (one side, checked), selections (both sides), marked_rows (loops over what is not zero).
"""

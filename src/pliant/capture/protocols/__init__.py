"""Python's protocols on traced values: what an operation means, by kind of value.

Attributes:           attributes, descriptors (what classes have), attribute_stores, module_attributes, tensor_members.
Operators and items:  operators, subscripts, iteration (and `in`), late_equality (of sizes that data tells), patched_methods
                      (tensors' special methods, and ways to call modules, that are the program's).
C code:               given_to_c (what it gets, may not look into, and may run), asked_by_c (which methods of the program's it may
    not run).
Calls:                calls (what a call of anything does), marked, rewritten, cached_calls, repeated_calls, histories_again,
                      other_block (a module in the place of another), class_statements.
What they end in:     tail_calls (an operation that ends in a call), polyfills (Python that the interpreter follows).
"""

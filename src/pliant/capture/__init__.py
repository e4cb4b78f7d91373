"""Python bytecode to a torch-level graph: interpretation, what it changes outside, breaks, and the entry that replays it.

Interpretation:       bytecode/ (decoded, normalised, assembled), attempt (one capture, its restarts), whole (one without breaks), tracer, frame, opcodes/,
                      tail_calls, calls, cached_calls, selections, stand_ins, attributes, module_attributes, tensor_members, attribute_stores,
                      operators, subscripts, iteration, callables (the table: handlers/, C functions and effects, and autodiff/),
                      thread_locals, generators, standing_iterators,
                      class_statements, plain_methods, rewritten, tracebacks.
The world outside:    world (reads under guards, buffered writes; origins, fields), bringing (the traced form of a value), whole_containers, set_orders,
                      constant_items, structural_classes, nested_functions, made_again, inputs, identity, snapshots, settings, value_kinds, structures,
                      marked, twins.
The graph:            recorder, torch_calls, torch_functions (C functions that may be called), regions, checkpointed, arrays,
                      numpy_scalars, overrides, symbol_nodes, tensor_index,
                      elements, element_rules (numbers in small tensors), drawn_ranges, node_values, foreseen (calls run while capturing),
                      tensor_errors, number_domains, varying_text.
Its end:              trace (what a capture found), collect, entry, reconstruct/.
Breaks:               graph_breaks (kinds and advice), spelled_out, carried, endings.

Read `trace.py`, `attempt.py` and `tracer.py` first; `dispatch/` is who asks for a capture.
"""

"""Python bytecode to a torch-level graph: interpretation, what it changes outside, breaks, and the entry that replays it.

What users call:      compiled_function, dispatch (which entry serves a call), roots, dynamic_policy, stance, markers,
                      marked.
Interpretation:       bytecode/ (decoded, normalised, assembled), attempt (one capture, its restarts), tracer, frame, opcodes/,
                      calls, selections, attributes, attribute_stores, operators, subscripts, iteration, handlers/ (C
                      functions and effects, by table), generators, class_statements, plain_methods, rewritten.
The world outside:    world (reads under guards, buffered writes), bringing (the traced form of a value), whole_containers,
                      constant_items, structural_classes, made_again, inputs, identity, snapshots, settings, value_kinds.
The graph:            recorder, torch_calls, regions, autodiff/, arrays, overrides, symbol_nodes, tensor_index,
                      elements, element_rules (numbers in small tensors), tensor_errors, number_domains, varying_text.
Its end:              trace (what a capture found), collect, entry, reconstruct/, noted (events).
Breaks:               graph_breaks (kinds and advice), entering, spelled_out, carried, resume_function, endings.

Read `trace.py`, `attempt.py`, `tracer.py` and `dispatch.py` first.
"""

"""Fake tensors and the types passed between stages.

Contracts:            contracts, late_module, proxies, tensor_spec, printer, told (graphs as rows), interpret (the meaning that compiled graphs must have),
                      unsupported, remade (callables that know how they were made).
Fakes:                fake_tensor, fake_mode (which computes on them), shape_rules/ (what operators return), layouts, call_plan, devices, fallback,
                      special_calls, collectives, effects (what operators do beside their schema), failing (which may raise), concrete_sizes,
                      compositions, composed_counts, composed_images, einsum_order, given_warnings, kernel_warnings, lent_numbers, unfit_numbers, overlaps, strided,
                      writes, tensor_index (subscripts with symbols), unbacked, checks (what a running graph checks of such numbers),
                      symbol_nodes (that compute them).
Functions in C:       torch_functions (which do nothing but what a graph records).
Operators of ours:    gradients, control_flow, control_bodies (what runs its bodies), kept_graphs, body_graph, custom_function, custom_ops,
                      opaque_derivatives, recurrent, random_state, generator_states, tensor_hook, transforms, bodies (graphs that these call), packed_weights.
map_rules/:           operators below `vmap` at symbolic sizes.
passes/:              over functional ATen graphs.
"""

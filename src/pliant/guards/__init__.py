"""Facts checked before compiled code is reused.

As data:              kinds (what), sources, parts and contexts (of which value), facts (exact comparison), state and settings (global),
                      standard (objects that mean something by being themselves).
Cast again:           kept_casts (of parameters that autocast would have kept, where compiled code ends).
Checked:              codegen (straight-line Python) of steps (statements as data), kept_calls (what caches give), held_section and watch (state that rarely
                      changes: compared as memory), evaluate (guards as data), held_state (when that is looked at), native_watch, watch_in_c,
                      native_builder, memory, tensor_words and alike (the native parts), names, generated (the function of an
                      entry).
Where it fails:       replay (which fact, a check of it alone), explain (in words).
Left out:             filtering (what the program's `guard_filter_fn` does not want).
"""

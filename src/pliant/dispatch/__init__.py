"""The object a user calls: entries tried in turn, looked for on disk, captured where none serves.

What capture knows too: `entry` (compiled code behind its guards), `roots` (what a capture starts from), `markers` (what
users said about functions), `dim_marks` (and about sizes), `dynamic_policy` (which sizes vary), `own_frames`, `tracebacks`
(of errors), `running_frames` (the program's, as it runs). `dispatcher` tries entries; `new_entry` loads the compiler and
makes one, whose function `entry_writer` writes; `compiled_function` is the callable, `resume_function` the one behind a graph
break; `stance` says what calls may do; `second_calls` has what first calls do without; `behind` compiles graphs behind
calls, with `descriptions` of their tensors, `trial` measures whether that made them faster, `kept_later` has their entries
kept on disk then.
"""

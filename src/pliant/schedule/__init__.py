"""Which loop nests become one kernel, in which order they run, and where their buffers lie: `schedule.py` is the pass.

moments (sums of squares in the pass that sums), split (of reductions), divided (loops over groups), known_values (of outer loops, which inner ones compute
too) change programs and kernels; forms (what is said of computations but their buffers) and known_joins (what fusion answered for computations of equal forms) are
why layers that are alike cost little; windows (which loops read much of the same).
"""

"""Which loop nests become one kernel, in which order they run, and where their buffers lie: `schedule.py` is the pass."""

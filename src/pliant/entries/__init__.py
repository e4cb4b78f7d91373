"""Entries of dispatchers on disk: what one process compiled, found and checked by the next.

`keeper` keeps and finds entries; `environment` is their key, of which `own_sources` says what Pliant is, and `own_patterns` what
patterns do. `form` makes an entry of data: `facts` its sources and guards, `objects` what it refers to, `codes` the code in that, `programs` what runs its graphs,
`breaks` what follows a graph break, `constants` values. `draft`, `fact_writer`, `namer` and `program_writer` write that data,
`taken` is what objects were when the call was made: what finds its entry loads none of these. `content` says what a named
object would do, `operators` what the program's own operators would; `claims` have one process of many compile. Read
`docs/decisions/0015-entries-on-disk.md` first.
"""

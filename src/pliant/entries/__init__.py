"""Entries of dispatchers on disk: what one process compiled, found and checked by the next.

`keeper` keeps and finds entries; `environment` is their key, of which `own_sources` says what Pliant is; `form` an entry as
data: `facts` its sources and guards, `objects` the names of what it refers to, `codes` where code lies in that, `breaks` what
follows a graph break, `constants` values. `content` says what a named object would do, `operators` what the program's own
operators would, `taken` what it was when the call was made; `programs` is what runs its graphs;
`claims` have one process of many compile. Read
`docs/decisions/0015-entries-on-disk.md` first.
"""

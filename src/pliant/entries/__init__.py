"""Entries of dispatchers on disk: what one process compiled, found and checked by the next.

`keeper` keeps and finds entries; `environment` is their key; `form` an entry as data; `objects` names what it refers to,
`content` says what that would do, `taken` what it was when the call was made, `constants` spells values; `programs` is what
runs its graphs. Read `docs/decisions/0015-entries-on-disk.md` first.
"""

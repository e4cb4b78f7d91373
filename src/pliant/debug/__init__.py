"""What the compiler did and why, for people: one record of events (`events.py`), and what is made of it."""

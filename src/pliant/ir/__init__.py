"""Loop nests: the types that lowering makes and the scheduler takes, their text, verifier and reference meaning."""

"""`python -m pliant`: which commands there are."""

import pliant

print(
    f"""Pliant {pliant.__version__}

python -m pliant.config                        every option: its type, default and environment variable
python -m pliant.cache show [TEXT]             what the cache folder holds
python -m pliant.report PAGE.html SCRIPT ...   run a script, and write a page about what was compiled

PLIANT_LOGS=graph_breaks,recompiles            says what happens as it happens
PLIANT_STANCE=force_eager                      compiles nothing"""
)

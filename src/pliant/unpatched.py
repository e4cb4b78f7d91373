"""The builtins as they were when Pliant was imported: programs put their own in their place, as for a `print` of one rank alone."""

import builtins
import types

BUILTINS = types.SimpleNamespace(**vars(builtins))

"""Built code on disk: `export`, `import_` and `report` are for users, `store` and `key` for the compiler."""

from typing import Any

__all__ = ["export", "import_", "report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pliant.cache' has no attribute {name!r}")
    from pliant.cache import bundle

    return getattr(bundle, name)

"""Where the program wants warnings as errors it gets each of ours once, and the next call goes on."""

import gc
import warnings

import pytest
import torch

import pliant
from pliant import config
from pliant.errors import CacheWarning, FallbackWarning, PliantWarning


def limit(folder):
    run = pliant.compile(lambda x, flag: x * 2 if flag else x)
    with config.patch(recompile_limit=1):
        run(torch.ones(2), True)
        yield lambda: run(torch.ones(2), False).tolist() == [1, 1]


def no_compiler(folder):
    run = pliant.compile(lambda x: x.sin() * 2.5)
    with config.patch(compiler="/nowhere/cc", cache_dir=str(folder)):
        yield lambda: torch.allclose(run(torch.ones(2)), torch.ones(2).sin() * 2.5)


def cache(folder):
    (folder / "file").touch()
    run = pliant.compile(lambda x: x.sin() * 3.5)
    with config.patch(cache_dir=str(folder / "file")):
        yield lambda: torch.allclose(run(torch.ones(2)), torch.ones(2).sin() * 3.5)


def crash(folder):
    with config.patch(cache_dir=str(folder), opt_flags=("--no-such-flag",)):
        run = pliant.compile(lambda x: x.sin() * 4.5)
        yield lambda: torch.allclose(run(torch.ones(2)), torch.ones(2).sin() * 4.5)


@pytest.mark.parametrize(
    ("trouble", "category"),
    [(limit, PliantWarning), (no_compiler, FallbackWarning), (cache, CacheWarning), (crash, FallbackWarning)],
)
def test_a_warning_is_raised_once(trouble, category, tmp_path):
    pliant.reset()
    for call in trouble(tmp_path):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(category):
                call()
            assert gc.isenabled() and torch.is_grad_enabled()
            assert call() and call()

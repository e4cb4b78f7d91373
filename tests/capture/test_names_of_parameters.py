"""A parameter may be called as anything that generated code refers to."""

import ast
import linecache
import math
import random
import re

import pytest
import torch

import pliant
from pliant.guards.generated import GENERATED
from pliant.guards.names import Names

PROGRAMS = """
def breaks(P, noted):
    noted.append(1)
    pliant.graph_break()
    noted.append(P.shape[0])
    for v in turns(P, 2):
        pliant.graph_break()
        noted.append(v)
    return P + 1, noted

def fails(P, noted):
    noted.append(P.shape[0] / 2)
    return P[torch.tensor([7])], noted

def draws(P, noted):
    noted.append(random.randint(0, 9))
    return P * torch.rand(2)[0] + random.random(), noted

def makes(P, noted):
    def inner(v):
        return P + v
    return inner(1), inner, P.shape, math.floor(P.shape[0] / 3), turns(P, 2).__next__, MODULE.weight + P.sum()
"""
MORE = "\ndef turns(P, n):\n    for i in range(n):\n        yield P.sum() + i\n"


def _run(name, parameter, compiles):
    scope = {"pliant": pliant, "random": random, "torch": torch, "math": math, "MODULE": torch.nn.Linear(1, 1)}
    scope["MODULE"].requires_grad_(False).weight.fill_(2.0)
    exec(re.sub(r"\bP\b", parameter, PROGRAMS + MORE), scope)
    function = pliant.compile(scope[name], backend="eager") if compiles else scope[name]
    found = []
    for rows in (4, 4, 5, 8):
        torch.manual_seed(0)
        random.seed(0)
        noted = []
        try:
            got = function(torch.ones(rows), noted)
        except Exception as error:
            got = (type(error), str(error))
        found.append(([v for v in got if not callable(v)], noted))
    return repr(found)


@pytest.mark.parametrize("name", re.findall(r"^def (\w+)", PROGRAMS, re.M))
@pytest.mark.fallbacks_expected  # a generator is returned before it has run
def test_no_parameter_gets_a_name_that_generated_code_uses_for_itself(name, monkeypatch):
    given, fresh = set(), Names.fresh
    monkeypatch.setattr(Names, "fresh", lambda names, hint: (found := fresh(names, hint), given.add(found))[0])
    linecache.clearcache()
    _run(name, "x", compiles=True)
    texts = ["".join(entry[2]) for file, entry in linecache.cache.items() if file.startswith(GENERATED)]
    own = {node.id for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)} - given
    assert own
    for one in own:
        assert fresh(Names(), one) != one


@pytest.mark.parametrize(
    "name, parameter", [("breaks", "given"), ("breaks", "take"), ("fails", "failed"), ("makes", "Cell")]
)
@pytest.mark.fallbacks_expected  # a generator is returned before it has run
def test_parameter_called_as_a_part_of_generated_code(name, parameter):
    assert _run(name, parameter, compiles=True) == _run(name, "x", compiles=False)

"""The example scripts do what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="example")["main"]()


def test_training_learns():
    assert run("train") < 0.3


def test_a_backend_sees_the_operations():
    assert sum(run("backend").values()) >= 4


def test_breaks_are_shown_and_avoided():
    assert run("graph_breaks") == (1, 0)


@pytest.mark.slow
def test_demo_agrees_with_eager():
    demo = runpy.run_path(str(EXAMPLES / "demo.py"), run_name="example")
    assert demo["main"](["--quick"]) == 0

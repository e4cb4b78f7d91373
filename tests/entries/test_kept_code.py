"""Code of the texts that the compiler wrote is kept with an entry, and is what the text says wherever it runs."""

import base64
import builtins
import json
import linecache
import marshal
import os
import subprocess
import sys
import types
import zlib
from pathlib import Path

import pytest
import torch
from tests.entries import programs

import pliant
from pliant import background
from pliant.cache import lines as cache_lines
from pliant.cache.lines import TABLES, Lines, spelled, written
from pliant.wrappers import generated_code

TEXT = "def one(x):\n    def inner():\n        return x + 1\n    return inner()\n\ndef fails():\n    raise ValueError\n"


def defined(text, file="<pliant a>"):
    names = {}
    generated_code.define(text, file, names)
    return names


def data_of(names, name="one"):
    return json.loads(json.dumps(generated_code.as_data(generated_code.code_behind(names[name]))))


def test_a_known_text_is_not_compiled(monkeypatch):
    data = data_of(defined(TEXT))
    with monkeypatch.context() as patch, generated_code.known(data):
        patch.setattr(builtins, "compile", lambda *args: pytest.fail("compiled"))
        names = defined(TEXT, "<pliant b>")
    assert names["one"](1) == 2
    assert names["one"].__code__.co_consts[1].co_filename == "<pliant b>"
    assert linecache.getline("<pliant b>", 3) == "        return x + 1\n"
    with pytest.raises(ValueError) as error:
        names["fails"]()
    assert str(error.traceback[-1].path) == "<pliant b>" and error.traceback[-1].lineno == 6


def test_another_text_is_compiled():
    data = data_of(defined(TEXT))
    with generated_code.known(data):
        assert defined(TEXT.replace("+ 1", "+ 2"))["one"](1) == 3


def test_code_that_ran_is_the_same_data():
    names = defined(TEXT)
    before = data_of(names)
    for _ in range(100):
        names["one"](1.5)
    assert data_of(names) == before == data_of(defined(TEXT, "<pliant elsewhere>"))


def test_sets_are_not_kept():
    """Their order is another in each process."""
    assert data_of(defined("def one(x):\n    return x in {'a', 'b', 'c'}\n")) == {}


def test_functions_of_no_text_have_no_code():
    assert generated_code.code_behind(test_sets_are_not_kept) == {}
    assert generated_code.code_behind(len) == {}


def test_tables_are_read_when_they_are_asked_for():
    data = {"name": "f", "guards": [1, [2]], "steps": ["a\nb"], "code": {}}
    text = written(spelled(data))
    assert text.count(b"\n") == len(TABLES)
    for broken in (b"no table", base64.b64encode(b"not packed"), base64.b64encode(zlib.compress(b"no JSON"))):
        parts = text.split(b"\n")
        parts[1 + TABLES.index("steps")] = broken
        lines = Lines(b"\n".join(parts))
        assert lines["name"] == "f" and lines["guards"] == [1, [2]] == lines["guards"]
        with pytest.raises(ValueError):
            lines["steps"]
    assert Lines(text)["steps"] == ["a\nb"]


def test_a_known_text_is_read_by_what_shows_it_alone():
    reads = []
    text = generated_code.Text(generated_code.digest_of(TEXT), lambda: reads.append(1) or TEXT)
    names = {}
    with generated_code.known(generated_code.as_data(generated_code.code_of(TEXT))):
        generated_code.define(text, "<pliant kept>", names)
    assert not reads
    assert linecache.getline("<pliant kept>", 1) == TEXT.splitlines(keepends=True)[0] and reads
    assert linecache.getline("<pliant kept>", 10_000) == ""
    unknown = {}
    generated_code.define(text, "<pliant kept again>", unknown)
    assert names.keys() == unknown.keys()


@torch.no_grad()
def test_an_entry_reads_neither_guards_nor_texts_that_it_knows(tmp_path, monkeypatch):
    """Nor are they in the text as they are, which would take longer to read and to check."""
    assert kept(tmp_path)["kept"]
    (file,) = tmp_path.glob("v1/entries/*/*/data.json")
    whole = Lines(file.read_bytes())
    assert "def load(" in whole["held text"] and b"def load(" not in file.read_bytes()
    monkeypatch.setattr(cache_lines, "_unpacked", lambda line: 1 / 0)
    assert kept(tmp_path) == {"found": 1}


def kept(folder, cls=programs.Model, training=False):
    pliant.reset()
    torch.manual_seed(0)
    model, x = cls(), torch.randn(4, 4)
    with pliant.config.patch(keep_entries=True, cache_dir=str(folder)), torch.set_grad_enabled(training):
        compiled = pliant.compile(model)  # which has the entry until it is written down
        result = compiled(x)
        if training:
            result.sum().backward()
        background.finish()
        counts = pliant.stats()["entries"]
    pliant.reset()
    torch.testing.assert_close(result, model(x))
    return counts


@pytest.mark.parametrize("training", [False, True])
def test_an_entry_that_is_found_compiles_none_of_its_texts(tmp_path, monkeypatch, training):
    assert kept(tmp_path, training=training)["kept"]
    (file,) = tmp_path.glob("v1/entries/*/*/data.json")
    assert len(Lines(file.read_bytes())["code"]) >= (3 if training else 2)
    texts = []
    real = builtins.compile
    monkeypatch.setattr(builtins, "compile", lambda text, *args, **more: texts.append(text) or real(text, *args, **more))
    assert kept(tmp_path, training=training) == {"found": 1}
    assert not [text for text in texts if isinstance(text, str) and "def " in text]


WRITER = """
import sys, torch, pliant
from tests.entries import programs
torch.manual_seed(0)
pliant.compile(programs.Model())(torch.ones(4, 4)).sum().backward()
pliant.background.finish()
"""


def test_two_processes_write_the_same_bytes(tmp_path):
    """Whatever the order of hashes is in each."""
    texts = []
    for seed in ("1", "2"):
        root = Path(__file__).parents[2]
        path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
        folder = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path, "PLIANT_CACHE_DIR": str(folder), "PLIANT_KEEP_ENTRIES": "1"}
        subprocess.run([sys.executable, "-c", WRITER], env=environment, check=True)
        texts.append([file.read_bytes() for file in sorted(folder.glob("v1/entries/*/*/data.json"))])
    assert len(texts[0]) == 1 and texts[0] == texts[1]
    (code, *_) = Lines(texts[0][0])["code"].values()
    assert isinstance(marshal.loads(base64.b64decode(code)), types.CodeType)

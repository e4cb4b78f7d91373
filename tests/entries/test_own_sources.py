"""The digest of Pliant's own files goes by what is in them."""

import os
import time

import pytest

import pliant
from pliant.entries import own_sources


@pytest.fixture
def package(tmp_path):
    (tmp_path / "package" / "inner").mkdir(parents=True)
    (tmp_path / "package" / "one.py").write_text("a = 1\n")
    (tmp_path / "package" / "inner" / "two.py").write_text("b = 2\n")
    with pliant.config.patch(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "package"


def digest(folder):
    return own_sources.digest_below(str(folder))


def aged(monkeypatch, seconds):
    """So many seconds later."""
    now = time.time_ns()
    monkeypatch.setattr(own_sources.time, "time_ns", lambda: now + int(seconds * 1e9))


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_change_of_the_same_size_and_time_is_seen(package, monkeypatch, seconds):
    aged(monkeypatch, seconds)
    file = package / "one.py"
    before, times = digest(package), file.stat()
    file.write_text("a = 7\n")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file.stat().st_size == times.st_size and file.stat().st_mtime_ns == times.st_mtime_ns
    assert digest(package) != before
    file.write_text("a = 1\n")
    assert digest(package) == before


def test_the_content_counts_and_not_where_or_when_it_was_written(package, tmp_path):
    before = digest(package)
    os.utime(package / "one.py", (1, 1))
    assert digest(package) == before
    package.rename(tmp_path / "moved")
    assert digest(tmp_path / "moved") == before


def test_another_name_is_another_package(package):
    before = digest(package)
    (package / "one.py").rename(package / "three.py")
    assert digest(package) != before


def test_files_that_rest_are_read_once(package, monkeypatch):
    aged(monkeypatch, 60)
    before = digest(package)
    monkeypatch.setattr(own_sources, "_read", lambda root, names: pytest.fail("read again"))
    assert digest(package) == before


@pytest.mark.parametrize("seconds", [1, -3600])
def test_files_changed_lately_or_in_the_future_are_read(package, monkeypatch, seconds):
    """Another write within a tick of the clock would not show."""
    aged(monkeypatch, seconds)
    digest(package)
    monkeypatch.setattr(own_sources, "_read", lambda root, names: "read")
    assert digest(package) == "read"

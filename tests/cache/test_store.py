"""The on-disk store: atomic, shared, bounded, and distrustful."""

import os
import subprocess
import sys
import textwrap
import time

import pytest

from pliant import config
from pliant.cache import store as stores
from pliant.cache.key import Key, make_key
from pliant.cache.store import Store
from pliant.debug import events
from pliant.errors import CacheWarning

KEY = make_key(text="int f;", flags="-O3")


@pytest.fixture
def store(tmp_path):
    events.reset()
    return Store(tmp_path, "kernels", max_bytes=1 << 20)


def entry_folder(store, key=KEY):
    return store.home / key.digest[:2] / key.digest


def test_round_trip(store):
    assert store.get(KEY) is None
    path = store.put(KEY, b"abc", ".so")
    assert path.suffix == ".so" and path.read_bytes() == b"abc"
    assert store.get(KEY, ".so") == b"abc"
    assert store.path(KEY, ".so") == path
    assert events.stats()["cache"] == {"miss": 1, "store": 1, "hit": 2}


@pytest.mark.parametrize(
    "other",
    [make_key(text="int f;", flags="-O2"), make_key(flags="-O3", text="int f;"), make_key(text="int f;flags", x="-O3")],
)
def test_keys_differ_when_any_part_does(other):
    assert other.digest != KEY.digest
    assert Key((("a", "b"), ("c", "d"))).digest != Key((("a", 'b"],["c'), ("", "d"))).digest


def test_a_failed_build_leaves_nothing(store):
    def fail(path):
        path.write_bytes(b"half")
        raise RuntimeError("compiler died")

    with pytest.raises(RuntimeError):
        store.get_or_build(KEY, ".so", fail)
    assert store.path(KEY, ".so") is None
    assert list(store.home.rglob("*.so")) == []


def test_built_once(store):
    calls = []

    def make(path):
        calls.append(path)
        path.write_bytes(b"x")

    assert store.get_or_build(KEY, "", make) == store.get_or_build(KEY, "", make)
    assert len(calls) == 1


@pytest.mark.parametrize("damage", ["data", "key.json"])
def test_corrupt_entries_are_dropped_with_a_warning(store, damage):
    store.put(KEY, b"abc")
    (entry_folder(store) / damage).write_bytes(b"rubbish")
    with pytest.warns(CacheWarning, match="is corrupt and is ignored"):
        assert store.get(KEY) is None
    assert not entry_folder(store).exists()
    store.put(KEY, b"abc")
    assert store.get(KEY) == b"abc"


def test_least_recently_used_entries_go_first(store):
    store.max_bytes = 5_000
    keys = [make_key(n=i) for i in range(10)]
    for age, key in enumerate(reversed(keys)):
        store.put(key, b"." * 300)
        old = time.time() - 1_000 * (age + 1)
        os.utime(entry_folder(store, key) / "key.json", (old, old))
    store.get(keys[0])  # the oldest but one use: now the newest
    store.put(make_key(n="more"), b"." * 3_000)
    left = [k for k in keys if store.path(k)]
    assert left == [keys[0], *keys[len(keys) - len(left) + 1 :]]
    assert len(left) < len(keys)
    assert sum(e.size for e in store.entries()) <= 5_000


def test_a_miss_is_explained_by_the_parts_that_differ(store):
    store.put(make_key(text="long" * 100, flags="-O3", compiler="gcc 12"), b"x")
    assert store.differing_parts(make_key(text="long" * 100, flags="-O3", compiler="gcc 13")) == ["compiler"]
    assert store.differing_parts(make_key(text="short", flags="-O3", compiler="gcc 13")) == ["text", "compiler"]


def test_folders_are_private(store):
    store.put(KEY, b"x")
    for folder in (store.home, entry_folder(store)):
        assert folder.stat().st_mode & 0o077 == 0


def test_many_processes_write_the_same_keys(tmp_path):
    program = textwrap.dedent(f"""
        from pathlib import Path
        from pliant.cache.key import make_key
        from pliant.cache.store import Store
        store = Store(Path({str(tmp_path)!r}), "kernels", 1 << 20)
        for i in range(60):
            text = str(i % 15) * 1000
            path = store.get_or_build(make_key(i=i % 15), ".so", lambda p: p.write_text(text))
            assert path.read_text() == text
        assert not list(store.home.rglob(".new-*/nothing"))
    """)
    started = [subprocess.Popen([sys.executable, "-W", "error", "-c", program]) for _ in range(3)]
    assert [p.wait() for p in started] == [0, 0, 0]
    assert len(list(Store(tmp_path, "kernels", 1 << 20).entries())) == 15


def refuse(tmp_path, monkeypatch):
    """open_store with this folder configured must warn and serve from elsewhere."""
    stores.usable_root.cache_clear()
    events.reset()
    with config.patch(cache_dir=str(tmp_path)), pytest.warns(CacheWarning, match="is not used") as caught:
        opened = stores.open_store("kernels")
    assert tmp_path not in opened.home.parents
    opened.put(KEY, b"x")
    assert opened.get(KEY) == b"x"
    stores.usable_root.cache_clear()
    return str(caught[0].message)


def test_a_folder_others_can_write_to_is_refused(tmp_path, monkeypatch):
    tmp_path.chmod(0o777)
    assert "other users can write to it" in refuse(tmp_path, monkeypatch)


def test_an_unusable_folder_is_replaced(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    assert "cannot be written" in refuse(tmp_path / "file", monkeypatch)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no user ids here")
def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    os.chown(tmp_path, 4321, -1) if os.getuid() == 0 else pytest.skip("needs root")
    assert "belongs to another user" in refuse(tmp_path, monkeypatch)


def test_the_cache_can_be_turned_off(tmp_path):
    with config.patch(cache=False, cache_dir=str(tmp_path)):
        stores.open_store("kernels").put(KEY, b"x")
    assert list(tmp_path.iterdir()) == []


def test_private_root_ends_with_its_process():
    program = "from pliant.cache.store import private_root; import os; print(private_root(os.getpid()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not os.path.exists(done.stdout.strip())

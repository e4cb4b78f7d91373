"""The on-disk store: atomic, shared, bounded, and distrustful."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
import warnings
from pathlib import Path

import pytest

from pliant import config
from pliant.cache import store as stores
from pliant.cache import trust
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
    monkeypatch.setattr(trust.os, "geteuid", lambda: 12345)
    os.chown(tmp_path, 4321, -1) if os.getuid() == 0 else pytest.skip("needs root")
    assert "belongs to another user" in refuse(tmp_path, monkeypatch)


def in_another_user(check):
    """Run in a forked child without the superuser's rights; whether it succeeded."""
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(1234)
                os.setuid(1234)
            check()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


@pytest.fixture
def shared(tmp_path):
    """A folder that everybody may enter (pytest's own are private)."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_folder_that_can_only_be_read_serves(shared):
    other = make_key(text="int g;")
    Store(shared, "kernels", 1 << 20).put(KEY, b"abc", ".so")
    for path in (shared, *shared.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)

    def check():
        with config.patch(cache_dir=str(shared)), warnings.catch_warnings():
            warnings.simplefilter("error")
            stores.usable_root.cache_clear()
            stores._is_writable.cache_clear()
            opened = stores.open_store("kernels")
            assert opened.get(KEY, ".so") == b"abc" and shared in opened.path(KEY, ".so").parents
            assert opened.get_or_build(other, ".so", lambda p: p.write_bytes(b"new") and None).read_bytes() == b"new"
            assert opened.get(other, ".so") == b"new" and shared not in opened.path(other, ".so").parents
            shutil.rmtree(stores.private_root(os.getpid()))

    assert in_another_user(check)
    shared.chmod(0o755)
    for path in shared.rglob("*"):
        path.chmod(0o755)


def plant_write(path):
    path.chmod(0o777)


def plant_link(path):
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


def plant_group(path):
    if os.getuid() != 0:
        pytest.skip("needs root")
    os.chown(path, -1, 4321)
    path.chmod(0o770)


def plant_owner(path):
    if os.getuid() != 0:
        pytest.skip("needs root")
    os.chown(path, 4321, -1)


PLANTS = {"writable": plant_write, "group": plant_group, "link": plant_link, "owner": plant_owner}
PLACES = {"format": 3, "namespace": 2, "digits": 1, "entry": 0}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("plant", PLANTS)
def test_what_others_could_have_written_is_not_read(plant, place, shared):
    store, key = Store(shared, "kernels", 1 << 20), make_key(text=f"{plant} {place}")
    store.put(key, b"abc", ".so")
    chain = [entry_folder(store, key), *entry_folder(store, key).parents][:4]
    for path in chain:
        path.chmod(0o755)
    assert store.get(key, ".so") == b"abc"
    PLANTS[plant](chain[PLACES[place]])
    events.reset()
    with pytest.warns(CacheWarning, match="others may have written it"):
        assert store.get(key, ".so") is None
    built = store.get_or_build(key, ".so", lambda path: path.write_bytes(b"mine") and None)
    assert built.read_bytes() == b"mine" and shared not in built.parents


@pytest.mark.parametrize("place", ["format", "namespace", "digits"])
@pytest.mark.parametrize("plant", PLANTS)
def test_nothing_is_written_where_others_could_change_it(plant, place, shared):
    """What is built is loaded from where it was put, whether or not there was an entry before."""
    store, key = Store(shared, "kernels", 1 << 20), make_key(text=f"new {plant} {place}")
    store.put(key, b"abc", ".so")
    chain = [entry_folder(store, key), *entry_folder(store, key).parents][:4]
    shutil.rmtree(chain[0])
    for path in chain[1:]:
        path.chmod(0o755)
    PLANTS[plant](chain[PLACES[place]])
    before = {path: path.lstat().st_mtime_ns for path in (shared, *shared.rglob("*"))}
    with pytest.warns(CacheWarning, match="others may have written it"):
        built = store.get_or_build(key, ".so", lambda path: path.write_bytes(b"mine") and None)
    assert built.read_bytes() == b"mine" and shared not in built.parents
    with pytest.raises(PermissionError):
        store.adopt(key.digest, "data.so", b"mine", {})
    assert before == {path: path.lstat().st_mtime_ns for path in (shared, *shared.rglob("*"))}


@pytest.mark.parametrize("file", ["data.so", "key.json"])
def test_a_file_that_others_can_write_is_not_read(file, shared):
    store, key = Store(shared, "kernels", 1 << 20), make_key(text=file)
    store.put(key, b"abc", ".so")
    (entry_folder(store, key) / file).chmod(0o666)
    assert store.get(key, ".so") == b"abc"  # nobody else gets there
    for path in [entry_folder(store, key), *entry_folder(store, key).parents][:4]:
        path.chmod(0o755)
    events.reset()
    with pytest.warns(CacheWarning, match="others may have written it"):
        assert store.get(key, ".so") is None


def test_folders_above_are_looked_at(tmp_path, shared, monkeypatch):
    shared.chmod(0o777)
    (shared / "cache").mkdir(mode=0o700)
    assert "lies above it, and other users can write to it" in refuse(shared / "cache", monkeypatch)
    (tmp_path / "real").mkdir(mode=0o700)
    (shared / "link").symlink_to(tmp_path / "real")
    assert "lies above it, and other users can write to it" in refuse(shared / "link", monkeypatch)
    shared.chmod(0o1777)  # as /tmp
    assert trust.why_not(shared / "cache") is None and trust.why_not(shared / "link") is None


def test_a_sticky_folder_is_its_owners(shared):
    """Who owns the folder may rename what is in it, whatever the sticky bit says."""
    (shared / "theirs").mkdir()
    (shared / "theirs").chmod(0o1777)
    (shared / "theirs" / "cache").mkdir(mode=0o700)
    assert trust.why_not(shared / "theirs" / "cache") is None
    plant_owner(shared / "theirs")
    assert "lies above it, and it belongs to another user" in trust.why_not(shared / "theirs" / "cache")


@pytest.mark.parametrize("absolute", [False, True])
def test_folders_that_links_lead_through_are_looked_at(absolute, tmp_path):
    """Others may turn a link about that lies in a folder of theirs, though neither the first name nor the last is there."""
    for name in ("real/cache", "between"):
        (tmp_path / name).mkdir(mode=0o700, parents=True)
    (tmp_path / "real").chmod(0o700)
    (tmp_path / "between" / "second").symlink_to(tmp_path / "real/cache" if absolute else "../real/cache")
    (tmp_path / "first").symlink_to(tmp_path / "between/second" if absolute else "between/../between/second")
    assert trust.why_not(tmp_path / "first") is None
    (tmp_path / "between").chmod(0o777)
    assert f"{tmp_path / 'between'} lies above it" in trust.why_not(tmp_path / "first")


def test_an_entry_of_whichever_maker_serves_who_has_none(store):
    mine, yours = make_key(maker="gcc 12", text="int f;"), make_key(maker="gcc 13", text="int f;")
    store.put(mine, b"abc")
    assert store.get(yours) is None and store.get(make_key(maker=None, text="int f;")) == b"abc"
    assert store.get(make_key(maker=None, text="int g;")) is None


def test_a_full_cache_is_replaced_by_a_temporary_folder(store):
    def make(path):
        if store.root in path.parents:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        path.write_bytes(b"abc")

    with pytest.warns(CacheWarning, match="No space left"):
        assert store.root not in store.get_or_build(KEY, "", make).parents
    assert not list(store.home.rglob(".new-*"))


def test_the_cache_can_be_turned_off(tmp_path):
    with config.patch(cache=False, cache_dir=str(tmp_path)):
        stores.open_store("kernels").put(KEY, b"x")
    assert list(tmp_path.iterdir()) == []


def test_private_root_ends_with_its_process():
    program = "from pliant.cache.store import private_root; import os; print(private_root(os.getpid()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not os.path.exists(done.stdout.strip())


def test_what_is_read_is_what_was_checked(store, monkeypatch):
    """Content is not read again once its checksum was compared, and who finds what it looks for tries no writing."""
    loose = make_key(maker=None, text="int g;", flags="")
    store.put(loose, b"abc", ".so")
    file = entry_folder(store, loose) / "data.so"
    monkeypatch.setattr(store, "_touch", lambda key: file.write_bytes(b"other"))
    monkeypatch.setattr(stores, "_is_writable", lambda root: pytest.fail("writes to find out whether it can"))
    assert store.get(loose, ".so") == b"abc"
    file.write_bytes(b"abc")
    assert [content for _, content in store.all(loose, ".so")] == [b"abc"]


def test_what_another_process_drops_while_it_is_looked_for_is_not_there(store, monkeypatch):
    """Between the look into a folder and the look at what lies there, and between a question and the next."""
    loose = make_key(maker=None, text="int g;", flags="")
    store.put(loose, b"abc", ".so")
    folder = entry_folder(store, loose)

    def gone(path, **options):
        shutil.rmtree(folder, ignore_errors=True)
        return real(path, **options)

    real = os.stat
    monkeypatch.setattr(trust.os, "stat", gone)
    assert list(store.all(loose, ".so")) == []
    monkeypatch.undo()

    store.put(loose, b"abc", ".so")
    monkeypatch.setattr(trust, "within", lambda root, path, *files: shutil.rmtree(folder, ignore_errors=True) or path.stat())
    assert store.path(loose, ".so") is None
    assert list(store.all(loose, ".so")) == []

"""Bundles: a cache carried to another folder."""

import io
import tarfile

import pytest

from pliant import cache, config
from pliant.cache.key import make_key
from pliant.cache.store import open_store
from pliant.debug import events
from pliant.errors import CacheWarning, UserError

KEYS = [make_key(text=f"int f{i};") for i in range(3)]


@pytest.fixture
def bundle(tmp_path):
    with config.patch(cache_dir=str(tmp_path / "one")):
        for i, key in enumerate(KEYS):
            open_store("kernels").put(key, bytes([i]) * 10, ".so")
        assert cache.export(tmp_path / "bundle.tgz") == 3
    return tmp_path / "bundle.tgz"


def test_entries_arrive(bundle, tmp_path):
    with config.patch(cache_dir=str(tmp_path / "two")):
        open_store("kernels").put(KEYS[0], b"own", ".so")
        assert cache.import_(bundle) == 2
        assert [open_store("kernels").get(k, ".so")[:3] for k in KEYS] == [b"own", b"\x01\x01\x01", b"\x02\x02\x02"]
        assert cache.import_(bundle) == 0


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "v1/kernels/ab/short/data.so", "v1/../kernels/x"])
def test_members_with_other_names_are_refused(name, tmp_path):
    path = tmp_path / "bad.tgz"
    with tarfile.open(path, "w:gz") as made:
        member = tarfile.TarInfo(name)
        member.size = 1
        made.addfile(member, io.BytesIO(b"x"))
    with config.patch(cache_dir=str(tmp_path / "two")), pytest.raises(UserError, match="unexpected member"):
        cache.import_(path)
    assert not (tmp_path / "evil").exists()


def test_a_file_that_is_no_bundle(tmp_path):
    (tmp_path / "x").write_text("hello")
    with config.patch(cache_dir=str(tmp_path / "two")), pytest.raises(UserError, match="cannot be imported"):
        cache.import_(tmp_path / "x")


def test_changed_content_is_found_when_it_is_read(bundle, tmp_path):
    with tarfile.open(bundle) as made, tarfile.open(tmp_path / "changed.tgz", "w:gz") as changed:
        for member in made:
            content = made.extractfile(member).read()
            content = b"evil" if member.name.endswith(".so") else content
            member.size = len(content)
            changed.addfile(member, io.BytesIO(content))
    with config.patch(cache_dir=str(tmp_path / "two")):
        cache.import_(tmp_path / "changed.tgz")
        with pytest.warns(CacheWarning, match="checksum differs"):
            assert open_store("kernels").get(KEYS[0], ".so") is None


def test_report(bundle, tmp_path):
    events.reset()
    with config.patch(cache_dir=str(tmp_path / "one")):
        open_store("kernels").get(KEYS[0], ".so")
        open_store("kernels").get(make_key(text="other"), ".so")
        text = cache.report()
    assert "kernels: 3 entries" in text
    assert "this process: 1 hit, 1 miss" in text
    assert "miss kernels: no such entry" in text

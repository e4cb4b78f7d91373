"""Bundles: a cache carried to another folder."""

import hashlib
import io
import json
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


def test_entries_do_not_go_where_others_write(bundle, tmp_path):
    (tmp_path / "two" / "v1").mkdir(mode=0o700, parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "two" / "v1" / "kernels").symlink_to(tmp_path / "elsewhere")
    with config.patch(cache_dir=str(tmp_path / "two")), pytest.raises(UserError, match="cannot be imported"):
        cache.import_(bundle)
    assert list((tmp_path / "elsewhere").iterdir()) == []


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


def changed(bundle, path, change):
    """The bundle with each file as `change(name, content)` makes it."""
    with tarfile.open(bundle) as made, tarfile.open(path, "w:gz") as other:
        for member in made:
            content = change(member.name, made.extractfile(member).read())
            member.size = len(content)
            other.addfile(member, io.BytesIO(content))
    return path


CHANGES = {
    "content": lambda name, content: b"evil" if name.endswith(".so") else content,
    "manifest": lambda name, content: content.replace(b"a", b"b") if name == "manifest.json" else content,
    "no manifest": lambda name, content: b"" if name == "manifest.json" else content,
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_changed_on_the_way_is_refused(what, bundle, tmp_path):
    path = changed(bundle, tmp_path / "changed.tgz", CHANGES[what])
    with config.patch(cache_dir=str(tmp_path / "two")):
        with pytest.raises(UserError, match="manifest"):
            cache.import_(path)
        assert not list(open_store("kernels").entries())


def test_content_that_differs_from_its_checksum_is_found_when_it_is_read(bundle, tmp_path):
    evil = {}

    def change(name, content):
        if name == "manifest.json":
            said = json.loads(content)
            evil.update({one: hashlib.sha256(b"evil").hexdigest() for one in said if one.endswith(".so")})
            return json.dumps({**said, **evil}).encode()
        return b"evil" if name in evil else content

    path = changed(bundle, tmp_path / "changed.tgz", change)
    with config.patch(cache_dir=str(tmp_path / "two")):
        cache.import_(path)
        with pytest.warns(CacheWarning, match="checksum differs"):
            assert open_store("kernels").get(KEYS[0], ".so") is None


def test_a_bundle_is_signed_with_a_key(bundle, tmp_path):
    with config.patch(cache_dir=str(tmp_path / "one")):
        cache.export(tmp_path / "signed.tgz", key=b"secret")
    with config.patch(cache_dir=str(tmp_path / "two")):
        for path, key in ((bundle, b"secret"), (tmp_path / "signed.tgz", b"other")):
            with pytest.raises(UserError, match="not signed with this key"):
                cache.import_(path, key=key)
        assert cache.import_(tmp_path / "signed.tgz", key=b"secret") == 3


def test_the_same_cache_is_the_same_manifest(bundle, tmp_path):
    with config.patch(cache_dir=str(tmp_path / "one")):
        cache.export(tmp_path / "again.tgz")
    texts = [tarfile.open(path).extractfile("manifest.json").read() for path in (bundle, tmp_path / "again.tgz")]
    assert texts[0] == texts[1]


def test_report(bundle, tmp_path):
    events.reset()
    with config.patch(cache_dir=str(tmp_path / "one")):
        open_store("kernels").get(KEYS[0], ".so")
        open_store("kernels").get(make_key(text="other"), ".so")
        text = cache.report()
    assert "kernels: 3 entries" in text
    assert "this process: 1 hit, 1 miss" in text
    assert "miss kernels: no such entry" in text

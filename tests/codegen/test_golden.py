"""The text of some twenty kernels is what it was; `python -m tests.codegen.golden_kernels` accepts what it is now."""

from codegen.golden_kernels import FOLDER, texts


def test_texts_are_what_they_were():
    kept = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    found = texts()
    assert found.keys() == kept.keys()
    changed = [name for name, text in found.items() if text != kept[name]]
    assert not changed, f"{changed}: see git diff after `python -m tests.codegen.golden_kernels`"

"""What a page has: each break, graph, kernel and guard, with its line; texts as texts; nothing from elsewhere."""

import re
import subprocess
import sys
from shutil import which

import pytest
import torch
from tests.report import programs
from tests.report.tree import read

import pliant
from pliant.debug.events import Event
from pliant.report import page, recording, sources
from pliant.report.graphs import graphs_of


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The recording of all programs, and the page about it."""
    path = tmp_path_factory.mktemp("report") / "page.html"
    pliant.reset()
    with pliant.report.to(path, title="a <title>") as record:
        programs.run_all()
    return record, path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def record(made):
    return made[0]


@pytest.fixture(scope="module")
def root(made):
    return read(made[1])


def by_id(root, id):
    return next(one for one in root.all() if one.id == id)


def line(root, text):
    """The element of the line of the programs' file that has the text."""
    number = programs.line_of(text)
    found = [one for one in root.all("div", "line") if one.id and one.id.endswith(f"-{number}") and text in one.text]
    assert len(found) == 1, text
    return found[0]


def links_to(root, id):
    return [one for one in root.all("a") if one.attributes.get("href") == f"#{id}"]


def test_ids_are_unique_and_all_links_lead_somewhere(root):
    ids = [one.id for one in root.all() if one.id]
    assert len(ids) == len(set(ids))
    targets = [one.attributes["href"] for one in root.all("a")]
    assert targets and all(target.startswith("#") for target in targets)
    assert {target[1:] for target in targets} <= set(ids)


def test_nothing_comes_from_elsewhere(made):
    _, text = made
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)|url\(|@import|https?://|\bfetch\(|XMLHttpRequest""", text)
    assert "default-src 'none'" in text


def test_texts_of_the_program_are_texts(root, made):
    assert "a <title>" in next(root.all("h1")).text
    assert len(list(root.all("script"))) == 1
    assert 'document.title = "taken"' in line(root, "größe").text
    assert "asked <b>for</b> & meant" in next(root.all("div", "break")).text


def test_a_break_is_at_its_line_with_reason_and_remedy(root):
    where = line(root, "pliant.graph_break(")
    assert "has-break" in where.classes
    notes = list(root.all("div", "note"))
    (note,) = [one for one in notes if "break" in one.classes]
    assert "user-request" in note.text and "remove the marker" in note.text
    following = where.parent.children[where.parent.children.index(where) + 1]
    assert following is note


@pytest.mark.parametrize("text, node", [("x @ w, -1)", "softmax"), ("gelu(x @ w)", "gelu"), ("torch.cat(", "cat")])
def test_graphs_are_linked_with_lines_both_ways(root, text, node):
    where = line(root, text)
    items = [one for one in by_id(root, "graphs").all("li") if (one.id or "").endswith(f"-{node}")]
    assert items
    for item in items:
        assert item.attributes["data-line"] == where.id
        assert [one for one in where.all("a") if one.attributes["href"] == f"#{item.id}"]


def test_small_graphs_are_drawn_with_links(root):
    where = line(root, "x @ w, -1)")
    boxes = [one for one in root.all("a", "box") if one.attributes["href"] == f"#{where.id}"]
    assert {next(box.all("text")).text for box in boxes} == {"matmul", "softmax"}


def test_each_step_names_its_nodes_lines_and_code(root, record):
    steps = list(by_id(root, "kernels").all("details", "step"))
    assert len(steps) == sum(len(event.fields["rows"]) for event in record.of("kernels"))
    (softmax,) = [one for one in steps if "softmax" in next(one.all("summary")).text]
    where = line(root, "x @ w, -1)")
    assert links_to(softmax, where.id) and links_to(where, softmax.id)
    code = next(softmax.all("pre", "code"))
    assert "for (" in code.text
    comments = links_to(code, where.id)
    assert comments and all(one.text.startswith("// src aten.") for one in comments)


def test_a_kernel_has_the_nodes_that_are_fused_in_it(tmp_path):
    pliant.reset()
    with pliant.report.to(tmp_path / "page.html") as record:
        pliant.compile(lambda x, w: ((x.sin() + 1).sum(-1), (x.cos() @ w).exp()))(torch.ones(8, 16), torch.ones(16, 4))
    (program,) = graphs_of(record)[1]
    fused = {tuple(row.name for row in step.nodes) for step in program.steps}
    assert fused == {("sin", "add", "sum_1", "cos"), ("mm",), ("exp",)}  # both read `x` over the same points


def test_between_kernels_it_says_why_they_are_two(tmp_path):
    pliant.reset()
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.GELU())
    with pliant.report.to(tmp_path / "page.html") as record:
        pliant.compile(lambda x: (model(x).softmax(-1), x.softmax(0)))(torch.ones(300, 16))
    reasons = [row.apart for event in record.of("kernels") for row in event.fields["rows"] if row.apart]
    root = read((tmp_path / "page.html").read_text(encoding="utf-8"))
    shown = [one.text for one in by_id(root, "kernels").all("p", "apart")]
    assert reasons and [one.partition(": ")[2] for one in shown] == reasons
    assert all(one.startswith("not one kernel with ") for one in shown)


def test_derivatives_are_at_the_line_that_they_are_of(root):
    where = line(root, "gelu(x @ w)")
    steps = [one for one in by_id(root, "kernels").all("details", "step") if "gelu_backward" in one.text]
    assert steps and links_to(steps[0], where.id)


def test_every_guard_is_there_with_its_line(root, record):
    rows = list(next(by_id(root, "guard-table").all("tbody")).all("tr"))
    guards = record.of("guard")
    assert len(rows) == len(guards) > 10
    for row, event in zip(rows, guards):
        assert " ".join(str(event.fields["text"]).split()) in row.text
        if event.fields["where"]:
            assert any(f":{event.fields['where'].line}" in a.text for a in row.all("a"))


def test_recompiles_say_why(root, record):
    words = list(by_id(root, "timeline").all("li", "recompile"))
    assert len(words) == len(record.of("recompile")) == 2
    assert "size of dimension 0 of `x` was 4, is 5" in words[0].text
    notes = [one.text for one in root.all("div", "note") if "recompile" in one.classes]
    assert any("size of dimension 0" in one for one in notes)


def test_the_summary_counts(root, record):
    cards = {one.text.partition(" ")[2]: one.text.partition(" ")[0] for one in next(root.all("ul", "cards")).all("li")}
    assert cards["graph breaks"] == "1" and cards["recompiles"] == "2"
    assert cards["graphs"] == str(len([e for e in record.of("nodes") if e.fields["level"] == "captured"]))


def test_stages_are_drawn_inside_of_each_other(record):
    from pliant.report.charts import flames

    (chart, *_) = flames(record.of("stage"), record.start)
    assert {"compile", "capture", "joint", "lower"} <= {bar.name for bar in chart.bars}
    outer = [bar for bar in chart.bars if bar.depth == 0]
    for bar in chart.bars:
        assert 0 <= bar.left <= bar.left + bar.width <= 1.0001
        assert bar.depth == 0 or any(o.left <= bar.left and bar.left + bar.width <= o.left + o.width + 1e-6 for o in outer)


def test_memory_is_beside_eagers(root):
    captions = {next(one.all("a")).text: one.text for one in by_id(root, "memory").all("figcaption")}
    assert captions["varies"].startswith("varies: at most ") and "eager" in captions["varies"]


def test_costs_are_formulas_in_sizes(root):
    rows = [one.text for one in by_id(root, "cost").all("tr")]
    assert any("s0" in row and "x.size(0)" in row for row in rows)
    (step,) = [row for row in rows if row.startswith("step_forward")]
    assert "1,024" in step  # 2 * 4 * 8 * 16


def test_calls_are_measured_if_asked(tmp_path):
    pliant.reset()
    compiled = pliant.compile(lambda x: (x.sin() + 1).sum(-1))
    with pliant.report.to(tmp_path / "page.html", profile=True) as record:
        for _ in range(3):
            compiled(torch.ones(64, 64))
    assert record.seconds
    text = read((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "B/s" in by_id(text, "roofline").text


def test_memory_of_calls_is_measured_beside_what_was_planned(tmp_path):
    pliant.reset()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.GELU(), torch.nn.Linear(64, 64))
    compiled, x = pliant.compile(model), torch.ones(128, 64)

    def infer():
        with torch.no_grad():
            return compiled(x)

    def train():
        compiled(x).sum().backward()

    with pliant.report.to(tmp_path / "page.html") as report:
        for call in (infer, train):
            call()
            report.measure(call)
        result = report.measure(infer)
    assert torch.equal(result, infer())
    inference, training, again = [call.devices[0] for call in report.memory]
    assert inference == again and (inference.device, inference.kept) == ("cpu", result.nbytes)
    assert result.nbytes < inference.peak <= inference.total < training.total
    rows = [[cell.text for cell in row.all("td")] for row in by_id(read((tmp_path / "page.html").read_text("utf-8")), "measured").all("tr")][1:]
    assert [row[0] for row in rows] == ["infer", "train", "infer"] and all(row[1] == "cpu" for row in rows)
    assert all("B" in row[6] for row in rows)
    (first, *_) = page._measured(report, graphs_of(report)[0])
    assert [result.nbytes < peak <= inference.peak for _, peak in first["planned"]] == [True]


def test_memory_is_not_measured_while_something_is_profiled(tmp_path):
    with pytest.raises(pliant.errors.ConfigError, match="something else is profiled"):
        with pliant.report.to(tmp_path / "page.html", profile=True) as report:
            report.measure(lambda: torch.ones(3))


@pytest.mark.fallbacks_expected
def test_nothing_compiled_is_a_page(tmp_path):
    with pliant.report.to(tmp_path / "page.html"):
        pass
    text = read((tmp_path / "page.html").read_text(encoding="utf-8")).text
    assert "Nothing was compiled" in text


def test_a_failing_program_has_a_page_that_says_so(tmp_path):
    with pytest.raises(ZeroDivisionError), pliant.report.to(tmp_path / "page.html"):
        pliant.compile(lambda x: x + 1)(torch.ones(2))
        1 / 0  # noqa: B018
    root = read((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "ZeroDivisionError" in next(root.all("p", "alarm")).text
    assert list(by_id(root, "graphs").all("li"))


def test_nobody_listens_after_the_block(tmp_path):
    from pliant.debug import events

    assert not events.wants("nodes") and not events.wants("kernels")
    with pliant.report.to(tmp_path / "page.html"):
        assert events.wants("nodes") and events.wants("kernels") and events.wants("eager_memory")
    assert not events.wants("nodes") and not events.wants("kernels")


def _long(tmp_path, lines):
    """A recording of breaks at many lines of a long file."""
    path = tmp_path / "long.py"
    path.write_text("x = 1\n" * lines)
    record = recording.Recording("long")
    for number in range(1, lines, 7):
        where = pliant.source.SourceLocation(str(path), number, "f")
        fields = {"name": "f", "reason": "r", "why": "w" * 50, "do": "d", "where": where}
        record.note(Event("graph_break", float(number), 1, fields))
    return record


def test_long_programs_have_bounded_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MOST_LINES", 500)
    text = page.page_of(_long(tmp_path, 20_000))
    root = read(text)
    assert len(list(root.all("div", "line"))) <= 500
    assert re.search(r"\d,\d{3} lines that something is said of are left out", root.text)
    assert "more events are left out" in root.text
    assert len(text) < 1_000_000


def test_what_did_not_fit_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "MOST_EVENTS", 10)
    root = read(page.page_of(_long(tmp_path, 200)))
    assert "events of the kind graph_break did not fit in" in root.text


def test_files_that_are_gone_show_what_is_said_of_their_lines():
    record = recording.Recording("gone")
    where = pliant.source.SourceLocation("<a string>", 7, "f")
    record.note(Event("graph_break", 0.0, 1, {"name": "f", "reason": "r", "why": "w", "do": "d", "where": where}))
    root = read(page.page_of(record))
    assert "cannot be read" in root.text and [one.text for one in root.all("div", "line")] == ["7"]


@pytest.mark.parametrize("arguments, code", [([], 2), (["page.html"], 2), (["--profile", "page.html"], 2), (["page.html", "-x"], 2)])
def test_the_command_tells_its_usage(arguments, code, capsys):
    from pliant.report.__main__ import main

    assert main(arguments) == code and "usage:" in capsys.readouterr().err


@pytest.mark.multiprocess
def test_the_command_runs_a_script_as_python_does(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, pliant\n"
        "assert __name__ == '__main__' and sys.argv[1:] == ['3'], sys.argv\n"
        "pliant.compile(lambda x: x.sin() + 1)(torch.ones(int(sys.argv[1])))\n"
        "sys.exit(5)\n"
    )
    target = tmp_path / "page.html"
    command = [sys.executable, "-m", "pliant.report", str(target), str(script), "3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 5, done.stderr
    root = read(target.read_text(encoding="utf-8"))
    assert "script.py 3" in next(root.all("h1")).text
    assert [one for one in root.all("div", "line") if "x.sin()" in one.text]


@pytest.mark.skipif(which("node") is None, reason="no node")
def test_the_script_is_javascript(tmp_path):
    (tmp_path / "page.js").write_text(page._text("page.js"))
    subprocess.run(["node", "--check", str(tmp_path / "page.js")], check=True)


def test_a_backward_is_joined_with_the_graph_that_it_is_of(tmp_path):
    pliant.reset()
    compiled = pliant.compile(lambda x, w: torch.tanh(x @ w).sum())
    w = torch.ones(3, 3, requires_grad=True)
    with pliant.report.to(tmp_path / "page.html") as record:
        first, second = compiled(torch.ones(2, 3), w), compiled(torch.ones(4, 3), w)
        second.backward()
        first.backward()
    captured, programs = graphs_of(record)
    assert len(captured) == 2
    for graph in captured:
        assert [one.name.rpartition("_")[2] for one in graph.programs] == ["forward", "backward"]
    shapes = [next(row.text for row in graph.rows if row.name == "x") for graph in captured]
    assert shapes[0] != shapes[1]
    for graph in captured:  # gradients of `w` read `x`, whose rows are that graph's
        rows = "\n".join(row.text for row in graph.programs[1].rows)
        assert ("[2, 3]" in rows) == ("[2, 3]" in "\n".join(row.text for row in graph.rows))


def test_a_folder_that_is_not_there_is_told_at_once(tmp_path):
    with pytest.raises(pliant.errors.ConfigError, match="there is no folder"), pliant.report.to(tmp_path / "none" / "page.html"):
        raise AssertionError

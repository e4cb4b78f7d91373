"""The page in a browser that is installed here: it is laid out without an error, and what is pressed and chosen does what it
says. A copy of the page has a script of the test at its end, whose findings are read from the document afterwards."""

import json
import re
import subprocess
from shutil import which

import pytest
from tests.report import programs

import pliant

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next(filter(None, map(which, _BROWSERS)), None)
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome is installed"),
    pytest.mark.multiprocess,
    pytest.mark.slow,
]
_FOUND = re.compile(r'<output id="found">(.*?)</output>', re.S)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "page.html"
    pliant.reset()
    with pliant.report.to(path):
        programs.run_all()
    return path.read_text(encoding="utf-8")


def ask(tmp_path, text, script, *options, hash=""):
    """What the function body returns in the page, when it has been laid out; `errors` of scripts before."""
    early = "<script>window.errors = []; addEventListener('error', (e) => errors.push(String(e.message)));</script>"
    late = f"""<script>addEventListener("load", () => {{
      const found = (() => {{ {script} }})();
      const output = document.createElement("output");
      output.id = "found";
      output.textContent = JSON.stringify({{found, errors}});
      document.body.append(output);
    }});</script>"""
    path = tmp_path / "page.html"
    path.write_text(text.replace("<title>", f"{early}<title>", 1).replace("</body>", f"{late}</body>"), encoding="utf-8")
    command = [
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'profile'}",
        *(options or ["--window-size=1280,900"]), "--dump-dom", f"file://{path}{hash}",
    ]  # fmt: skip
    document = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    answer = json.loads(re.sub(r"&(amp|lt|gt);", lambda m: {"amp": "&", "lt": "<", "gt": ">"}[m[1]], _FOUND.search(document)[1]))
    assert answer["errors"] == []
    return answer["found"]


@pytest.mark.parametrize("size", ["1280,900", "375,800"])
def test_nothing_is_wider_than_the_window(tmp_path, text, size):
    wide, inside = ask(
        tmp_path, text, "return [document.documentElement.scrollWidth, innerWidth];", f"--window-size={size}"
    )  # fmt: skip
    assert wide <= inside


def test_colours_are_those_that_are_preferred(tmp_path, text):
    read = "return getComputedStyle(document.body).backgroundColor;"
    light = ask(tmp_path, text, read)
    dark = ask(tmp_path, text, read, "--blink-settings=preferredColorScheme=0")
    assert light == "rgb(255, 255, 255)" and dark not in (light, "rgba(0, 0, 0, 0)")


def test_texts_of_the_program_run_nothing(tmp_path, text):
    assert "taken" not in ask(tmp_path, text, "return document.title;")


def test_what_a_link_leads_to_is_opened(tmp_path, text):
    script = """
      const step = document.querySelector("#kernels .step");
      const before = step.open;
      location.hash = step.id;
      dispatchEvent(new HashChangeEvent("hashchange"));
      return [before, step.open, step.closest(".program").open];"""
    assert ask(tmp_path, text, script) == [False, True, True]


def test_what_comes_from_a_line_is_lit_with_it(tmp_path, text):
    script = """
      const node = document.querySelector("#graphs .nodes li[data-line]");
      node.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
      const line = document.getElementById(node.dataset.line);
      const together = line.classList.contains("lit") && node.classList.contains("lit");
      document.body.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
      return [together, document.querySelectorAll(".lit").length];"""
    assert ask(tmp_path, text, script) == [True, 0]


def test_guards_are_filtered(tmp_path, text):
    script = """
      const field = document.getElementById("filter");
      field.value = "tensor (4, 8)";
      field.dispatchEvent(new Event("input"));
      const rows = [...document.querySelectorAll("#guard-table tbody tr")];
      return [rows.length, rows.filter((one) => !one.hidden).length, document.getElementById("filtered").textContent];"""
    rows, shown, said = ask(tmp_path, text, script)
    assert 0 < shown < rows and said == f"{shown} of {rows}"


def test_bars_are_enlarged_by_keys_and_back(tmp_path, text):
    script = """
      const bar = [...document.querySelectorAll(".bar")].find((one) => one.textContent.startsWith("capture"));
      const chart = bar.closest(".flames");
      const width = () => bar.getBoundingClientRect().width;
      const before = width();
      bar.focus();
      bar.click();
      const after = width();
      bar.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape", bubbles: true}));
      return [document.activeElement === bar, after > before, after / chart.clientWidth, width() === before];"""
    focused, larger, part, back = ask(tmp_path, text, script)
    assert focused and larger and back and part == pytest.approx(1, abs=0.02)


def test_all_is_open_on_paper(tmp_path, text):
    script = """
      const closed = () => document.querySelectorAll("details:not([open])").length;
      const before = closed();
      dispatchEvent(new Event("beforeprint"));
      const paper = closed();
      dispatchEvent(new Event("afterprint"));
      return [before > 0, paper, closed() === before];"""
    assert ask(tmp_path, text, script) == [True, 0, True]

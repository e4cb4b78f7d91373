"""Options: declared types hold whatever way a value comes in, and patches end."""

import ast
import importlib.util
import re
import runpy
import subprocess
import sys
import threading

import pytest

import architecture
from pliant import config
from pliant.debug import events
from pliant.errors import ConfigError


def test_patch_is_a_context_manager():
    before = config.get().capture.recompile_limit
    with config.patch(recompile_limit=3, **{"build.build_jobs": 2}):
        assert config.get().capture.recompile_limit == 3
        assert config.current.build.build_jobs == 2
        with config.patch(recompile_limit=4):
            assert config.get().capture.recompile_limit == 4
        assert config.get().capture.recompile_limit == 3
    assert config.get().capture.recompile_limit == before


def test_patch_is_a_decorator_that_works_twice():
    @config.patch(strict=True)
    def strict():
        return config.get().general.strict

    assert (strict(), strict(), config.get().general.strict) == (True, True, config.Config().general.strict)


def test_patch_ends_when_the_block_raises():
    with pytest.raises(KeyError), config.patch(fuse=False):
        raise KeyError
    assert config.get().schedule.fuse


def test_patch_holds_in_its_own_thread_only():
    seen = []
    with config.patch(build_jobs=7):
        thread = threading.Thread(target=lambda: seen.append(config.get().build.build_jobs))
        thread.start()
        thread.join()
    assert seen == [config.get().build.build_jobs]


def test_unknown_option_suggests_the_near_miss():
    with pytest.raises(ConfigError) as caught:
        config.overrides_of(None, {"recompile_limits": 3})
    assert str(caught.value) == (
        "ConfigError [unknown-option]: unknown option `recompile_limits`\n"
        "  why  no option has this name\n"
        "  do   did you mean `recompile_limit`? see `python -m pliant.config` for every option, its type and its default"  # noqa: E501 - the text as it is printed
    )


def test_option_of_another_section_is_unknown():
    with pytest.raises(ConfigError):
        config.find("build.recompile_limit")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("recompile_limit", True, "it must be int, not bool"),
        ("recompile_limit", "8", "it must be int, not str"),
        ("strict", 1, "it must be bool, not int"),
        ("dynamic", "some", "it must be one of 'auto', 'all', 'off'"),
        ("opt_flags", (1,), "it must be tuple[str, ...], not tuple"),
    ],
)
def test_wrong_type_is_refused(name, value, why):
    with pytest.raises(ConfigError, match="wrong-type") as caught:
        config.Config().with_options({name: value})
    assert caught.value.why == why


@pytest.mark.parametrize(("name", "value"), [("memory_budget", 1), ("opt_flags", ["-O2"]), ("stop_after", "lower")])
def test_close_enough_types_are_taken(name, value):
    assert config.Config().with_options({name: value}).value(name) in (
        value,
        tuple(value) if value != 1 else 1.0,
    )


def test_modes_are_options_and_options_win():
    assert config.overrides_of("max-autotune", {"fuse": False}) == {"fuse": False}
    for mode in config.MODES:
        config.Config().with_options(config.overrides_of(mode, None))
    with pytest.raises(ConfigError, match="did you mean 'max-autotune'"):
        config.overrides_of("max-autotun", None)


def test_code_key_lists_what_code_depends_on():
    base = config.Config()
    assert base.with_options({"strict": True}).code_key is base.code_key
    assert base.with_options({"fuse": False}).code_key is not base.code_key
    assert ("fuse", "True") in base.key_parts()
    assert "cache_dir" not in dict(base.key_parts())


def test_environment_is_parsed_by_type():
    env = {"PLIANT_STRICT": "1", "PLIANT_RECOMPILE_LIMIT": "2", "PLIANT_CFLAGS": "-O1 -g", "CC": "clang"}
    made = config.from_environment(env)
    assert (made.general.strict, made.capture.recompile_limit) == (True, 2)
    assert (made.build.opt_flags, made.build.compiler) == (("-O1", "-g"), "clang")
    assert config.from_environment(env | {"PLIANT_CC": "gcc"}).build.compiler == "gcc"


def test_environment_error_names_the_variable():
    with pytest.raises(ConfigError) as caught:
        config.from_environment({"PLIANT_RECOMPILE_LIMIT": "many"})
    assert str(caught.value) == (
        "ConfigError [wrong-type]: option `recompile_limit` cannot be 'many'\n"
        "  environment variable PLIANT_RECOMPILE_LIMIT\n"
        "  why  it must be int, not str\n"
        "  do   pass such a value; the default is 8"
    )


def test_every_option_is_documented_and_has_its_own_default():
    for known in config.OPTIONS.values():
        assert known.doc and known.stage, known.name
        assert config.Config().with_options({known.name: known.default}) == config.Config()


def test_options_print_as_a_page():
    text = subprocess.run([sys.executable, "-m", "pliant.config"], capture_output=True, text=True, check=True).stdout
    assert "capture.recompile_limit: int = 8" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("recompile_limit", 0),
        ("recompile_limit", -1),
        ("inline_depth", 0),
        ("memory_budget", -0.1),
        ("memory_budget", 1.5),
        ("memory_budget", float("nan")),
        ("fusion_limit", 0),
        ("build_jobs", -1),
        ("build_jobs", -1),
        ("build_timeout", 0.0),
        ("cache_bytes", -1),
    ],
)
def test_a_value_out_of_range(name, value):
    with pytest.raises(ConfigError, match=f"option `{name}` cannot be {value}(.|\n)*it must be (at least|from)"):
        config.Config().with_options({name: value})


def test_each_number_has_a_range():
    numbers = [o for o in config.OPTIONS.values() if o.type in (int, float)]
    assert all(o.range[0] > -float("inf") and o.range[0] <= o.default <= o.range[1] for o in numbers)


def test_every_option_is_read():
    """As `config.get().section.name`, or of a section that a function was given; or followed by its name."""
    trees = [ast.parse(f.read_text()) for f in architecture.sources() if architecture.module_name(f) != "pliant.config"]
    read = {(ast.unparse(n.value), n.attr) for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    calls = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Call)]
    followed = {n.args[0].value for n in calls if ast.unparse(n.func) == "config.follow"}
    unread = [
        option.name
        for option in config.OPTIONS.values()
        if option.name not in followed and not any(name == option.name and base.endswith((option.section, "options")) for base, name in read)
    ]
    assert not unread


def test_dotted_names_go_in_a_dictionary():
    with config.patch({"capture.recompile_limit": 3}, fuse=False) as found:
        assert found.capture.recompile_limit == 3 and not found.schedule.fuse


@pytest.mark.parametrize("asked", [lambda **o: config.patch(**o).__enter__(), lambda **o: config.overrides_of(None, o)])
def test_options_of_the_whole_process_are_none_of_a_block_or_function(asked):
    for option in ("logs", "print_stages", "debug_dir"):
        with pytest.raises(ConfigError, match=rf"PLIANT_.* or call pliant.config.update\({option}="):
            asked(**{option: "graphs"})


def test_options_are_no_attributes_of_the_module():
    with pytest.raises(ConfigError, match=r"call pliant\.config\.update\(fuse=False\)"):
        config.fuse = False


def test_logs_follow_updates(capsys):
    config.update(logs="graphs")
    try:
        events.record("graph", name="f", nodes=1, seconds=0.0)
        with pytest.raises(ConfigError):
            config.update(logs="grphs")
        assert config.get().debug.logs == "graphs"
    finally:
        config.update(logs="")
    events.record("graph", name="g", nodes=1, seconds=0.0)
    assert "compiled f" in (said := capsys.readouterr().err) and "compiled g" not in said


def test_the_package_run_as_a_program_names_its_commands(capsys):
    runpy.run_module("pliant", run_name="__main__", alter_sys=True)
    said = capsys.readouterr().out
    commands = re.findall(r"python -m (\S+)", said)
    assert len(commands) >= 3 and all(importlib.util.find_spec(name) for name in commands)
    variables = re.findall(r"PLIANT_\w+", said)
    assert variables and all(any(name in option.env for option in config.OPTIONS.values()) for name in variables)

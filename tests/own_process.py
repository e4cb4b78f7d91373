"""Programs in processes of their own that find PyTorch loaded: loading it is most of what a small program would take.

In:     a program, as text or in a file.
Out:    `ran(program, *arguments)`: a `subprocess.CompletedProcess`, as of `python -c program *arguments` or `python file *arguments`.
Holds:  a server has imported PyTorch and nothing else; each program runs in a fork of it, with the environment, folder and paths
        that it would have. The seed of hashes is the server's, and flags of the interpreter are: programs about these, or
        about what is there before PyTorch is loaded, are for `subprocess`.
"""

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import types
from pathlib import Path

_servers = {}  # by the process that started it


def ran(program, *arguments, env=None, cwd=None, check=False):
    """What came of it; `check`: an AssertionError with what it said where it failed."""
    with tempfile.TemporaryDirectory(prefix="pliant-tests-") as folder:
        told = [Path(folder, name) for name in ("stdout", "stderr")]
        code = _asked({
            "program": str(program), "is_file": isinstance(program, Path), "arguments": list(map(str, arguments)),
            "environment": dict(os.environ if env is None else env), "folder": str(cwd or os.getcwd()), "files": list(map(str, told)),
        })  # fmt: skip
        done = subprocess.CompletedProcess([str(program), *arguments], code, *(one.read_text(errors="replace") for one in told))
    assert not (check and done.returncode), done.stderr[-3000:]
    return done


def _asked(question):
    server = _servers.get(os.getpid())
    if server is None or server.poll() is not None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [sys.executable, __file__]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, process_group=0)
        _servers[os.getpid()] = server
        atexit.register(_end, server)
    try:
        server.stdin.write(json.dumps(question) + "\n")
        server.stdin.flush()
        return int(server.stdout.readline())
    except BaseException:  # a test that took too long: its program ends, the next has another server
        os.killpg(server.pid, signal.SIGKILL)
        raise


def _end(server):
    server.stdin.close()
    server.wait()
    server.stdout.close()


# ---- the server


def _serve():
    import torch  # noqa: F401

    del sys.path[0]  # the folder of this file
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return json.loads(line)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


def _run(program, is_file, arguments, environment, folder, files):
    for place, file in enumerate((os.devnull, *files)):
        opened = os.open(file, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, place)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    gc.unfreeze()
    paths = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
    sys.path[:0] = [os.path.dirname(program) if is_file else "", *paths]
    sys.argv = [program if is_file else "-c", *arguments]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if is_file:
        main.__file__ = program
    exec(compile(Path(program).read_text() if is_file else program, program if is_file else "<string>", "exec"), main.__dict__)


if __name__ == "__main__":
    asked = _serve()
    if asked is not None:
        _run(**asked)

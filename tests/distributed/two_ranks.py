"""Run a table of programs in two processes, once."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import quick_build


def run(module, kind="cpu"):
    """What each process found, by the row's name: [that of rank 0, that of rank 1]. `kind`: "cpu" or "cuda", a GPU each."""
    with tempfile.TemporaryDirectory() as folder:
        paths = os.pathsep.join(p for p in sys.path if p)
        environment = {**os.environ, **quick_build.ENVIRONMENT, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.distributed.worker", module]
        logs = [Path(folder, f"log{rank}") for rank in range(2)]
        processes = [
            subprocess.Popen(
                [*command, str(rank), folder, kind], env=environment, stdout=log.open("w"), stderr=subprocess.STDOUT
            )
            for rank, log in enumerate(logs)
        ]
        try:
            codes = [process.wait(timeout=280) for process in processes]
        finally:
            for process in processes:
                process.kill()
        files = [Path(folder, f"rank{rank}.json") for rank in range(2)]
        found = [json.loads(file.read_text()) if file.exists() else {} for file in files]
        said = "\n".join(log.read_text()[-3000:] for log in logs)
    return Results(found, codes, said)


class Results:
    def __init__(self, found, codes, said):
        self.found, self.codes, self.said = found, codes, said

    def __getitem__(self, name):
        for one in self.found:
            assert name in one, f"{name} was not reached\n{self.said}"
        return [one[name] for one in self.found]

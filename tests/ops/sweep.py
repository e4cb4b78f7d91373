"""Run cases of torch.testing's databases in worker processes: `python tests/ops/sweep.py op --out results.jsonl`.

In:     kinds of cases, and parts of names to select some.
Out:    one JSON line a case, and a summary. Cases that the file has already are not run again.
Holds:  a case that exceeds its time, or kills its process, is a failure of that case alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from dataclasses import asdict
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

Row = dict[str, Any]


def _work(pipe: Connection) -> None:
    """A worker: takes names, answers verdicts."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    from ops.databases import run_case

    torch.set_num_threads(1)
    while True:
        name = pipe.recv()
        try:
            pipe.send(asdict(run_case(name)))
        except Exception as error:  # the case could not even be built
            pipe.send({"status": "error", "why": f"{type(error).__name__}: {str(error)[:300]}"})


class _Worker:
    """A process and the case that it runs."""

    def __init__(self) -> None:
        self.pipe, end = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(target=_work, args=(end,), daemon=True)
        self.process.start()
        end.close()
        self.name, self.since, self.done = "", 0.0, 0

    def start(self, name: str) -> None:
        self.name, self.since = name, time.monotonic()
        self.pipe.send(name)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def _finish(worker: _Worker, limit: float) -> Row | None:
    """The row of the worker's case once there is one."""
    seconds = round(time.monotonic() - worker.since, 2)
    if worker.pipe.poll():
        try:
            return {"case": worker.name, "seconds": seconds, **worker.pipe.recv()}
        except EOFError:
            return {"case": worker.name, "seconds": seconds, "status": "died", "why": "the process ended"}
    if seconds > limit:
        return {"case": worker.name, "seconds": seconds, "status": "time", "why": f"more than {limit} s"}
    return None


def sweep(names: list[str], out: Path, jobs: int, limit: float) -> None:
    """Run the cases; append a row each."""
    waiting = list(reversed(names))
    workers = [_Worker() for _ in range(min(jobs, len(names)))]
    busy: list[_Worker] = []
    with out.open("a") as file:
        while waiting or busy:
            for number, worker in enumerate(workers):
                if worker not in busy and waiting:
                    worker.start(waiting.pop())
                    busy.append(worker)
            wait([w.pipe for w in busy], timeout=0.5)
            for worker in list(busy):
                row = _finish(worker, limit)
                if row is None:
                    continue
                busy.remove(worker)
                file.write(json.dumps(row) + "\n")
                file.flush()
                worker.done += 1
                if row["status"] in ("time", "died") or worker.done == 150:  # a fresh process also bounds memory
                    worker.stop()
                    workers[workers.index(worker)] = _Worker()
    for worker in workers:
        worker.stop()


def load(out: Path) -> list[Row]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def summary(rows: list[Row]) -> str:
    """Counts, and a line for each case that fails, breaks or falls back."""
    tried = [r for r in rows if r["status"] != "skip"]
    passed = [r for r in tried if r["status"] == "pass"]
    whole = [r for r in passed if r["whole"]]
    native = [r for r in whole if not r["fallback"]]
    lines = [f"{r['status']:6} {r['case']}: {r.get('why', '')}" for r in tried if r["status"] != "pass"]
    lines += [f"broken {r['case']}: {r['why']}" for r in passed if not r["whole"]]
    lines += [f"eager  {r['case']}: {r['fallback']}" for r in whole if r["fallback"]]
    count = max(len(tried), 1)
    lines.append(
        f"{len(tried)} cases that eager supports; {dict(Counter(r['status'] for r in rows))}; "
        f"passed {len(passed) / count:.1%}, one graph {len(whole) / count:.1%}, "
        f"compiled to the end {len(native) / count:.1%}"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=["op"])
    parser.add_argument("--out", type=Path, default=Path("sweep.jsonl"))
    parser.add_argument("--select", default="", help="part of the names of the cases to run")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a case")
    parser.add_argument("--again", action="store_true", help="run those again that did not pass")
    parser.add_argument("--device", default="cpu", help="where tensors are, of operators and modules")
    arguments = parser.parse_args()
    os.environ["SWEEP_DEVICE"] = arguments.device  # of the workers, too
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # else eager's own results have three digits
    from ops.databases import cases

    names = [n for kind in arguments.kinds for n in cases(kind) if arguments.select in n]
    rows = {r["case"]: r for r in load(arguments.out)}
    done = {n for n, r in rows.items() if not arguments.again or (r["status"] in ("pass", "skip") and r.get("whole"))}
    sweep([n for n in names if n not in done], arguments.out, arguments.jobs, arguments.limit)
    rows = {r["case"]: r for r in load(arguments.out)}
    print(summary([rows[n] for n in names]))


if __name__ == "__main__":
    main()

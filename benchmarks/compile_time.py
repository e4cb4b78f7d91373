"""How long compiling takes: `python -m benchmarks.compile_time [--peer] [--models bert]`.

cold: the first call, in a new process, with an empty cache; warm: the same in a second process.
sizes: seconds that four further sizes add. Each less the time of a steady call.
"""

from benchmarks.children import fresh_cache, options_for, print_row, run

WIDTHS = (12, 12, 12, 10, 10, 10, 14)


def main() -> None:
    options = options_for("Compile time, cold and warm.").parse_args()
    compilers = ["pliant", "peer"] if options.peer else ["pliant"]
    print_row(["model", "mode", "compiler", "cold s", "warm s", "sizes s", "cold/peer"], WIDTHS)
    for model in options.models:
        for mode in options.modes:
            rows = {compiler: times(compiler, model, mode) for compiler in compilers}
            for compiler, cells in rows.items():
                print_row([model, mode, compiler, *cells, against_peer(rows) if compiler == "pliant" else ""], WIDTHS)


def times(compiler: str, model: str, mode: str) -> list[float | str]:
    """Seconds cold, warm and for four further sizes; or why there are none."""
    with fresh_cache() as cache:
        cold = run(compiler, model, mode, cache, sizes=5, budget=0.1)
        warm = run(compiler, model, mode, cache, sizes=1, budget=0.1)
    if "failed" in cold or "failed" in warm:
        return [cold.get("failed") or warm["failed"]]
    return [cold["compile_s"][0], warm["compile_s"][0], float(sum(cold["compile_s"][1:]))]


def against_peer(rows: dict[str, list[float | str]]) -> str:
    ours, peers = rows["pliant"][0], rows.get("peer", [""])[0]
    return f"{ours / peers:.3f}" if isinstance(ours, float) and isinstance(peers, float) else ""


if __name__ == "__main__":
    main()

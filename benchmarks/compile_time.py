"""How long compiling takes: `python -m benchmarks.compile_time [--peer] [--models bert] [--layers 6 12 24]`.

cold: the first call, in a new process, with an empty cache; warm: the same in a second process.
sizes: seconds that four further sizes add. Each less the time of a steady call.
layers: seconds to capture BERT of that depth, and to write its guards; later stages do not run.
"""

from benchmarks.children import fresh_cache, options_for, print_row, run

WIDTHS = (12, 12, 12, 10, 10, 10, 14)


def main() -> None:
    parser = options_for("Compile time, cold and warm.")
    parser.add_argument("--layers", type=int, nargs="*", default=[], help="only capture, at these depths")
    options = parser.parse_args()
    if options.layers:
        capture(options.layers)
        return
    compilers = ["pliant", "peer"] if options.peer else ["pliant"]
    print_row(["model", "mode", "compiler", "cold s", "warm s", "sizes s", "cold/peer"], WIDTHS)
    for model in options.models:
        for mode in options.modes:
            rows = {compiler: times(compiler, model, mode) for compiler in compilers}
            for compiler, cells in rows.items():
                print_row([model, mode, compiler, *cells, against_peer(rows) if compiler == "pliant" else ""], WIDTHS)


def capture(depths: list[int]) -> None:
    """Capture at several depths, once more first so that nothing is loaded meanwhile; the faster of two each."""
    import torch

    import pliant
    from benchmarks.models import hugging_face

    print_row(["layers", "", "capture s", "guards s", "ms a layer"], WIDTHS)
    ids = torch.randint(0, 1000, (2, 64))
    for depth in (1, *depths):
        found = []
        for _ in range(2):
            compiled = pliant.compile(
                hugging_face("BertModel", "BertConfig", num_hidden_layers=depth)(), backend="eager"
            )
            before = pliant.stats()["seconds"]
            with torch.no_grad():
                compiled(ids)
            after = pliant.stats()["seconds"]
            found.append([after[stage] - before.get(stage, 0.0) for stage in ("capture", "entry")])
        traced, guards = min(found, key=sum)
        print_row([depth, "", traced, guards, (traced + guards) / depth * 1e3], WIDTHS)


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

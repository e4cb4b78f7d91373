"""How fast compiled code runs, as eager's time divided by it: `python -m benchmarks.speed [--peer] [--models bert]`.

Both are called in turn in one process, over five sizes each, so that a busy machine hits both alike.
"""

from benchmarks.children import fresh_cache, geometric_mean, options_for, print_row, run

WIDTHS = (12, 12, 12, 12, 12, 12, 12)


def main() -> None:
    parser = options_for("Speed of compiled code beside eager.")
    parser.add_argument("--sizes", type=int, default=5)
    options = parser.parse_args()
    compilers = ["pliant", "peer"] if options.peer else ["pliant"]
    print_row(["model", "mode", "compiler", "eager ms", "ms", "speedup", "error"], WIDTHS)
    ratios: dict[str, list[float]] = {c: [] for c in compilers}
    for model in options.models:
        for mode in options.modes:
            for compiler in compilers:
                with fresh_cache() as cache:
                    seen = run(compiler, model, mode, cache, sizes=options.sizes, budget=options.budget)
                if "failed" in seen:
                    print_row([model, mode, compiler, seen["failed"]], WIDTHS)
                    continue
                ratio = geometric_mean(seen["ratio"])
                ratios[compiler].append(ratio)
                cells = [seen["eager_ms"][0], seen["compiled_ms"][0], ratio, f"{max(seen['error']):.0e}"]
                print_row([model, mode, compiler, *cells], WIDTHS)
    for compiler in compilers:
        print_row(["all", "", compiler, "", "", geometric_mean(ratios[compiler])], WIDTHS)


if __name__ == "__main__":
    main()

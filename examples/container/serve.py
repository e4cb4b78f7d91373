"""A model that starts at once: what was compiled when the image was built is found when it runs.

    python serve.py build bundle.tgz     # on a machine with a C compiler
    python serve.py run bundle.tgz       # on one without
"""

import sys
import time

import torch

import pliant


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).softmax(-1)


def main(what: str, path: str) -> None:
    if what == "run":
        pliant.cache.import_(path)
    torch.manual_seed(0)
    model, x = Classifier().eval(), torch.randn(8, 64)
    compiled = pliant.compile(model)
    start = time.perf_counter()
    with torch.no_grad():
        result = compiled(x)
        seconds = time.perf_counter() - start
        torch.testing.assert_close(result, model(x))
    if what == "build":
        print(pliant.cache.export(path, models=["Classifier"]), "entries in", path)
    print(f"first call {seconds:.3f} s, entries {pliant.stats()['entries']}")


if __name__ == "__main__":
    main(*sys.argv[1:])

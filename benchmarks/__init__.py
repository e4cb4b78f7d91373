"""Speed, compile time and overhead, beside eager and the peer (torch.compile): `python -m benchmarks.<name>`."""

"""Kernels of NVIDIA's GPUs: built by NVRTC, loaded and launched through the driver.

available (whether there can be kernels for a device) -> nvrtc (text to machine code) -> kernels (which of them are built
already) -> driver (into the process) -> load (native entries as Python functions); backend (all of it, for
`runtime/backend.py`). capturable, roles (what they go by) -> room, placing (their memory) -> recorder -> recording -> trials (which of
them pay) -> graphs (compiled graphs recorded as CUDA graphs). large_results (what is made outside recordings).
"""

"""What code generation knows of a machine.

In:     nothing; this is data. `targets_of` asks for the target of a device.
Out:    `Target`.
Holds:  fusion, splitting, loop plans and memory planning take their limits from here and name no device; what a built
        kernel depends on is in `architecture`, which is part of its key.
"""

from __future__ import annotations

import torch

from pliant.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One kind of machine.

    kind, architecture: type of device ("cpu", "cuda"); what its kernels are built for ("sm_90").
    units, threads, lanes: cores or multiprocessors; threads of a block at most, and how many of them run in step.
    cluster: blocks side by side that can wait for each other and read each other's shared memory; 1: none can.
    vector_bytes: the widest access to memory.
    split_outer, split_inner, parts: a reduction with at most `split_outer` points outside and more than `split_inner`
        inside is shared by up to `parts` threads (or blocks).
    splits_programs: such reductions become two in the loop IR; else the kernel's own loops are shared.
    layer_bytes: layers that take each unit longer than moving so many bytes are called one by one: next to that, calls cost
        nothing; 0: programs are run as one.
    called_bytes: few operators that move so few bytes are called as they are where gradients are recorded: compiled, they are
        a function of autograd's in Python, which takes longer than their kernels save; 0: they are compiled.
    grain: work, in additions, that is worth a thread.
    cache_bytes: what a core's own cache holds; what a kernel reads beyond that comes from memory.
    shared_cache_bytes: what the cores' common cache holds, where kernels one after the other find it there.
    column_block, row_block, split_columns, point_block: points that one thread takes at a time (see `codegen/loops.py`).
    tile: points of a transposition along each axis that a thread takes at a time; shortest_tile: where what it copies would be
        more than `tile_bytes`. Rows shorter than two of these are not worth it.
    widest_columns: columns of which a thread keeps all accumulators.
    scratch_each, scratch_bytes: largest small temporary on an entry's stack, and all of them; 0: none are.
    product_bytes: products run well where rows begin at multiples of so many bytes; 0: anywhere. product_depth: from so many
        additions for each element of a result on, that is worth a copy of it.
    copied_row: elements of an image's row from which on the library, which copies whole rows, pads it faster; 0: none.
    images_last: convolutions of images of these dtypes run faster where channels lie last. tf32_images_last: and of float32,
        where they may be computed in TF32. packs_weights: only with a second copy of the weight, which is kept.
    biases_in_loops: the library copies a bias to the result before it adds the product: loops that read the sum add it.
    convolution_biases_apart: the library adds a convolution's bias in a kernel of its own, and sums its gradient in another.
    adds_in_order: loops whose points may store to one place go through their points in order, and are no slower for it.
    adds_while_scanning: running sums are loops that go through a row in order, several rows at a time, and are faster for it.
    depthwise_gradients: gradients of weights of depthwise convolutions are loops, and are faster for it.
    depthwise_images: depthwise convolutions of images of these dtypes that lie channels last, and their gradients, are loops. The
        library builds a kernel for each kind of layer when it is first called, one at a time: on a host 18 s for the 12 kinds
        of MobileNetV3. depthwise_sums: the gradients of their weights are, too, where an image's positions times the places of a
        window are so many at most: the library is faster for larger ones.
    window_points: neighbouring results that a thread computes at a time, most of what windows share being read and converted
        once; 1: threads take them one after the other, and find it in a cache.
    adds_atomically: they do not, but add atomically, in any order, as the library does.
    complex_parts: products of complex numbers whose parts have these dtypes are loops over the parts, where these are all
        that is read.
    row_products: products of a single row of these dtypes with a matrix whose columns are dense are loops.
    scan_row: running sums along rows are loops, of chunks where there are few rows of many times so many elements; 0: the
        library's are kept.
    looks_up_words: lanes look up words, not halves: what is searched again and again is converted before.
    attention_scores: attention that a program writes out becomes the library's operator, which is faster from so many scores on;
        attention_scores_trained: where gradients are asked for; 0: never.
    dense_masks: fused attention takes only masks whose last dimension is dense.
    narrow_index: indices are computed in 32 bits where ranges allow it.
    function_share, library_share: time of a function like exp that is written out for vectors, and of one that a library
        computes element by element, in times in which memory moves the result.
    builds_in_threads: code is built by threads of this process, however many there are cores: a backward is compiled with its
        forward, whose build goes on meanwhile, and not when it is first called.
    held_share: what a byte that is kept from the forward to the backward costs, in bytes that are moved: memory is short.
    """

    kind: str
    architecture: str = ""
    units: int = 1
    threads: int = 1
    lanes: int = 1
    cluster: int = 1
    vector_bytes: int = 64
    split_outer: int = 8
    split_inner: int = 4096
    parts: int = 64
    splits_programs: bool = False
    grain: int = 1 << 17
    cache_bytes: int = 1 << 20
    shared_cache_bytes: int = 1 << 25
    column_block: int = 64
    split_columns: int = 256
    widest_columns: int = 4096
    point_block: int = 4096
    tile: int = 128
    shortest_tile: int = 32
    tile_bytes: int = 1 << 18
    scratch_each: int = 1024
    scratch_bytes: int = 1 << 14
    product_bytes: int = 0
    product_depth: int = 0
    copied_row: int = 0
    images_last: frozenset[torch.dtype] = frozenset()
    tf32_images_last: bool = False
    packs_weights: bool = False
    biases_in_loops: bool = False
    convolution_biases_apart: bool = False
    adds_in_order: bool = False
    adds_while_scanning: bool = False
    row_block: int = 4
    adds_atomically: bool = False
    depthwise_gradients: bool = False
    depthwise_images: frozenset[torch.dtype] = frozenset()
    depthwise_sums: int = 0
    window_points: int = 1
    complex_parts: frozenset[torch.dtype] = frozenset()
    row_products: frozenset[torch.dtype] = frozenset()
    scan_row: int = 0
    looks_up_words: bool = False
    dense_masks: bool = False
    narrow_index: bool = False
    function_share: float = 0.5
    library_share: float = 2.0
    builds_in_threads: bool = False
    held_share: float = 0.0
    layer_bytes: int = 0
    called_bytes: int = 0
    attention_scores: int = 0
    attention_scores_trained: int = 0

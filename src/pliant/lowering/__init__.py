"""ATen operators to loop nests, or to calls of the operator itself: a table of rules by theme, applied by `lower.py`.

context (what rules emit with), tensors (values), registry (all rules), fallback (calls without a rule); pointwise, special,
creation, views, reduction, normalization, losses, indexing, searching, scans, scattering, joining, padding, pooling,
adaptive_pooling, resampling, interpolation, depthwise, depthwise_images and matmul (rules), factors (how what products read had best lie), readers
(how often values are read), host_numbers (the CPU's, for kernels of others), seams (loops by parts),
single_terms (sums of one term), bits (which loops have each bit of eager's results), moves (choices of halves), formulas,
promotion, indexing_rules (helpers of rules).
"""

"""The operators of ATen that any file may call.

Holds:  exported programs are made of them: functional ones, described by shape rules or PyTorch's own functions for shapes, whose
        kernels check what they are given, or have a row in `unchecked.py`. `python -m tests.exporting.hostile_calls` calls
        them with arguments that are wrong. Others run where the caller says that the file may be trusted.
"""

from __future__ import annotations

from pliant.exporting.core_operators import name_of
from pliant.torch_adapter import OpOverload

# Without an overload's name: `default`.
_ALLOWED = frozenset(
    """
    __lshift__.Scalar __lshift__.Tensor __rshift__.Scalar __rshift__.Tensor __xor__.Scalar __xor__.Tensor
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    _assert_async _assert_async.msg _assert_scalar sym_constrain_range sym_constrain_range_for_size
    _addmm_activation _autocast_to_full_precision _autocast_to_reduced_precision _batch_norm_with_update_functional
    _cdist_backward _cdist_forward _chunk_cat _conj _conj_physical _ctc_loss.Tensor _ctc_loss_backward.Tensor
    _dirichlet_grad _efficientzerotensor _embedding_bag _embedding_bag_backward _int_mm
    _weight_norm_interface _weight_norm_interface_backward
    _native_multi_head_attention _transformer_encoder_layer_fwd
    _embedding_bag_dense_backward _embedding_bag_forward_only
    _embedding_bag_per_sample_weights_backward _fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fft_c2c
    _fft_c2r _fft_r2c _fused_rms_norm_backward _has_same_storage_numel _histogramdd_bin_edges _histogramdd_from_bin_cts
    _histogramdd_from_bin_tensors _is_all_true _is_any_true _linalg_check_errors _linalg_det _linalg_eigh
    _linalg_slogdet _linalg_solve_ex _linalg_svd _local_scalar_dense _log_softmax _log_softmax_backward_data
    _native_batch_norm_legit.no_stats _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _neg_view
    _pdist_backward _pdist_forward _prelu_kernel _prelu_kernel_backward _safe_softmax _sample_dirichlet
    _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
    _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
    _segment_reduce_backward _softmax _softmax_backward_data _standard_gamma _standard_gamma_grad _to_copy _trilinear
    _unique _unique2 _unpack_dual _unsafe_index.Tensor _unsafe_index_put _unsafe_view _upsample_bicubic2d_aa
    _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward _upsample_nearest_exact1d
    _upsample_nearest_exact1d_backward _upsample_nearest_exact2d _upsample_nearest_exact2d_backward
    _upsample_nearest_exact3d _upsample_nearest_exact3d_backward abs acos acosh adaptive_max_pool2d
    adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward add.Scalar add.Tensor addbmm addcdiv
    addcmul addmm addmv addr adjoint affine_grid_generator alias alias_copy all all.dim all.dims allclose amax amin
    aminmax angle any any.dim any.dims arange arange.start arange.start_step argmax argmin as_strided as_strided_copy
    as_strided_scatter asin asinh atan atan2 atanh avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward baddbmm
    bernoulli bernoulli.Tensor bernoulli.p binary_cross_entropy binary_cross_entropy_backward
    binary_cross_entropy_with_logits bincount bitwise_and.Scalar bitwise_and.Scalar_Tensor bitwise_and.Tensor
    bitwise_left_shift.Scalar_Tensor bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar bitwise_not
    bitwise_or.Scalar bitwise_or.Scalar_Tensor bitwise_or.Tensor bitwise_right_shift.Scalar_Tensor
    bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar bitwise_xor.Scalar bitwise_xor.Scalar_Tensor
    bitwise_xor.Tensor block_diag bmm broadcast_to bucketize.Tensor cat cauchy ceil celu channel_shuffle cholesky
    cholesky_inverse cholesky_solve chunk clamp clamp.Tensor clamp_max clamp_max.Tensor clamp_min clamp_min.Tensor clip
    clip.Tensor clone col2im complex conj conj_physical constant_pad_nd contiguous convolution convolution_backward copy
    copysign.Scalar copysign.Tensor cos cosh count_nonzero count_nonzero.dim_IntList cummax cummin cumprod cumsum
    deg2rad detach detach_copy diag_embed diagonal diagonal_backward diagonal_copy diagonal_scatter digamma dist
    div.Scalar div.Scalar_mode div.Tensor div.Tensor_mode dot dsplit.array dsplit.int elu elu_backward embedding
    embedding_dense_backward empty.memory_format empty_like empty_permuted empty_strided eq.Scalar eq.Tensor equal erf
    erfc erfinv exp exp2 expand expand_as expand_copy expm1 exponential eye eye.m
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask fill.Scalar fill.Tensor
    flatten.using_ints flip float_power.Scalar float_power.Tensor_Scalar float_power.Tensor_Tensor floor floor_divide
    floor_divide.Scalar fmax fmin fmod.Scalar fmod.Tensor frac fractional_max_pool2d fractional_max_pool2d_backward
    fractional_max_pool3d fractional_max_pool3d_backward frexp.Tensor full full_like gather gcd ge.Scalar ge.Tensor gelu
    gelu_backward geometric geqrf glu glu_backward grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d
    grid_sampler_3d_backward gt.Scalar gt.Tensor hardshrink hardshrink_backward hardsigmoid hardsigmoid_backward
    hardswish hardswish_backward hardtanh hardtanh_backward heaviside histc histogram.bin_ct histogram.bins_tensor
    hsplit.array hsplit.int huber_loss huber_loss_backward hypot i0 igamma igammac im2col imag index.Tensor index_add
    index_copy index_fill.int_Scalar index_fill.int_Tensor index_put index_reduce index_select is_nonzero is_same_size
    isfinite isin.Tensor_Tensor isinf isnan isneginf isposinf kthvalue ldexp.Tensor le.Scalar le.Tensor leaky_relu
    leaky_relu_backward lerp.Scalar lerp.Tensor lgamma lift lift_fresh lift_fresh_copy linalg_cholesky_ex linalg_cross
    linalg_diagonal linalg_eig linalg_householder_product linalg_inv_ex linalg_ldl_factor_ex linalg_ldl_solve
    linalg_lstsq linalg_lu linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp linalg_pinv.atol_rtol_tensor linalg_qr
    linalg_solve_triangular linalg_vector_norm linspace linspace.Scalar_Tensor linspace.Tensor_Scalar
    linspace.Tensor_Tensor log log10 log1p log2 log_normal log_sigmoid_backward log_sigmoid_forward logaddexp logaddexp2
    logcumsumexp logical_and logical_not logical_or logical_xor logit logit_backward logspace logspace.Scalar_Tensor
    logspace.Tensor_Scalar logspace.Tensor_Tensor logsumexp lt.Scalar lt.Tensor lu_unpack mH mT masked_fill.Scalar
    masked_fill.Tensor masked_scatter masked_scatter_backward masked_select matrix_H max max.dim max.other
    max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices max_pool3d_with_indices_backward
    max_unpool2d max_unpool3d maximum mean mean.dim median median.dim min min.dim min.other minimum mish mish_backward
    mkldnn_rnn_layer mm mode moveaxis.int moveaxis.intlist movedim.int movedim.intlist mse_loss mse_loss_backward
    mul.Scalar mul.Tensor multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_backward
    multilabel_margin_loss_forward multinomial mv mvlgamma nan_to_num nanmedian nanmedian.dim nansum narrow
    narrow.Tensor narrow_copy native_batch_norm native_batch_norm_backward native_dropout native_dropout_backward
    native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward ne.Scalar ne.Tensor neg
    new_empty new_empty_strided new_full new_ones new_zeros nextafter nll_loss2d_backward nll_loss2d_forward
    nll_loss_backward nll_loss_forward nonzero nonzero_static norm.ScalarOpt_dim normal.Tensor_Tensor
    normal.Tensor_float normal.float_Tensor normal.float_float normal_functional numpy_T ones ones_like ormqr permute
    permute_copy pin_memory pixel_shuffle pixel_unshuffle poisson polar polygamma positive pow.Scalar pow.Tensor_Scalar
    pow.Tensor_Tensor prod prod.dim_int put rad2deg rand rand_like randint randint.low randint_like
    randint_like.low_dtype randn randn_like random random.from random.to randperm ravel real reciprocal reflection_pad1d
    reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward reflection_pad3d reflection_pad3d_backward relu
    relu6 remainder.Scalar remainder.Scalar_Tensor remainder.Tensor renorm repeat repeat_interleave.Tensor
    replication_pad1d replication_pad1d_backward replication_pad2d replication_pad2d_backward replication_pad3d
    replication_pad3d_backward reshape reshape_as resolve_conj resolve_neg roll rot90 round round.decimals rrelu
    rrelu_with_noise_backward rrelu_with_noise_functional rsqrt rsub.Scalar rsub.Tensor scalar_tensor scatter.reduce
    scatter.src scatter.value scatter.value_reduce scatter_add scatter_reduce.two searchsorted.Tensor segment_reduce
    select.int select_backward select_scatter selu sgn sigmoid sigmoid_backward sign signbit silu silu_backward sin sinc
    sinh slice.Tensor slice_backward slice_scatter smooth_l1_loss smooth_l1_loss_backward soft_margin_loss
    soft_margin_loss_backward softplus softplus_backward softshrink softshrink_backward sort sort.stable special_airy_ai
    special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t
    special_chebyshev_polynomial_t.n_scalar special_chebyshev_polynomial_t.x_scalar special_chebyshev_polynomial_u
    special_chebyshev_polynomial_u.n_scalar special_chebyshev_polynomial_u.x_scalar special_chebyshev_polynomial_v
    special_chebyshev_polynomial_v.n_scalar special_chebyshev_polynomial_v.x_scalar special_chebyshev_polynomial_w
    special_chebyshev_polynomial_w.n_scalar special_chebyshev_polynomial_w.x_scalar special_entr special_erfcx
    special_hermite_polynomial_h special_hermite_polynomial_h.n_scalar special_hermite_polynomial_h.x_scalar
    special_hermite_polynomial_he special_hermite_polynomial_he.n_scalar special_hermite_polynomial_he.x_scalar
    special_i0e special_i1 special_i1e special_laguerre_polynomial_l special_laguerre_polynomial_l.n_scalar
    special_laguerre_polynomial_l.x_scalar special_legendre_polynomial_p special_legendre_polynomial_p.n_scalar
    special_legendre_polynomial_p.x_scalar special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1
    special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0
    special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t
    special_shifted_chebyshev_polynomial_t.n_scalar special_shifted_chebyshev_polynomial_t.x_scalar
    special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_u.n_scalar
    special_shifted_chebyshev_polynomial_u.x_scalar special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_v.n_scalar special_shifted_chebyshev_polynomial_v.x_scalar
    special_shifted_chebyshev_polynomial_w special_shifted_chebyshev_polynomial_w.n_scalar
    special_shifted_chebyshev_polynomial_w.x_scalar special_spherical_bessel_j0 special_xlog1py
    special_xlog1py.other_scalar special_xlog1py.self_scalar special_zeta special_zeta.other_scalar
    special_zeta.self_scalar split.Tensor split.sizes split_with_sizes split_with_sizes_copy sqrt square squeeze
    squeeze.dim squeeze.dims squeeze_copy squeeze_copy.dim stack std.correction std_mean.correction sub.Scalar
    sub.Tensor sum sum.dim_IntList swapaxes swapdims t t_copy take tan tanh tanh_backward tensor_split.indices
    tensor_split.sections tensor_split.tensor_indices_or_sections threshold threshold_backward to.device to.dtype
    to.dtype_layout to.other topk trace transpose.int transpose_copy.int triangular_solve tril tril_indices triu
    triu_indices true_divide.Tensor trunc unbind.int unbind_copy.int unflatten.int unfold unfold_backward unfold_copy
    uniform unique_consecutive unique_dim unsafe_split.Tensor unsqueeze unsqueeze_copy upsample_bicubic2d
    upsample_bicubic2d_backward upsample_bilinear2d upsample_bilinear2d.vec upsample_bilinear2d_backward
    upsample_linear1d upsample_linear1d_backward upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d
    upsample_nearest2d.vec upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d_backward
    upsample_trilinear3d upsample_trilinear3d_backward var.correction var.dim var_mean.correction vdot view view.dtype
    view_as view_as_complex view_as_real view_copy vsplit.array vsplit.int where.self xlogy.Scalar_Other
    xlogy.Scalar_Self xlogy.Tensor zero zeros zeros_like
    """.split()
)


def is_allowed(target: OpOverload) -> bool:
    return target.namespace != "aten" or name_of(target) in _ALLOWED

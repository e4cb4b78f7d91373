extern "C" __global__ void __launch_bounds__(256) @(const double* a0, double* a1, double* a2, int64_t n0) {
  const int lane = threadIdx.x;
  const int item = (int)blockIdx.x;
  const int i0 = item;
  double acc0 = 0;
  double acc1 = (-INFINITY);
  alignas(16) double v0[2];
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 256;
    const int i1g = q;
    const int i1b = i1g * 2;
    p_load_even<2>(v0 + k * 2, a0 + (i1b + 512*i0));
  }
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 256;
    const int i1g = q;
    const int i1b = i1g * 2;
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      const int i1 = i1b + u;
      const double t1 = v0[k * 2 + u];
      acc0 += t1;
      acc1 = p_nan_max(acc1, t1);
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const double oacc0 = p_shuffle<32>(acc0, o);
    acc0 += oacc0;
  }
  __shared__ double xacc0[8];
  if (lane % 32 == 0) xacc0[lane / 32] = acc0;
  __syncthreads();
  acc0 = lane % 32 < 8 ? xacc0[lane % 32] : 0;
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const double oacc0 = p_shuffle<32>(acc0, o);
    acc0 += oacc0;
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const double oacc1 = p_shuffle<32>(acc1, o);
    acc1 = p_nan_max(acc1, oacc1);
  }
  __shared__ double xacc1[8];
  if (lane % 32 == 0) xacc1[lane / 32] = acc1;
  __syncthreads();
  acc1 = lane % 32 < 8 ? xacc1[lane % 32] : (-INFINITY);
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const double oacc1 = p_shuffle<32>(acc1, o);
    acc1 = p_nan_max(acc1, oacc1);
  }
  const double r0 = acc0;
  const double r1 = acc1;
  __syncthreads();
  if (lane == 0) {
    a1[i0] = r0;
    a2[i0] = r1;
  }
}

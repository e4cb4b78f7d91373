extern "C" __global__ void __launch_bounds__(128) @(const float* a0, int64_t* a1, int64_t n0) {
  const int lane = threadIdx.x % 32;
  const int item = (int)blockIdx.x * 4 + threadIdx.x / 32;
  if (item >= n0) return;
  const int i0 = item;
  float acc0 = (-INFINITY);
  int64_t acc0k = INT64_C(9223372036854775807);
  alignas(16) float v0[4];
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 32;
    if (q >= 24) break;
    const int i1g = q;
    const int i1b = i1g * 4;
    p_load_even<4>(v0 + k * 4, a0 + (i1b + 96*i0));
  }
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 32;
    if (q >= 24) break;
    const int i1g = q;
    const int i1b = i1g * 4;
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i1 = i1b + u;
      const float t1 = v0[k * 4 + u];
      if (!(acc0 > t1) && ((t1 != t1 && (acc0 == acc0 || (i1) < acc0k)) || (acc0 == acc0 && (t1 > acc0 || (t1 == acc0 && (i1) < acc0k))))) { acc0 = t1; acc0k = (i1); }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    const int64_t oacc0k = p_shuffle<32>(acc0k, o);
    if (oacc0k != INT64_C(9223372036854775807)) if (!(acc0 > oacc0) && ((oacc0 != oacc0 && (acc0 == acc0 || oacc0k < acc0k)) || (acc0 == acc0 && (oacc0 > acc0 || (oacc0 == acc0 && oacc0k < acc0k))))) { acc0 = oacc0; acc0k = oacc0k; }
  }
  const int64_t r0 = acc0k;
  __syncwarp(p_lanes<32>());
  if (lane == 0) {
    a1[i0] = r0;
  }
}

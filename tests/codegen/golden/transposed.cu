extern "C" __global__ void __launch_bounds__(256) @(const float* a0, float* a1, const float* a2) {
  const int i1t = ((int)blockIdx.x % (2)) * 64;
  const int ti1 = (int)blockIdx.x / (2);
  const int i0t = (ti1 % (2)) * 64;
  const int ti0 = ti1 / (2);
  alignas(16) __shared__ float x0[4160];
  #pragma unroll
  for (int k = 0; k < 4; k++) {
    const int g = threadIdx.x + k * 256;
    const int aside = g % 16 * 4, ahead = g / 16;
    const int i1 = i1t + ahead, i0 = i0t + aside;
    alignas(16) float part[4];
    p_load<4>(part, a2 + (96*i1 + i0), (int)p_min(i1 < 128 ? 96 - i0 : 0, 4));
    #pragma unroll
    for (int u = 0; u < 4; u++) x0[ahead * 65 + aside + u] = part[u];
  }
  __syncthreads();
  #pragma unroll
  for (int k = 0; k < 4; k++) {
    const int g = threadIdx.x + k * 256;
    const int ahead = g % 16 * 4, aside = g / 16;
    const int i0 = i0t + aside;
    if (i0 >= 96) break;
    const int i1b = i1t + ahead;
    alignas(16) float v0[4];
    p_load_even<4>(v0, a0 + (i1b + 128*i0));
    alignas(16) float s4[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i1 = i1b + u;
      const float t1 = v0[u];
      const float t2 = x0[(ahead + u) * 65 + aside];
      const float t3 = t1 + t2;
      s4[u] = t3;
    }
    p_store<4>(a1 + (i1b + 128*i0), s4);
  }
}

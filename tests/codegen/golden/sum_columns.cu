extern "C" __global__ void __launch_bounds__(512) @(const float* a0, float* a1, int64_t n0) {
  const int lane = threadIdx.x / 32;
  const bool live = (int)blockIdx.x * 32 + threadIdx.x % 32 < n0;
  const int item = live ? (int)blockIdx.x * 32 + threadIdx.x % 32 : 0;
  const int i0g = item;
  const int i0b = i0g * 4;
  float acc0[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) acc0[u] = 0;
  if (live) {
    #pragma unroll 4
    for (int q = lane; q < 64; q += 16) {
      const int i1 = q;
      alignas(16) float v0[4];
      p_load_even<4>(v0, a0 + (i0b + 512*i1));
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int i0 = i0b + u;
        const float t1 = v0[u];
        acc0[u] += t1;
      }
    }
  }
   {
    __shared__ float x[2048];
    for (int u = 0; u < 4; u++) {
      x[(lane * 4 + u) * 32 + threadIdx.x % 32] = acc0[u];
    }
    __syncthreads();
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      acc0[u] = x[(0 * 4 + u) * 32 + threadIdx.x % 32];
    }
    #pragma unroll 1
    for (int y = 1; y < 16; y++) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        float macc0 = acc0[u];
        const float omacc0 = x[(y * 4 + u) * 32 + threadIdx.x % 32];
        macc0 += omacc0;
        acc0[u] = macc0;
      }
    }
  }
  float r0[4];
  if (live) {
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i0 = i0b + u;
      r0[u] = acc0[u];
    }
  }
  __syncthreads();
  if (lane == 0 && live) {
    alignas(16) float s2[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i0 = i0b + u;
      s2[u] = r0[u];
    }
    p_store<4>(a1 + (i0b), s2);
  }
}

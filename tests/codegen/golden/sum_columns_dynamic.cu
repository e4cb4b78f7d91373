extern "C" __global__ void __launch_bounds__(256) @(const float* a0, float* a1, int64_t n0, int64_t n1, int64_t n2) {
  const int lane = threadIdx.x / 32;
  const bool live = (int64_t)blockIdx.x * 32 + threadIdx.x % 32 < n0;
  const int64_t item = live ? (int64_t)blockIdx.x * 32 + threadIdx.x % 32 : 0;
  const int64_t i0g = item;
  const int64_t i0b = i0g * 4;
  const int cnt = (int)p_min(n1 - i0b, 4);
  float acc0[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) acc0[u] = 0;
  if (live) {
    #pragma unroll 4
    for (int64_t q = lane; q < n2; q += 8) {
      const int64_t i1 = q;
      alignas(16) float v0[4];
      p_load<4>(v0, a0 + (n1*i1 + i0b), cnt);
      if (cnt >= 4) {
        #pragma unroll
        for (int u = 0; u < 4; u++) {
          const int64_t i0 = i0b + u;
          const float t1 = v0[u];
          acc0[u] += t1;
        }
      }
      else {
        #pragma unroll
        for (int u = 0; u < 4; u++) if (u < cnt) {
          const int64_t i0 = i0b + u;
          const float t1 = v0[u];
          acc0[u] += t1;
        }
      }
    }
  }
   {
    __shared__ float x[1024];
    for (int u = 0; u < 4; u++) {
      x[(lane * 4 + u) * 32 + threadIdx.x % 32] = acc0[u];
    }
    __syncthreads();
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      acc0[u] = x[(0 * 4 + u) * 32 + threadIdx.x % 32];
    }
    #pragma unroll 1
    for (int y = 1; y < 8; y++) {
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
    if (cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i0 = i0b + u;
        r0[u] = acc0[u];
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u < cnt) {
        const int64_t i0 = i0b + u;
        r0[u] = acc0[u];
      }
    }
  }
  __syncthreads();
  if (lane == 0 && live) {
    alignas(16) float s2[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int64_t i0 = i0b + u;
      s2[u] = r0[u];
    }
    p_store<4>(a1 + (i0b), s2, cnt);
  }
}

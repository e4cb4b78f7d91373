extern "C" __global__ void __launch_bounds__(256) @(const int64_t* a0, const float* a1, float* a2) {
  const int item = (int)blockIdx.x * 256 + threadIdx.x;
  if (item >= 1024) return;
  const int i2g = item % (16);
  const int qi2 = item / (16);
  const int i1 = qi2 % (8);
  const int qi1 = qi2 / (8);
  const int i0 = qi1;
  const int i2b = i2g * 4;
  alignas(16) float s6[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int i2 = i2b + u;
    const int64_t t0 = a0[128*i0 + 32*(i1 / 2) + i2 / 2];
    const int64_t t1 = (int64_t)(64*i1 + i2);
    const _Bool t2 = t0 == t1;
    const float t3 = a1[128*i0 + 32*(i1 / 2) + i2 / 2];
    const float t4 = t2 ? t3 : 0.0f;
    const float t5 = t4 + 0.0f;
    s6[u] = t5;
  }
  p_store<4>(a2 + (i2b + 64*i1 + 512*i0), s6);
}

extern "C" __global__ void __launch_bounds__(256) @(float* a0, int64_t n0) {
  const int item = (int)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int i0g = item;
  const int i0b = i0g * 4;
  alignas(16) float s0[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int i0 = i0b + u;
    s0[u] = 0.0f;
  }
  p_store<4>(a0 + (i0b), s0);
}

extern "C" __global__ void __launch_bounds__(256) @(const float* a0, int64_t* a1, int64_t n0) {
  const int item = (int)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int i2g = item % (16);
  const int qi2 = item / (16);
  const int i1 = qi2 % (4);
  const int qi1 = qi2 / (4);
  const int i0 = qi1;
  const int i2b = i2g * 2;
  const int32_t t18 = (int32_t)(2*i1);
  const int32_t t19 = t18 * 64;
  alignas(16) int64_t s26[2];
  #pragma unroll
  for (int u = 0; u < 2; u++) {
    const int i2 = i2b + u;
    const float t0 = a0[128*i1 + 2*i2 + 512*i0 + 65];
    const float t1 = a0[128*i1 + 2*i2 + 512*i0 + 64];
    const float t2 = a0[128*i1 + 2*i2 + 512*i0 + 1];
    const float t3 = a0[128*i1 + 2*i2 + 512*i0];
    const float t4 = (t2 != t2 || t2 > t3 ? t2 : t3);
    const float t5 = (t1 != t1 || t1 > t4 ? t1 : t4);
    const _Bool t6 = t0 > t5;
    const _Bool t7 = t0 != t0;
    const _Bool t8 = t6 | t7;
    const int32_t t9 = (int32_t)(128*i1 + 2*i2 + 65);
    const _Bool t10 = t1 > t4;
    const _Bool t11 = t1 != t1;
    const _Bool t12 = t10 | t11;
    const int32_t t13 = (int32_t)(128*i1 + 2*i2 + 64);
    const _Bool t14 = t2 > t3;
    const _Bool t15 = t2 != t2;
    const _Bool t16 = t14 | t15;
    const int32_t t17 = (int32_t)(128*i1 + 2*i2 + 1);
    const int32_t t20 = (int32_t)(2*i2);
    const int32_t t21 = t19 + t20;
    const int32_t t22 = t16 ? t17 : t21;
    const int32_t t23 = t12 ? t13 : t22;
    const int32_t t24 = t8 ? t9 : t23;
    const int64_t t25 = (int64_t)t24;
    s26[u] = t25;
  }
  p_store<2>(a1 + (i2b + 32*i1 + 128*i0), s26);
}

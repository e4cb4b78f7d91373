extern "C" __global__ void __launch_bounds__(256) @(const float* a0, float* a1, int64_t* a2, int64_t n0) {
  const int item = (int)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int i2g = item % (8);
  const int qi2 = item / (8);
  const int i1 = qi2 % (4);
  const int qi1 = qi2 / (4);
  const int i0 = qi1;
  const int i2b = i2g * 4;
  alignas(16) float s7[4];
  const int32_t t20 = (int32_t)(2*i1);
  const int32_t t21 = t20 * 64;
  alignas(16) int64_t s28[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int i2 = i2b + u;
    const float t0 = a0[128*i1 + 2*i2 + 512*i0 + 65];
    const float t1 = a0[128*i1 + 2*i2 + 512*i0 + 64];
    const float t2 = a0[128*i1 + 2*i2 + 512*i0 + 1];
    const float t3 = a0[128*i1 + 2*i2 + 512*i0];
    const float t4 = (t2 != t2 || t2 > t3 ? t2 : t3);
    const float t5 = (t1 != t1 || t1 > t4 ? t1 : t4);
    const float t6 = (t0 != t0 || t0 > t5 ? t0 : t5);
    s7[u] = t6;
    const _Bool t8 = t0 > t5;
    const _Bool t9 = t0 != t0;
    const _Bool t10 = t8 | t9;
    const int32_t t11 = (int32_t)(128*i1 + 2*i2 + 65);
    const _Bool t12 = t1 > t4;
    const _Bool t13 = t1 != t1;
    const _Bool t14 = t12 | t13;
    const int32_t t15 = (int32_t)(128*i1 + 2*i2 + 64);
    const _Bool t16 = t2 > t3;
    const _Bool t17 = t2 != t2;
    const _Bool t18 = t16 | t17;
    const int32_t t19 = (int32_t)(128*i1 + 2*i2 + 1);
    const int32_t t22 = (int32_t)(2*i2);
    const int32_t t23 = t21 + t22;
    const int32_t t24 = t18 ? t19 : t23;
    const int32_t t25 = t14 ? t15 : t24;
    const int32_t t26 = t10 ? t11 : t25;
    const int64_t t27 = (int64_t)t26;
    s28[u] = t27;
  }
  p_store<4>(a1 + (i2b + 32*i1 + 128*i0), s7);
  p_store<4>(a2 + (i2b + 32*i1 + 128*i0), s28);
}

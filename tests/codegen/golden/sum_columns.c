static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  float* const a1 = p[1];
  if (begin < end) {
    const int64_t i0b = begin * 64;
    const int64_t i0e = p_min(end * 64, 512);
    double acc0[512];
    for (int64_t j = 0; j < 512; j++) acc0[j] = 0;
    for (int64_t b = 0; b < 64; b += 8) {
      const int64_t be = p_min(b + 8, 64);
      int64_t ji0 = i0b;
      for (; ji0 + 4 * P_L <= i0e; ji0 += 4 * P_L) {
        p_vf vacc0[4];
        for (int u = 0; u < 4; u++) vacc0[u] = P_B(0.0f);
        for (int64_t i1 = b; i1 < be; i1++) {
          #pragma GCC unroll 4
          for (int u = 0; u < 4; u++) {
            const int64_t i0 = ji0 + u * P_L;
            const p_vf t0 = p_load(&a0[i0 + 512*i1]);
            const p_vf xacc0 = t0;
            vacc0[u] = vacc0[u] + xacc0;
          }
        }
        { float x[4 * P_L]; __builtin_memcpy(x, vacc0, sizeof x);
          p_add_lanes(acc0 + (ji0 - i0b), x, 4 * P_L); }
      }
    }
    float r0[512];
    #pragma omp simd
    for (int64_t i0 = i0b; i0 < i0e; i0++) {
      r0[i0 - i0b] = (float)acc0[i0 - i0b];
      a1[i0] = (float)acc0[i0 - i0b];
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 8;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 12288), 64, p_error);
}

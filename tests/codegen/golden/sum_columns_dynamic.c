static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  float* const a1 = p[1];
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  const int64_t n2 = n[2];
  const int64_t n3 = n[3];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0b = (t) * 64;
    const int64_t i0e = p_min(i0b + 64, n0);
    double acc0[64];
    for (int64_t j = 0; j < 64; j++) acc0[j] = 0;
    for (int64_t b = 0; b < n1; b += 32) {
      const int64_t be = p_min(b + 32, n1);
      int64_t ji0 = i0b;
      for (; ji0 + 4 * P_L <= i0e; ji0 += 4 * P_L) {
        p_vf vacc0[4];
        for (int u = 0; u < 4; u++) vacc0[u] = P_B(0.0f);
        for (int64_t i1 = b; i1 < be; i1++) {
          #pragma GCC unroll 4
          for (int u = 0; u < 4; u++) {
            const int64_t i0 = ji0 + u * P_L;
            const p_vf t0 = p_load(&a0[n0*i1 + i0]);
            const p_vf xacc0 = t0;
            vacc0[u] = vacc0[u] + xacc0;
          }
        }
        { float x[4 * P_L]; __builtin_memcpy(x, vacc0, sizeof x);
          for (int64_t k = 0; k < 4 * P_L; k++) { acc0[ji0 - i0b + k] += x[k]; }
        }
      }
      for (; ji0 < i0e; ji0 += P_L) {
        p_vf vacc0[1];
        vacc0[0] = P_B(0.0f);
        for (int64_t i1 = b; i1 < be; i1++) {
          const int64_t i0 = ji0;
          const p_vi m = p_upto(i0e - i0);
          const p_vf t1 = p_load_part(&a0[n0*i1 + i0], m);
          const p_vf xacc0 = p_choosev(m, t1, P_B(0.0f));
          vacc0[0] = vacc0[0] + xacc0;
        }
        { float x[1 * P_L]; __builtin_memcpy(x, vacc0, sizeof x);
          p_add_lanes(acc0 + (ji0 - i0b), x, p_min(i0e - ji0, P_L)); }
      }
    }
    float r0[64];
    #pragma omp simd
    for (int64_t i0 = i0b; i0 < i0e; i0++) {
      r0[i0 - i0b] = (float)acc0[i0 - i0b];
      a1[i0] = (float)acc0[i0 - i0b];
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  const int64_t n2 = n[2];
  const int64_t n3 = n[3];
  const int64_t range = n3;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + n2), 64, p_error);
}

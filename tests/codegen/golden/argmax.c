static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error) {
  const float* const a0 = p[0];
  int64_t* const a1 = p[1];
  for (int64_t t = begin; t < end; t++) {
    const int64_t i0 = t;
    float acc0 = (-INFINITY);
    int64_t acc0k = INT64_C(9223372036854775807);
    p_vf vacc0[2];
    p_vi vacc0k[2];
    for (int u = 0; u < 2; u++) { vacc0[u] = P_B(0.0f); vacc0k[u] = P_BI(-1); }
    {
      int64_t ji1 = 0;
      for (; ji1 + 2 * P_L <= 96; ji1 += 2 * P_L) {
        #pragma GCC unroll 2
        for (int u = 0; u < 2; u++) {
          const int64_t i1 = ji1 + u * P_L;
          const p_vf t0 = p_load(&a0[96*i0 + i1]);
          const p_vi t1 = P_BI((int32_t)(i1)) + p_lanes();
          const p_vf xacc0 = t0;
          const p_vi yacc0 = ((vacc0[u] == vacc0[u]) & ~(xacc0 <= vacc0[u])) | (vacc0k[u] == -1);
          vacc0[u] = p_choosev(yacc0, xacc0, vacc0[u]);
          vacc0k[u] = p_choosei(yacc0, t1, vacc0k[u]);
        }
      }
    }
    { float x[2 * P_L]; __builtin_memcpy(x, vacc0, sizeof x);
      int32_t k[2 * P_L]; __builtin_memcpy(k, vacc0k, sizeof k);
      for (int j = 0; j < 2 * P_L; j++) if (k[j] != -1) { if (!(acc0 > x[j]) && ((x[j] != x[j] && (acc0 == acc0 || (int64_t)k[j] < acc0k)) || (acc0 == acc0 && (x[j] > acc0 || (x[j] == acc0 && (int64_t)k[j] < acc0k))))) { acc0 = x[j]; acc0k = (int64_t)k[j]; } } }
    const int64_t r0 = acc0k;
    a1[i0] = r0;
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  const int64_t range = 8;
  p_run(@_part, p, n, range, 1 + 131072 / (1 + 288), 64, p_error);
}

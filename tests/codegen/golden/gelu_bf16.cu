extern "C" __global__ void __launch_bounds__(256) @(const uint16_t* a0, uint16_t* a1, int64_t n0) {
  const int item = (int)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int i0g = item;
  const int i0b = i0g * 8;
  alignas(16) uint16_t v0[8];
  p_load_even<8>(v0, a0 + (i0b));
  alignas(16) float s5[8];
  #pragma unroll
  for (int u = 0; u < 8; u++) {
    const int i0 = i0b + u;
    const float t1 = p_at_bf16(v0, u);
    const float t2 = p_normal_cdff(t1);
    const float t3 = t1 * t2;
    const uint16_t t4 = p_to_bf16(t3);
    s5[u] = t3;
  }
  p_store_bf16<8>(a1 + (i0b), s5);
}

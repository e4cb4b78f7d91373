extern "C" __global__ void __launch_bounds__(128) @(float* a0, const float* a1, int64_t n0, int64_t n1, int64_t n2) {
  const int lane = threadIdx.x % 8;
  const int64_t item = (int64_t)blockIdx.x * 16 + threadIdx.x / 8;
  if (item >= n0) return;
  const int64_t i0 = item;
  float acc0 = (-INFINITY);
  alignas(16) float v0[8];
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t q = lane + k * 8;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    p_load<4>(v0 + k * 4, a1 + (n2*i0 + i1b), low, cnt);
  }
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t q = lane + k * 8;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[k * 4 + u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[k * 4 + u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
  }
  #pragma unroll
  for (int o = 4; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<8>(acc0, o);
    acc0 = p_nan_max(acc0, oacc0);
  }
  const float r0 = acc0;
  float acc1 = 0;
  float w0[8];
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t q = lane + k * 8;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t2 = v0[k * 4 + u];
        const float t3 = t2 - r0;
        const float t4 = p_expf(t3);
        w0[k * 4 + u] = t4;
        acc1 += t4;
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t2 = v0[k * 4 + u];
        const float t3 = t2 - r0;
        const float t4 = p_expf(t3);
        w0[k * 4 + u] = t4;
        acc1 += t4;
      }
    }
  }
  #pragma unroll
  for (int o = 4; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<8>(acc1, o);
    acc1 += oacc1;
  }
  const float r1 = acc1;
  const float t5 = 1.0f / r1;
  const float r2 = t5;
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t q = lane + k * 8;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    alignas(16) float s7[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int64_t i1 = i1b + u;
      const float t6 = w0[k * 4 + u] * r2;
      s7[u] = t6;
    }
    p_store<4>(a0 + (n2*i0 + i1b), s7, low, cnt);
  }
}

extern "C" __global__ void __launch_bounds__(128) @(float* a0, const float* a1, int64_t n0, int64_t n1, int64_t n2) {
  const int lane = threadIdx.x % 32;
  const int64_t item = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
  if (item >= n0) return;
  const int64_t i0 = item;
  float acc0 = (-INFINITY);
  alignas(16) float v0[8];
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t q = lane + k * 32;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    p_load<4>(v0 + k * 4, a1 + (n2*i0 + i1b), low, cnt);
  }
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t q = lane + k * 32;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[k * 4 + u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[k * 4 + u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 = p_nan_max(acc0, oacc0);
  }
  const float r0 = acc0;
  float acc1 = 0;
  float w0[8];
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t q = lane + k * 32;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t2 = v0[k * 4 + u];
        const float t3 = t2 - r0;
        const float t4 = p_expf(t3);
        w0[k * 4 + u] = t4;
        acc1 += t4;
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t2 = v0[k * 4 + u];
        const float t3 = t2 - r0;
        const float t4 = p_expf(t3);
        w0[k * 4 + u] = t4;
        acc1 += t4;
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  const float r1 = acc1;
  const float t5 = 1.0f / r1;
  const float r2 = t5;
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t q = lane + k * 32;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    alignas(16) float s7[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int64_t i1 = i1b + u;
      const float t6 = w0[k * 4 + u] * r2;
      s7[u] = t6;
    }
    p_store<4>(a0 + (n2*i0 + i1b), s7, low, cnt);
  }
}

extern "C" __global__ void __launch_bounds__(128) @(float* a0, const float* a1, int64_t n0, int64_t n1, int64_t n2) {
  const int lane = threadIdx.x % 32;
  const int64_t item = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
  if (item >= n0) return;
  const int64_t i0 = item;
  float acc0 = (-INFINITY);
  alignas(16) float v0[32];
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int64_t q = lane + k * 32;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    p_load<4>(v0 + k * 4, a1 + (n2*i0 + i1b), low, cnt);
  }
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int64_t q = lane + k * 32;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[k * 4 + u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[k * 4 + u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 = p_nan_max(acc0, oacc0);
  }
  const float r0 = acc0;
  float acc1 = 0;
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int64_t q = lane + k * 32;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t2 = v0[k * 4 + u];
        const float t3 = t2 - r0;
        const float t4 = p_expf(t3);
        acc1 += t4;
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t2 = v0[k * 4 + u];
        const float t3 = t2 - r0;
        const float t4 = p_expf(t3);
        acc1 += t4;
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  const float r1 = acc1;
  const float t5 = 1.0f / r1;
  const float r2 = t5;
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int64_t q = lane + k * 32;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    alignas(16) float s10[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int64_t i1 = i1b + u;
      const float t6 = v0[k * 4 + u];
      const float t7 = t6 - r0;
      const float t8 = p_expf(t7);
      const float t9 = t8 * r2;
      s10[u] = t9;
    }
    p_store<4>(a0 + (n2*i0 + i1b), s10, low, cnt);
  }
}

extern "C" __global__ void __launch_bounds__(512) @(float* a0, const float* a1, int64_t n0, int64_t n1, int64_t n2) {
  const int lane = threadIdx.x;
  const int group = blockDim.x;
  const int64_t item = (int64_t)blockIdx.x;
  const int64_t i0 = item;
  float acc0 = (-INFINITY);
  alignas(16) float v0[8];
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t q = lane + k * group;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    p_load<4>(v0 + k * 4, a1 + (n2*i0 + i1b), low, cnt);
  }
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t q = lane + k * group;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[k * 4 + u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[k * 4 + u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 = p_nan_max(acc0, oacc0);
  }
  __shared__ float xacc0[16];
  if (lane % 32 == 0) xacc0[lane / 32] = acc0;
  __syncthreads();
  acc0 = lane % 32 < (group / 32) ? xacc0[lane % 32] : (-INFINITY);
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 = p_nan_max(acc0, oacc0);
  }
  const float r0 = acc0;
  float acc1 = 0;
  float w0[8];
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t q = lane + k * group;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t2 = v0[k * 4 + u];
        const float t3 = t2 - r0;
        const float t4 = p_expf(t3);
        w0[k * 4 + u] = t4;
        acc1 += t4;
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t2 = v0[k * 4 + u];
        const float t3 = t2 - r0;
        const float t4 = p_expf(t3);
        w0[k * 4 + u] = t4;
        acc1 += t4;
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  __shared__ float xacc1[16];
  if (lane % 32 == 0) xacc1[lane / 32] = acc1;
  __syncthreads();
  acc1 = lane % 32 < (group / 32) ? xacc1[lane % 32] : 0;
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  const float r1 = acc1;
  const float t5 = 1.0f / r1;
  const float r2 = t5;
  #pragma unroll
  for (int k = 0; k < 2; k++) {
    const int64_t q = lane + k * group;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    alignas(16) float s7[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int64_t i1 = i1b + u;
      const float t6 = w0[k * 4 + u] * r2;
      s7[u] = t6;
    }
    p_store<4>(a0 + (n2*i0 + i1b), s7, low, cnt);
  }
}

extern "C" __global__ void __launch_bounds__(512) @(float* a0, const float* a1, int64_t n0, int64_t n1, int64_t n2) {
  const int lane = threadIdx.x;
  const int group = blockDim.x;
  const int64_t item = (int64_t)blockIdx.x;
  const int64_t i0 = item;
  float acc0 = (-INFINITY);
  alignas(16) float v0[32];
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int64_t q = lane + k * group;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    p_load<4>(v0 + k * 4, a1 + (n2*i0 + i1b), low, cnt);
  }
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int64_t q = lane + k * group;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[k * 4 + u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[k * 4 + u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 = p_nan_max(acc0, oacc0);
  }
  __shared__ float xacc0[16];
  if (lane % 32 == 0) xacc0[lane / 32] = acc0;
  __syncthreads();
  acc0 = lane % 32 < (group / 32) ? xacc0[lane % 32] : (-INFINITY);
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 = p_nan_max(acc0, oacc0);
  }
  const float r0 = acc0;
  float acc1 = 0;
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int64_t q = lane + k * group;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t2 = v0[k * 4 + u];
        const float t3 = t2 - r0;
        const float t4 = p_expf(t3);
        acc1 += t4;
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t2 = v0[k * 4 + u];
        const float t3 = t2 - r0;
        const float t4 = p_expf(t3);
        acc1 += t4;
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  __shared__ float xacc1[16];
  if (lane % 32 == 0) xacc1[lane / 32] = acc1;
  __syncthreads();
  acc1 = lane % 32 < (group / 32) ? xacc1[lane % 32] : 0;
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  const float r1 = acc1;
  const float t5 = 1.0f / r1;
  const float r2 = t5;
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int64_t q = lane + k * group;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    alignas(16) float s10[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int64_t i1 = i1b + u;
      const float t6 = v0[k * 4 + u];
      const float t7 = t6 - r0;
      const float t8 = p_expf(t7);
      const float t9 = t8 * r2;
      s10[u] = t9;
    }
    p_store<4>(a0 + (n2*i0 + i1b), s10, low, cnt);
  }
}

extern "C" __global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(512) @(float* a0, const float* a1, int64_t n0, int64_t n1, int64_t n2) {
  const int lane = threadIdx.x + blockIdx.x % 8 * blockDim.x;
  const int group = blockDim.x * 8;
  const int64_t item = (int64_t)blockIdx.x / 8;
  const int64_t i0 = item;
  float acc0 = (-INFINITY);
  alignas(16) float v0[32];
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int64_t q = lane + k * group;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    p_load<4>(v0 + k * 4, a1 + (n2*i0 + i1b), low, cnt);
  }
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int64_t q = lane + k * group;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[k * 4 + u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[k * 4 + u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 = p_nan_max(acc0, oacc0);
  }
  __shared__ float xacc0[128];
  if (lane % 32 == 0) xacc0[lane / 32] = acc0;
  p_cluster_sync();
  acc0 = (-INFINITY);
  for (int k = lane % 32; k < (group / 32); k += 32) {
    const float oacc0 = p_peer(xacc0 + k, k / ((group / 32) / 8));
    acc0 = p_nan_max(acc0, oacc0);
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 = p_nan_max(acc0, oacc0);
  }
  const float r0 = acc0;
  float acc1 = 0;
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int64_t q = lane + k * group;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t2 = v0[k * 4 + u];
        const float t3 = t2 - r0;
        const float t4 = p_expf(t3);
        acc1 += t4;
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t2 = v0[k * 4 + u];
        const float t3 = t2 - r0;
        const float t4 = p_expf(t3);
        acc1 += t4;
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  __shared__ float xacc1[128];
  if (lane % 32 == 0) xacc1[lane / 32] = acc1;
  p_cluster_sync();
  acc1 = 0;
  for (int k = lane % 32; k < (group / 32); k += 32) {
    const float oacc1 = p_peer(xacc1 + k, k / ((group / 32) / 8));
    acc1 += oacc1;
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  const float r1 = acc1;
  const float t5 = 1.0f / r1;
  const float r2 = t5;
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int64_t q = lane + k * group;
    if (q >= n1) break;
    const int64_t i1g = q;
    const int shift = n2 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n2*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n2 - i1b, 4);
    alignas(16) float s10[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int64_t i1 = i1b + u;
      const float t6 = v0[k * 4 + u];
      const float t7 = t6 - r0;
      const float t8 = p_expf(t7);
      const float t9 = t8 * r2;
      s10[u] = t9;
    }
    p_store<4>(a0 + (n2*i0 + i1b), s10, low, cnt);
  }
  p_cluster_sync();
}

extern "C" __global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(1024) @(const float* a0, float* a1, int64_t n0, int64_t n1, int64_t n2) {
  const int lane = threadIdx.x + blockIdx.x % 8 * 1024;
  const int64_t item = (int64_t)blockIdx.x / 8;
  const int64_t i0 = item;
  float acc0 = (-INFINITY);
  #pragma unroll 4
  for (int64_t q = lane; q < n2; q += 8192) {
    const int64_t i1g = q;
    const int shift = n1 % 4 == 0 ? 0 : (int)((uint64_t)(a1 + (n1*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n1 - i1b, 4);
    alignas(16) float v0[4];
    p_load<4>(v0, a0 + (n1*i0 + i1b), low, cnt);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t1 = v0[u];
        acc0 = p_nan_max(acc0, t1);
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 = p_nan_max(acc0, oacc0);
  }
  __shared__ float xacc0[256];
  if (lane % 32 == 0) xacc0[lane / 32] = acc0;
  p_cluster_sync();
  acc0 = (-INFINITY);
  for (int k = lane % 32; k < 256; k += 32) {
    const float oacc0 = p_peer(xacc0 + k, k / (256 / 8));
    acc0 = p_nan_max(acc0, oacc0);
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 = p_nan_max(acc0, oacc0);
  }
  const float r0 = acc0;
  float acc1 = 0;
  #pragma unroll 4
  for (int64_t q = lane; q < n2; q += 8192) {
    const int64_t i1g = q;
    const int shift = n1 % 4 == 0 ? 0 : (int)((uint64_t)(a1 + (n1*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n1 - i1b, 4);
    alignas(16) float v2[4];
    p_load<4>(v2, a0 + (n1*i0 + i1b), low, cnt);
    if (low <= 0 && cnt >= 4) {
      #pragma unroll
      for (int u = 0; u < 4; u++) {
        const int64_t i1 = i1b + u;
        const float t3 = v2[u];
        const float t4 = t3 - r0;
        const float t5 = p_expf(t4);
        acc1 += t5;
      }
    }
    else {
      #pragma unroll
      for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
        const int64_t i1 = i1b + u;
        const float t3 = v2[u];
        const float t4 = t3 - r0;
        const float t5 = p_expf(t4);
        acc1 += t5;
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  __shared__ float xacc1[256];
  if (lane % 32 == 0) xacc1[lane / 32] = acc1;
  p_cluster_sync();
  acc1 = 0;
  for (int k = lane % 32; k < 256; k += 32) {
    const float oacc1 = p_peer(xacc1 + k, k / (256 / 8));
    acc1 += oacc1;
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  const float r1 = acc1;
  const float t6 = 1.0f / r1;
  const float r2 = t6;
  #pragma unroll 4
  for (int64_t q = lane; q < n2; q += 8192) {
    const int64_t i1g = q;
    const int shift = n1 % 4 == 0 ? 0 : (int)((uint64_t)(a1 + (n1*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n1 - i1b, 4);
    alignas(16) float v7[4];
    p_load<4>(v7, a0 + (n1*i0 + i1b), low, cnt);
    alignas(16) float s12[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int64_t i1 = i1b + u;
      const float t8 = v7[u];
      const float t9 = t8 - r0;
      const float t10 = p_expf(t9);
      const float t11 = t10 * r2;
      s12[u] = t11;
    }
    p_store<4>(a1 + (n1*i0 + i1b), s12, low, cnt);
  }
  p_cluster_sync();
}

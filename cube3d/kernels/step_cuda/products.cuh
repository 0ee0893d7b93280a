// Activations in shared memory and stages of weights -> sums, and packets of them for others. Up to 8 rows of
// activations are the columns of a tensor-core product, of which weights are the rows.

// Products of this CTA's items with the activations -> sums of each warp for each item
template <class S>
__device__ void multiply(const Shared& shared, int stride, Ring& ring) {
  const u32 thread = this_thread();
  constexpr int LOADS = SPAN * BYTES / 32;  // of 16 rows of 32 bytes
  const int lane = thread & 31, warp = thread >> 5;
  const bool real = (lane & 7) < R;
  const u32 zero = shared.base + AT_ZERO;
  const u32 act = shared.base + AT_ACT + ((lane & 7) * stride + warp * SPAN + (lane >> 3) * 8) * 2;
  u32 mine[LOADS];  // the copy engine stores chunk c of 16 bytes of a row's 128 at c ^ (row & 7)
#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    const int row = lane & 15, byte = warp * SPAN * BYTES + 32 * i + (lane >> 4) * 16;
    mine[i] = shared.base + AT_RING + byte / 128 * 2048 + row * 128 + ((byte % 128 / 16) ^ (row & 7)) * 16;
  }
  const u32 begin = S::begin(blockIdx.x), end = S::begin(blockIdx.x + 1);
  u32 kept = ~0u, b[S::EACH][SPAN / 32][4];  // the activations of a group of columns
  u32 left = (end - begin) * S::EACH, a[LOADS][4], next[LOADS][4];
  const auto load = [&](u32 (&to)[LOADS][4]) {
    shared.wait_full(ring.slot, ring.parity);
#pragma unroll
    for (int i = 0; i < LOADS; ++i) ldmatrix(to[i], mine[i] + ring.slot * STAGE);
    __syncwarp();
    if (lane == 0) barrier_arrive(shared.empty(ring.slot));
    ring.advance();
  };
  if (PIPELINE && left) load(next);
  for (u32 item = begin; item < end; ++item) {
    if (item / S::UNITS != kept) {
      kept = item / S::UNITS;
#pragma unroll
      for (int part = 0; part < int(S::EACH); ++part)
#pragma unroll
        for (int i = 0; i < SPAN / 32; ++i)
          ldmatrix(b[part][i], real ? act + (kept * S::EACH + part) * COLUMNS * 2 + 64 * i : zero);
    }
    float acc[2][4] = {};
#pragma unroll
    for (int part = 0; part < int(S::EACH); ++part) {
      if constexpr (PIPELINE) {  // a stage is read from shared memory while the one before is multiplied
#pragma unroll
        for (int i = 0; i < 4 * LOADS; ++i) a[i / 4][i % 4] = next[i / 4][i % 4];
        if (--left) load(next);
      } else {
        load(a);
      }
#pragma unroll
      for (int i = 0; i < LOADS; ++i) {
        if constexpr (KIND == 0) {
          const u32(&two)[4] = b[part][i / 2];
          mma(acc[i & 1], a[i][0], a[i][1], a[i][2], a[i][3], two[i % 2 * 2], two[i % 2 * 2 + 1]);
        } else {  // columns 0..15 of rows 0..7, of rows 8..15, then columns 16..31
          u32 p[4], q[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if constexpr (KIND == 1)
              widen_fp8(a[i][j], p[j], q[j]);
            else
              widen_int8(a[i][j], p[j], q[j]);
          }
          mma(acc[0], p[0], p[1], q[0], q[1], b[part][i][0], b[part][i][1]);
          mma(acc[1], p[2], p[3], q[2], q[3], b[part][i][2], b[part][i][3]);
        }
      }
    }
    float* sums = shared.floats(AT_SUMS) + ((item - begin) * WARPS + warp) * 16 * R;
    const int g = lane >> 2, n = (lane & 3) * 2;
    if (n < R) {
      sums[g * R + n] = acc[0][0] + acc[1][0], sums[g * R + n + 1] = acc[0][1] + acc[1][1];
      sums[(g + 8) * R + n] = acc[0][2] + acc[1][2], sums[(g + 8) * R + n + 1] = acc[0][3] + acc[1][3];
    }
  }
  meet();
  shared.mark(DONE);
}

__device__ __forceinline__ float whole(const Shared& shared, int item, int row, int n) {
  const float* sums = shared.floats(AT_SUMS) + item * WARPS * 16 * R + row * R + n;
  float total = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) total += sums[w * 16 * R];
  return total;
}

// A product, its scales and biases; give(plane, n, place, value) is called by whole warps, neighbours beside neighbours
template <class S, class Give>
__device__ void product(const Shared& shared, int stride, const float* scale, const u16* bias, Ring& ring, const Give& give) {
  const u32 thread = this_thread();
  constexpr int TURNS = (SUM_ITEMS * 16 * R + THREADS - 1) / THREADS;
  const u32 first = S::begin(blockIdx.x), all = S::items() * 16 * R;
  float times[TURNS], more[TURNS];
#pragma unroll
  for (int j = 0; j < TURNS; ++j) {  // asked for before they are needed
    const u32 i = thread + j * THREADS, item = first + i / (16 * R), place = 16 * (item % S::UNITS) + i % 16;
    times[j] = KIND != 0 && i < all ? scale[place] : 1;
    more[j] = bias && item < S::UNITS && i < all ? wide(bias[place]) : 0;  // once, with the first group of columns
  }
  multiply<S>(shared, stride, ring);
#pragma unroll
  for (int j = 0; j < TURNS; ++j) {
    const u32 i = thread + j * THREADS, item = first + i / (16 * R), place = 16 * (item % S::UNITS) + i % 16;
    if (i < all)
      give(item / S::UNITS, i / 16 % R, place, whole(shared, i / (16 * R), i % 16, i / 16 % R) * times[j] + more[j]);
  }
  shared.mark(SENT);
}

// -> packets of two float32: planes of (R, N / 2)
template <class S, int N>
__device__ void send_wide(const Shared& shared, const float* scale, const u16* bias, u64* y, u32 epoch, Ring& ring) {
  product<S>(shared, ACT_D, scale, bias, ring, [&](u32 plane, u32 n, u32 place, float value) {
    const float next = other_lane(value, 1);
    if (place % 2 == 0)
      send(y + ((plane * R + n) * N + place) / 2, packet(__float_as_uint(value), __float_as_uint(next), epoch));
  });
}

// -> packets of four: planes of (R, D / 4)
template <class S>
__device__ void send_narrow(
    const Shared& shared, int stride, const float* scale, const u16* bias, u64* y, u32 epoch, Ring& ring) {
  product<S>(shared, stride, scale, bias, ring, [&](u32 plane, u32 n, u32 place, float value) {
    const u32 two = bf16_2(value, other_lane(value, 1)), next = other_lane(two, 2);
    if (place % 4 == 0) send(y + ((plane * R + n) * D + place) / 4, packet(two, next, epoch));
  });
}

// SwiGLU: a unit is 8 rows of gate and their 8 of up -> packets of four: (R, HIDDEN / 4)
__device__ void send_hidden(
    const Shared& shared, const float* scale, const u16* bias, u64* y, u32 epoch, Ring& ring) {
  const u32 thread = this_thread();
  constexpr int TURNS = (SUM_ITEMS * 4 * R + THREADS - 1) / THREADS;
  const u32 first = GateUp::begin(blockIdx.x), all = GateUp::items() * 4 * R;
  float times[TURNS][4], more[TURNS][4];
#pragma unroll
  for (int j = 0; j < TURNS; ++j) {
    const u32 i = thread + j * THREADS, place = 8 * (first + i / (4 * R)) + 2 * (i % 4);
#pragma unroll
    for (int l = 0; l < 4; ++l) {
      const u32 at = place + l % 2 + l / 2 * HIDDEN;
      times[j][l] = KIND != 0 && i < all ? scale[at] : 1;
      more[j][l] = bias && i < all ? wide(bias[at]) : 0;
    }
  }
  multiply<GateUp>(shared, ACT_D, ring);
#pragma unroll
  for (int j = 0; j < TURNS; ++j) {
    const u32 i = thread + j * THREADS, two = i % 4, n = i / 4 % R, unit = i / (4 * R);
    float value[2] = {};
#pragma unroll
    for (int l = 0; l < 2 && i < all; ++l) {
      const float gate = whole(shared, unit, 2 * two + l, n) * times[j][l] + more[j][l];
      const float up = whole(shared, unit, 2 * two + l + 8, n) * times[j][l + 2] + more[j][l + 2];
      value[l] = __fdividef(gate, 1 + __expf(-gate)) * up;
    }
    const u32 both = narrow2(value[0], value[1]), next = other_lane(both, 1);
    if (i < all && two % 2 == 0) send(y + (n * HIDDEN + 8 * (first + unit) + 2 * two) / 4, packet(both, next, epoch));
  }
  shared.mark(SENT);
}

// x += its planes; normalised -> activations
template <int PLANES>
__device__ void normalise(const Shared& shared, const u64* planes, u32 epoch) {
  const u32 thread = this_thread();
  constexpr int WIDE = divisor(D / 128, WARPS / R);  // warps for a row
  constexpr int EACH = D / (128 * WIDE);             // groups of four values a thread
  const int lane = thread & 31, warp = thread >> 5;
  const bool used = warp < R * WIDE;
  const int row = min(warp / WIDE, R - 1), place = warp % WIDE * 32 + lane;
  float4* x = reinterpret_cast<float4*>(shared.floats(AT_X) + row * D);
  float* scratch = shared.floats(AT_ROWS);
  float4 mine[EACH];
  float sum = 0, square = 0;
#pragma unroll
  for (int i = 0; i < EACH; ++i) mine[i] = x[place + i * 32 * WIDE];
  if constexpr (PLANES > 0) {
    u64 more[PLANES * EACH];
    receive(shared, more, epoch, [&](int i) {
      return planes + (i / EACH * R + row) * (D / 4) + place + i % EACH * 32 * WIDE;
    });
#pragma unroll
    for (int i = 0; i < PLANES * EACH; ++i) {
      float4& to = mine[i % EACH];
      to.x += low(front(more[i])), to.y += high(front(more[i]));
      to.z += low(back(more[i])), to.w += high(back(more[i]));
    }
    if (used)
#pragma unroll
      for (int i = 0; i < EACH; ++i) x[place + i * 32 * WIDE] = mine[i];
  }
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    sum += mine[i].x + mine[i].y + mine[i].z + mine[i].w;
    square += mine[i].x * mine[i].x + mine[i].y * mine[i].y + mine[i].z * mine[i].z + mine[i].w * mine[i].w;
  }
#pragma unroll
  for (int d = 16; d; d /= 2) sum += other_lane(sum, d), square += other_lane(square, d);
  if (lane == 0) scratch[warp] = sum, scratch[WARPS + warp] = square;
  meet();
  sum = square = 0;
#pragma unroll
  for (int w = 0; w < WIDE; ++w) sum += scratch[row * WIDE + w], square += scratch[WARPS + row * WIDE + w];
  const float mean = sum / D, scale = rsqrtf(fmaxf(square / D - mean * mean, 0) + EPS);
  u16* act = reinterpret_cast<u16*>(shared.bytes + AT_ACT) + row * ACT_D;
  if (used)
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int k = 4 * (place + i * 32 * WIDE);
      *reinterpret_cast<u32*>(act + stands(k)) = narrow2((mine[i].x - mean) * scale, (mine[i].y - mean) * scale);
      *reinterpret_cast<u32*>(act + stands(k + 2)) = narrow2((mine[i].z - mean) * scale, (mine[i].w - mean) * scale);
    }
  meet();
  shared.mark(READY);
}

// The columns of the hidden layer that this CTA's items of the last product need -> activations
__device__ void take_hidden(const Step& step, const Shared& shared, u32 epoch) {
  const u32 thread = this_thread();
  constexpr u32 FOURS = HIDDEN / Down::PLANES / 4;  // of a group of columns, a row
  constexpr int TURNS = (R * FOURS + THREADS - 1) / THREADS;
  u16* act = reinterpret_cast<u16*>(shared.bytes + AT_ACT);
  const u32 begin = Down::begin(blockIdx.x), end = Down::begin(blockIdx.x + 1);
  for (u32 group = begin / Down::UNITS; begin < end && group <= (end - 1) / Down::UNITS; ++group) {
    const auto four = [&](int j) { return min(thread + j * THREADS, R * FOURS - 1); };
    const auto column = [&](int j) { return 4 * (group * FOURS + four(j) % FOURS); };
    u64 seen[TURNS];
    receive(shared, seen, epoch, [&](int j) { return step.hidden + (four(j) / FOURS * HIDDEN + column(j)) / 4; });
#pragma unroll
    for (int j = 0; j < TURNS; ++j) {
      u16* to = act + four(j) / FOURS * ACT_H;
      *reinterpret_cast<u32*>(to + stands(column(j))) = front(seen[j]);
      *reinterpret_cast<u32*>(to + stands(column(j) + 2)) = back(seen[j]);
    }
  }
  meet();
  shared.mark(READY);
}

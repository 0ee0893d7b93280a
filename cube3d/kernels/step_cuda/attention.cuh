// Queries, keys and values of this step, from those that made them; earlier ones from the stream -> parts of attention,
// and their merger into activations. A part of the positions of one row and head is an item.

__device__ __forceinline__ void spread(const uint4& from, float (&y)[8]) {
  const u32 word[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) y[2 * i] = low(word[i]), y[2 * i + 1] = high(word[i]);
}

__device__ __forceinline__ uint4 narrow8(const float (&y)[8]) {
  return {bf16_2(y[0], y[1]), bf16_2(y[2], y[3]), bf16_2(y[4], y[5]), bf16_2(y[6], y[7])};
}

__device__ __forceinline__ float dot(const float (&q)[8], const float (&key)[8]) {
  float score = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) score += q[i] * key[i];
#pragma unroll
  for (int d = LANES / 2; d; d /= 2) score += other_lane(score, d);
  return score;
}

// Eight values of a row: of its query, key or value
__device__ __forceinline__ void take_values(
    const Step& step, const Shared& shared, const Positions& here, int which, int lane, u32 epoch, float (&y)[8]) {
  constexpr int PLANES = Qkv::PLANES;
  Two seen[2 * PLANES];
  receive(shared, seen, epoch, [&](int i) {
    return step.qkv + ((i / 2 * R + here.row) * 3 * D + which * D + here.head * HD + 8 * lane + 4 * (i % 2)) / 2;
  });
#pragma unroll
  for (int i = 0; i < 8; ++i) y[i] = 0;
#pragma unroll
  for (int i = 0; i < 2 * PLANES; ++i) {
    float* to = y + 4 * (i % 2);
    to[0] += __uint_as_float(front(seen[i].first)), to[1] += __uint_as_float(back(seen[i].first));
    to[2] += __uint_as_float(front(seen[i].second)), to[3] += __uint_as_float(back(seen[i].second));
  }
}

// Normalise and rotate
__device__ __forceinline__ void turn(const float* turns, const float (&norm)[8], float (&y)[8]) {
  float square = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) square += y[i] * y[i];
#pragma unroll
  for (int d = LANES / 2; d; d /= 2) square += other_lane(square, d);
  const float scale = rsqrtf(square / HD + 1e-5f);
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float a = y[i] * scale * norm[i], b = y[i + 1] * scale * norm[i + 1];
    y[i] = a * turns[i] - b * turns[i + 1];
    y[i + 1] = b * turns[i] + a * turns[i + 1];
  }
}

__device__ void attend(const Step& step, const Block& block, const Shared& shared, bool alone, u32 epoch, Ring& ring) {
  const u32 thread = this_thread();
  const int lane = thread % LANES, group = thread / LANES;
  float norm[2][8];
#pragma unroll
  for (int i = 0; i < 16; ++i) norm[i / 8][i % 8] = block.norm[i / 8 * HD + 8 * lane + i % 8];
  for (u32 item = blockIdx.x; item < ITEMS; item += CTAS) {
    const Positions here(item, shared, alone);
    const float* turns = shared.turns(here.row) + 8 * lane;
    const bool own = here.part == 0 && thread < 32;  // the current token's key and value are not read back
    float q[8], key[8], value[8], acc[8] = {}, most = LOWEST, total = 0;
    take_values(step, shared, here, 0, lane, epoch, q);
    if (own)
      take_values(step, shared, here, 1, lane, epoch, key), take_values(step, shared, here, 2, lane, epoch, value);
    turn(turns, norm[0], q);
#pragma unroll
    for (int i = 0; i < 8; ++i) q[i] *= rsqrtf(float(HD));
    if (own) {
      turn(turns, norm[1], key);
      const uint4 narrow_key = narrow8(key), narrow_value = narrow8(value);
      spread(narrow_key, key), spread(narrow_value, value);
      const float score = dot(q, key);
      if (group == 0) {
        const long at = here.cache() + long(here.at) * HD + 8 * lane;
        *reinterpret_cast<uint4*>(block.k + at) = narrow_key, *reinterpret_cast<uint4*>(block.v + at) = narrow_value;
        most = score, total = 1;
#pragma unroll
        for (int i = 0; i < 8; ++i) acc[i] = value[i];
      }
    }
    shared.mark(READY);
    for (int first = here.first; first < here.last; first += KEYS) {
      constexpr int EACH = KEYS / GROUPS;
      const char* stage = shared.bytes + AT_RING + ring.slot * STAGE + 16 * lane;
      float score[EACH], top = most;
      shared.wait_full(ring.slot, ring.parity);
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        const int at = group + i * GROUPS;
        spread(*reinterpret_cast<const uint4*>(stage + at * HD * 2), key);
        score[i] = dot(q, key);
        if (first + at >= here.last) score[i] = LOWEST;  // what an earlier stage left there
        top = fmaxf(top, score[i]);
      }
      const float fade = __expf(most - top);
      total *= fade;
#pragma unroll
      for (int j = 0; j < 8; ++j) acc[j] *= fade;
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        const int at = group + i * GROUPS;
        if (first + at < here.last) {
          spread(*reinterpret_cast<const uint4*>(stage + STAGE / 2 + at * HD * 2), value);
          const float weight = __expf(score[i] - top);
          total += weight;
#pragma unroll
          for (int j = 0; j < 8; ++j) acc[j] += weight * value[j];
        }
      }
      most = top;
      __syncwarp();
      if ((thread & 31) == 0) barrier_arrive(shared.empty(ring.slot));
      ring.advance();
    }
    float* scratch = shared.floats(AT_HEAD);  // (GROUPS, HD), then most and total of each group
#pragma unroll
    for (int j = 0; j < 8; j += 4)
      *reinterpret_cast<float4*>(scratch + group * HD + 8 * lane + j) = {acc[j], acc[j + 1], acc[j + 2], acc[j + 3]};
    if (lane == 0) scratch[GROUPS * HD + group] = most, scratch[GROUPS * HD + GROUPS + group] = total;
    meet();
    shared.mark(DONE);
    if (thread < HD) {
      float top = LOWEST, sum = 0, result = 0;
#pragma unroll
      for (int i = 0; i < GROUPS; ++i) top = fmaxf(top, scratch[GROUPS * HD + i]);
#pragma unroll
      for (int i = 0; i < GROUPS; ++i) {
        const float fade = __expf(scratch[GROUPS * HD + i] - top);
        sum += fade * scratch[GROUPS * HD + GROUPS + i];
        result += fade * scratch[i * HD + thread];
      }
      result = sum > 0 ? result / sum : 0;
      const u32 two = bf16_2(result, other_lane(result, 1)), next = other_lane(two, 2);
      const u32 to = here.part * R + here.row;
      if (thread % 4 == 0) send(step.parts + (to * D + here.head * HD + thread) / 4, packet(two, next, epoch));
      if (thread == 0)
        send(step.shares + to * HEADS + here.head,
             packet(0, __float_as_uint(sum > 0 ? top + __logf(sum) : LOWEST), epoch));
    }
    shared.mark(SENT);
    meet();
  }
}

// The parts of every head that this CTA's items of the product behind need -> activations
__device__ void merge(const Step& step, const Shared& shared, u32 epoch) {
  const u32 thread = this_thread();
  constexpr u32 FOURS = D / Out::PLANES / 4;  // of a group of columns, a row
  u16* act = reinterpret_cast<u16*>(shared.bytes + AT_ACT);
  const u32 begin = Out::begin(blockIdx.x), end = Out::begin(blockIdx.x + 1);
  const u32 start = begin / Out::UNITS, groups = end > begin ? (end - 1) / Out::UNITS - start + 1 : 0;
  for (u32 i = thread; i < R * groups * FOURS; i += THREADS) {
    const u32 row = i % R, k = (start * FOURS + i / R) * 4, head = k / HD;
    u64 seen[2 * SPLITS];
    receive(shared, seen, epoch, [&](int j) {
      const u32 from = j / 2 * R + row;
      return j % 2 ? step.parts + (from * D + k) / 4 : step.shares + from * HEADS + head;
    });
    float top = LOWEST, sum = 0;
    float4 mixed = {0, 0, 0, 0};
#pragma unroll
    for (int p = 0; p < SPLITS; ++p) top = fmaxf(top, __uint_as_float(back(seen[2 * p])));
#pragma unroll
    for (int p = 0; p < SPLITS; ++p) {
      const float weight = __expf(__uint_as_float(back(seen[2 * p])) - top);
      const u32 one = front(seen[2 * p + 1]), two = back(seen[2 * p + 1]);
      sum += weight;
      mixed.x += weight * low(one), mixed.y += weight * high(one);
      mixed.z += weight * low(two), mixed.w += weight * high(two);
    }
    const float scale = 1 / sum;
    *reinterpret_cast<u32*>(act + row * ACT_D + stands(k)) = narrow2(mixed.x * scale, mixed.y * scale);
    *reinterpret_cast<u32*>(act + row * ACT_D + stands(k + 2)) = narrow2(mixed.z * scale, mixed.w * scale);
  }
  meet();
  shared.mark(READY);
}

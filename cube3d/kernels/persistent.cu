// The logits after one token of each slot: every block of the transformer in one launch of one CTA for each
// multiprocessor. Compiled at run time, with the model's sizes as macros; persistent.py says what they are.
//
// A step is a chain of four products and an attention a block, each of which needs what came before. Launched one by
// one, memory stands still between them. Here one thread of each CTA does nothing but ask for weights, and for the keys
// and values of earlier tokens, in the order in which they will be needed and as far ahead as shared memory holds (5 us
// of traffic), whatever the others wait for. Those publish what they made and await what they need of other CTAs. Sums
// over K are split between CTAs where that evens the load; the pieces ("planes") are added by their reader in fixed
// order, so a result never depends on timing. Knows no sampling.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

constexpr int WARPS = 8, THREADS = 32 * WARPS;  // that compute; one warp more fetches
constexpr int BYTES = KIND == 0 ? 2 : 1;        // of a weight
constexpr int HIDDEN = 4 * D;
constexpr int SPAN = COLUMNS / WARPS;        // columns of a stage that one warp takes
constexpr int STAGE = 16 * COLUMNS * BYTES;  // a stage is 16 rows of COLUMNS weights, in blocks of 128 bytes a row
constexpr int PAIRS = R * HEADS, ITEMS = PAIRS * SPLITS;
constexpr int LANES = HD / 8, GROUPS = WARPS * 32 / LANES;  // threads for a key; keys at a time
constexpr int KEYS = STAGE / 4 / HD;                        // in a stage, and as many values behind them
constexpr int ACT_D = D + 8, ACT_H = HIDDEN + 8;            // strides of rows of 16-bit activations
constexpr float LOWEST = -1e30f;

// Shared memory, in bytes
constexpr int AT_X = 0, AT_ACT = AT_X + R * D * 4, AT_SUMS = AT_ACT + R * ACT_H * 2;
constexpr int AT_HEAD = AT_SUMS + SUM_UNITS * WARPS * 16 * R * 4, AT_ROWS = AT_HEAD + GROUPS * (HD + 2) * 4;
constexpr int AT_ZERO = AT_ROWS + 256, AT_FULL = AT_ZERO + 16, AT_EMPTY = AT_FULL + 8 * STAGES;
constexpr int AT_TURNS = AT_EMPTY + 8 * STAGES, AT_PLACES = AT_TURNS + R / 2 * HD * 4;
constexpr int AT_BLOCKS = (AT_PLACES + R / 2 * 4 + 15) / 16 * 16;
constexpr int AT_RING = (AT_BLOCKS + BLOCKS * 16 * 8 + 1023) / 1024 * 1024;

struct Block {
  const char *qkv, *out, *gate_up, *down;                            // tensor maps of the weights
  const float *qkv_scale, *out_scale, *gate_up_scale, *down_scale;  // of 8-bit weights
  const u16 *qkv_bias, *out_bias, *gate_up_bias, *down_bias;
  const float* norm;
  u16 *k, *v;
  u64 unused;
};

struct Step {
  const Block* blocks;
  const char* head;  // tensor map
  const float* head_scale;
  const long long* position;  // of each slot
  const float* turns;         // cosines and sines
  const float* x;             // (R, D): embeddings of the tokens
  float *qkv, *out, *down;    // planes of (R, 3 D), (R, D), (R, D)
  float *parts, *shares;      // (SPLITS, R, D), (SPLITS, R, HEADS)
  u16* hidden;                // (R, HIDDEN)
  float* logits;              // (R, CODES)
  u32* passed;                // (CTAS,): barriers that each CTA has reached, in all launches
};

__device__ __forceinline__ float wide(u16 bits) { return __uint_as_float(u32(bits) << 16); }
__device__ __forceinline__ u32 narrow2(float a, float b) {  // b in the upper half
  u32 both;
  if (KIND == 0)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(b), "f"(a));
  else
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(b), "f"(a));
  return both;
}
__device__ __forceinline__ u32 bf16_2(float a, float b) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(b), "f"(a));
  return both;
}
__device__ __forceinline__ float4 fresh(const float* p) {  // written by another CTA: past this one's own cache
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ uint4 fresh(const void* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ float fresh1(const float* p) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ void add(float4& a, float4 b) { a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w; }

__device__ __forceinline__ u32 shared_address(const void* p) {
  u64 at;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(at) : "l"(p));
  return u32(at);
}

__device__ __forceinline__ void meet() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }

__device__ __forceinline__ void mbar_wait(u32 bar, u32 parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra OVER;\nbra AGAIN;\nOVER:\n}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void mbar_arrive(u32 bar) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(bar) : "memory");
}

__device__ __forceinline__ void ldmatrix(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  if (KIND == 0)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Four weights of 8 bits -> two pairs of 16
__device__ __forceinline__ void widen(u32 four, u32& low, u32& high) {
  if (KIND == 1) {
    asm("{\n.reg .b16 a, b;\nmov.b32 {a, b}, %2;\ncvt.rn.f16x2.e4m3x2 %0, a;\ncvt.rn.f16x2.e4m3x2 %1, b;\n}"
        : "=r"(low), "=r"(high) : "r"(four));
  } else {  // 1024 + (weight + 128) has the weight in its last bits
    const u32 shifted = four ^ 0x80808080u, ones = 0x64646464u, less = 0xE480E480u;  // two times -1152
    asm("{\n.reg .b32 a, b;\nprmt.b32 a, %2, %3, 0x4140;\nprmt.b32 b, %2, %3, 0x4342;\n"
        "add.rn.f16x2 %0, a, %4;\nadd.rn.f16x2 %1, b, %4;\n}"
        : "=r"(low), "=r"(high) : "r"(shifted), "r"(ones), "r"(less));
  }
}
// Where the activation of column k stands in its row, so that a lane finds it beside its weights: of 8-bit weights, a
// lane holds four neighbours where the product wants two pairs 8 apart.
__device__ __forceinline__ int stands(int k) {
  return KIND == 0 ? k : (k & ~15) | (k & 2) << 2 | (k & 12) >> 1 | (k & 1);
}

// What of an (N, K) product a CTA takes: stages from begin(cta) to begin(cta + 1). They are ordered by group of columns,
// unit of 16 rows and columns within; the stages of one group and unit are an item. WHOLE: no item is shared.
template <int N, int K, int KGROUPS, bool WHOLE>
struct Share {
  static constexpr bool WHOLE_ITEMS = WHOLE;
  static constexpr u32 EACH = K / KGROUPS / COLUMNS, UNITS = N / 16, ALL = UNITS * KGROUPS * EACH;
  __device__ static u32 begin(u32 cta) { return WHOLE ? cta * (ALL / EACH) / CTAS * EACH : cta * ALL / CTAS; }
  __device__ static u32 owner(u32 stage) { return ((stage + 1) * CTAS - 1) / ALL; }
  __device__ static u32 group(u32 stage) { return stage / EACH / UNITS; }
  __device__ static u32 unit(u32 stage) { return stage / EACH % UNITS; }
  __device__ static u32 column(u32 stage) { return (group(stage) * EACH + stage % EACH) * COLUMNS; }
};
using Qkv = Share<3 * D, D, 1, false>;
using Out = Share<D, D, OUT_GROUPS, true>;
using GateUp = Share<2 * HIDDEN, D, 1, true>;
using Down = Share<D, HIDDEN, 1, false>;
using Head = Share<CODES, D, 1, true>;

struct Shared {
  u32 base;  // as the address in shared memory
  char* bytes;
  __device__ float* floats(int at) const { return reinterpret_cast<float*>(bytes + at); }
  __device__ const Block& block(int i) const { return reinterpret_cast<const Block*>(bytes + AT_BLOCKS)[i]; }
  __device__ const float* turns(int row) const { return floats(AT_TURNS) + row / 2 * HD; }
  __device__ u32 full(int slot) const { return base + AT_FULL + 8 * slot; }
  __device__ u32 empty(int slot) const { return base + AT_EMPTY + 8 * slot; }
};

struct Positions {  // what an item of attention reads: [first, last) of the cache of (row, head)
  int part, row, head, at, first, last, step;
  __device__ Positions(int item, const Shared& shared, bool alone) {
    part = u32(item) % SPLITS;
    row = u32(item) / SPLITS / HEADS;
    head = u32(item) / SPLITS % HEADS;
    step = reinterpret_cast<const int*>(shared.bytes + AT_PLACES)[row / 2];
    at = CONDITIONS + step;
    const int start = alone ? CONDITIONS : 0, live = step < STEPS ? at : start;  // a free slot has nothing to read
    const int share = (live - start + SPLITS - 1) / SPLITS;
    first = start + part * share;
    last = min(first + share, live);
  }
  __device__ long cache() const { return long(row * HEADS + head) * CAPACITY * HD; }
};

// The fetching warp

// Room for one more stage that brings so many bytes -> its slot. No more than LIMIT stages are under way, so that what the
// other warps read meanwhile does not queue behind them.
__device__ __forceinline__ int take_slot(const Shared& shared, u32 count, u32 bytes) {
  const int slot = count % STAGES;
  if (LIMIT < STAGES && count >= LIMIT) {
    const u32 before = count - LIMIT;
    mbar_wait(shared.full(before % STAGES), before / STAGES & 1);
  }
  mbar_wait(shared.empty(slot), (count / STAGES & 1) ^ 1);
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(
                   shared.full(slot)), "r"(bytes) : "memory");
  return slot;
}

template <class S, bool GATED = false>
__device__ void fetch_product(const Shared& shared, const char* map, u32& count) {
  const u32 end = S::begin(blockIdx.x + 1);
  for (u32 stage = S::begin(blockIdx.x); stage < end; ++stage, ++count) {
    const u32 unit = S::unit(stage), block = S::column(stage) * BYTES / 128, slot = take_slot(shared, count, STAGE);
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}],"
        " [%6];" ::"r"(shared.base + AT_RING + slot * STAGE), "l"(map), "r"(0), "r"(GATED ? 8 * unit : 0),
        "r"(GATED ? 0 : 2 * unit), "r"(block), "r"(shared.full(slot)) : "memory");
  }
}

__device__ void fetch_cache(const Shared& shared, const Block& block, bool alone, u32& count) {
  for (int item = blockIdx.x; item < ITEMS; item += CTAS) {
    const Positions here(item, shared, alone);
    for (int first = here.first; first < here.last; first += KEYS, ++count) {
      const u32 bytes = min(KEYS, here.last - first) * HD * 2;
      const int slot = take_slot(shared, count, 2 * bytes);
      const long at = here.cache() + long(first) * HD;
      const u32 to = shared.base + AT_RING + slot * STAGE;
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                   "l"(block.k + at), "r"(bytes), "r"(shared.full(slot)) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       to + STAGE / 2), "l"(block.v + at), "r"(bytes), "r"(shared.full(slot)) : "memory");
    }
  }
}

__device__ __forceinline__ void prefetch(const void* from, u32 bytes) {
  if (from) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// What is small, and would be waited for: the maps of the products to come, and one CTA for all, what they add
__device__ void prefetch_small(const Block& block) {
  const char* maps[] = {block.qkv, block.out, block.gate_up, block.down};
#pragma unroll
  for (int i = 0; i < 4; ++i) asm volatile("prefetch.tensormap [%0];" ::"l"(maps[i]) : "memory");
  if (blockIdx.x == 0) {
    prefetch(block.qkv_bias, 3 * D * 2), prefetch(block.out_bias, D * 2);
    prefetch(block.gate_up_bias, 2 * HIDDEN * 2), prefetch(block.down_bias, D * 2);
    prefetch(block.qkv_scale, 3 * D * 4), prefetch(block.out_scale, D * 4);
    prefetch(block.gate_up_scale, 2 * HIDDEN * 4), prefetch(block.down_scale, D * 4);
    prefetch(block.norm, 2 * HD * 4);
  }
}

__device__ void fetch(const Step& step, const Shared& shared) {
  u32 count = 0;
  prefetch_small(shared.block(0));
  for (int i = 0; i < BLOCKS; ++i) {
    const Block& block = shared.block(i);
    if (i + 1 < BLOCKS) prefetch_small(shared.block(i + 1));
    fetch_product<Qkv>(shared, block.qkv, count);
    fetch_cache(shared, block, i >= DUAL, count);
    fetch_product<Out>(shared, block.out, count);
    fetch_product<GateUp, true>(shared, block.gate_up, count);
    fetch_product<Down>(shared, block.down, count);
  }
  fetch_product<Head>(shared, step.head, count);
}

// The computing warps

// What this CTA wrote since the last time is there for those that await it.
__device__ void publish(const Step& step, u32& barrier) {
  ++barrier;
  meet();
  if (threadIdx.x == 0)
    asm volatile("fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%0], %1;" ::"l"(step.passed + blockIdx.x), "r"(barrier)
                 : "memory");
}

template <class Needed>
__device__ void await(const Step& step, u32 barrier, const Needed& needed) {
  for (u32 cta = threadIdx.x; cta < CTAS; cta += THREADS) {
    if (!needed(cta)) continue;
    u32 now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(step.passed + cta) : "memory");
    } while (int(now - barrier) < 0);
  }
  meet();
}

__device__ void all_meet(const Step& step, u32& barrier) {
  publish(step, barrier);
  await(step, barrier, [](u32) { return true; });
}

// Products of this CTA's stages with the activations -> sums of each warp for each item
template <class S>
__device__ void multiply(const Shared& shared, int stride, u32& count) {
  constexpr int LOADS = SPAN * BYTES / 32;  // of 16 rows of 32 bytes
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const bool real = (lane & 7) < R;  // a row of activations; the product has room for 8
  const u32 zero = shared.base + AT_ZERO;
  const u32 act = shared.base + AT_ACT + ((lane & 7) * stride + warp * SPAN + (lane >> 3) * 8) * 2;
  u32 mine[LOADS];  // the copy engine stores chunk c of 16 bytes of a row's 128 at c ^ (row & 7)
#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    const int row = lane & 15, byte = warp * SPAN * BYTES + 32 * i + (lane >> 4) * 16;
    mine[i] = shared.base + AT_RING + byte / 128 * 2048 + row * 128 + ((byte % 128 / 16) ^ (row & 7)) * 16;
  }
  // Activations that are the same for every item stay in registers, where there are few
  constexpr bool KEPT = S::WHOLE_ITEMS && S::ALL / S::EACH == S::UNITS && S::EACH <= 3;
  u32 kept[KEPT ? S::EACH : 1][SPAN / 32][4];
  if constexpr (KEPT) {
#pragma unroll
    for (int part = 0; part < S::EACH; ++part)
#pragma unroll
      for (int i = 0; i < SPAN / 32; ++i) ldmatrix(kept[part][i], real ? act + part * COLUMNS * 2 + 64 * i : zero);
  }
  float acc[2][4] = {};
  int item = 0;
  u32 slot = count % STAGES, parity = count / STAGES & 1;
  const auto one = [&](const u32 (&b)[SPAN / 32][4]) {
    u32 a[LOADS][4];
    mbar_wait(shared.full(slot), parity);
#pragma unroll
    for (int i = 0; i < LOADS; ++i) ldmatrix(a[i], mine[i] + slot * STAGE);
    __syncwarp();
    if (lane == 0) mbar_arrive(shared.empty(slot));
    if (++slot == STAGES) slot = 0, parity ^= 1;
    ++count;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      if constexpr (KIND == 0) {
        mma(acc[i & 1], a[i][0], a[i][1], a[i][2], a[i][3], b[i / 2][i % 2 * 2], b[i / 2][i % 2 * 2 + 1]);
      } else {  // columns 0..15 of rows 0..7, of rows 8..15, then columns 16..31
        u32 p[4], q[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) widen(a[i][j], p[j], q[j]);
        mma(acc[0], p[0], p[1], q[0], q[1], b[i][0], b[i][1]);
        mma(acc[1], p[2], p[3], q[2], q[3], b[i][2], b[i][3]);
      }
    }
  };
  const auto close_item = [&] {
    float* sums = shared.floats(AT_SUMS) + (item * WARPS + warp) * 16 * R;
    const int g = lane >> 2, n = (lane & 3) * 2;
    if (n < R) {
      sums[g * R + n] = acc[0][0] + acc[1][0], sums[g * R + n + 1] = acc[0][1] + acc[1][1];
      sums[(g + 8) * R + n] = acc[0][2] + acc[1][2], sums[(g + 8) * R + n + 1] = acc[0][3] + acc[1][3];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[0][i] = acc[1][i] = 0;
    ++item;
  };
  const u32 end = S::begin(blockIdx.x + 1);
  u32 stage = S::begin(blockIdx.x);
  if constexpr (KEPT) {
    for (; stage < end; stage += S::EACH) {
#pragma unroll
      for (int part = 0; part < S::EACH; ++part) one(kept[part]);
      close_item();
    }
  } else {
    for (; stage < end; ++stage) {
      u32 b[SPAN / 32][4];
#pragma unroll
      for (int i = 0; i < SPAN / 32; ++i) ldmatrix(b[i], real ? act + S::column(stage) * 2 + 64 * i : zero);
      one(b);
      if ((stage + 1) % S::EACH == 0 || stage == end - 1) close_item();
    }
  }
  meet();
}

__device__ __forceinline__ float whole(const Shared& shared, int unit, int row, int n) {
  const float* sums = shared.floats(AT_SUMS) + unit * WARPS * 16 * R + row * R + n;
  float total = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) total += sums[w * 16 * R];
  return total;
}

template <class S>
__device__ int items() {  // that this CTA has a part in
  const u32 begin = S::begin(blockIdx.x), end = S::begin(blockIdx.x + 1);
  return end > begin ? (end - 1) / S::EACH - begin / S::EACH + 1 : 0;
}

// y: planes of (R, N)
template <class S, int N>
__device__ void product(const Shared& shared, int stride, const float* scale, const u16* bias, float* y, u32& count) {
  constexpr int TURNS = (SUM_UNITS * 16 * R + THREADS - 1) / THREADS;
  const u32 first = S::begin(blockIdx.x) / S::EACH, all = items<S>() * 16 * R;
  float times[TURNS], more[TURNS];
  u32 to[TURNS];
#pragma unroll
  for (int j = 0; j < TURNS; ++j) {  // asked for before they are needed
    const u32 i = threadIdx.x + j * THREADS, item = first + i / (16 * R), unit = item % S::UNITS;
    const u32 place = 16 * unit + i % 16;
    const u32 plane = item / S::UNITS + (S::WHOLE_ITEMS ? 0 : blockIdx.x - S::owner(item * S::EACH));
    to[j] = (plane * R + i / 16 % R) * N + place;
    times[j] = KIND != 0 && i < all ? scale[place] : 1;
    more[j] = bias && plane == 0 && i < all ? wide(bias[place]) : 0;
  }
  multiply<S>(shared, stride, count);
#pragma unroll
  for (int j = 0; j < TURNS; ++j) {
    const u32 i = threadIdx.x + j * THREADS;
    if (i < all) y[to[j]] = whole(shared, i / (16 * R), i % 16, i / 16 % R) * times[j] + more[j];
  }
}

__device__ void gated_product(const Shared& shared, const float* scale, const u16* bias, u16* y, u32& count) {
  constexpr int TURNS = (SUM_UNITS * 4 * R + THREADS - 1) / THREADS;
  const int first = GateUp::begin(blockIdx.x) / GateUp::EACH, all = items<GateUp>() * 4 * R;
  float times[TURNS][4], more[TURNS][4];
#pragma unroll
  for (int j = 0; j < TURNS; ++j) {
    const int i = threadIdx.x + j * THREADS, place = 8 * (first + i / (4 * R)) + 2 * (i % 4);
#pragma unroll
    for (int l = 0; l < 4; ++l) {
      const int at = place + l % 2 + l / 2 * HIDDEN;
      times[j][l] = KIND != 0 && i < all ? scale[at] : 1;
      more[j][l] = bias && i < all ? wide(bias[at]) : 0;
    }
  }
  multiply<GateUp>(shared, ACT_D, count);
#pragma unroll
  for (int j = 0; j < TURNS; ++j) {
    const int i = threadIdx.x + j * THREADS, two = i % 4, n = i / 4 % R, unit = i / (4 * R);
    if (i >= all) continue;
    float value[2];
#pragma unroll
    for (int l = 0; l < 2; ++l) {
      const float gate = whole(shared, unit, 2 * two + l, n) * times[j][l] + more[j][l];
      const float up = whole(shared, unit, 2 * two + l + 8, n) * times[j][l + 2] + more[j][l + 2];
      value[l] = gate / (1 + __expf(-gate)) * up;
    }
    *reinterpret_cast<u32*>(y + n * HIDDEN + 8 * (first + unit) + 2 * two) = narrow2(value[0], value[1]);
  }
}

// x += its planes; normalised -> activations
template <int PLANES>
__device__ void normalise(const Shared& shared, const float* planes) {
  constexpr int WIDE = WARPS / R < D / 128 ? WARPS / R : D / 128;  // warps for a row
  constexpr int EACH = D / (128 * WIDE);                           // groups of four values a thread
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row = min(warp / WIDE, R - 1), first = warp % WIDE * 32 + lane;
  float4* x = reinterpret_cast<float4*>(shared.floats(AT_X) + row * D);
  float* scratch = shared.floats(AT_ROWS);
  float4 mine[EACH];
  float sum = 0, square = 0;
#pragma unroll
  for (int i = 0; i < EACH; ++i) mine[i] = x[first + i * 32 * WIDE];
  if constexpr (PLANES > 0) {
    float4 more[PLANES][EACH];
#pragma unroll
    for (int p = 0; p < PLANES; ++p)
#pragma unroll
      for (int i = 0; i < EACH; ++i) more[p][i] = fresh(planes + (p * R + row) * D + 4 * (first + i * 32 * WIDE));
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
#pragma unroll
      for (int p = 0; p < PLANES; ++p) add(mine[i], more[p][i]);
      if (warp < R * WIDE) x[first + i * 32 * WIDE] = mine[i];
    }
  }
#pragma unroll
  for (int i = 0; i < EACH; ++i) sum += mine[i].x + mine[i].y + mine[i].z + mine[i].w;
#pragma unroll
  for (int i = 0; i < EACH; ++i)
    square += mine[i].x * mine[i].x + mine[i].y * mine[i].y + mine[i].z * mine[i].z + mine[i].w * mine[i].w;
#pragma unroll
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d), square += __shfl_xor_sync(~0u, square, d);
  if (lane == 0) scratch[warp] = sum, scratch[WARPS + warp] = square;
  meet();
  sum = square = 0;
#pragma unroll
  for (int w = 0; w < WIDE; ++w) sum += scratch[row * WIDE + w], square += scratch[WARPS + row * WIDE + w];
  const float mean = sum / D, spread = fmaxf(square / D - mean * mean, 0);
  const float scale = rsqrtf(spread + EPS);
  u16* act = reinterpret_cast<u16*>(shared.bytes + AT_ACT) + row * ACT_D;
#pragma unroll
  for (int i = 0; i < (warp < R * WIDE ? EACH : 0); ++i) {
    const int k = 4 * (first + i * 32 * WIDE);
    *reinterpret_cast<u32*>(act + stands(k)) = narrow2((mine[i].x - mean) * scale, (mine[i].y - mean) * scale);
    *reinterpret_cast<u32*>(act + stands(k + 2)) = narrow2((mine[i].z - mean) * scale, (mine[i].w - mean) * scale);
  }
  meet();
}

// The planes of eight values of one row -> normalised and turned
__device__ __forceinline__ void head_values(const Step& step, const Positions& here, int which, int lane, float (&y)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) y[i] = 0;
  const float* from = step.qkv + here.row * 3 * D + which * D + here.head * HD + 8 * lane;
#pragma unroll
  for (int p = 0; p < QKV_PLANES; ++p) {
    const float4 a = fresh(from + p * R * 3 * D), b = fresh(from + p * R * 3 * D + 4);
    y[0] += a.x, y[1] += a.y, y[2] += a.z, y[3] += a.w, y[4] += b.x, y[5] += b.y, y[6] += b.z, y[7] += b.w;
  }
}

__device__ __forceinline__ void turn(const float* turns, const float (&norm)[8], float (&y)[8]) {
  float square = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) square += y[i] * y[i];
#pragma unroll
  for (int d = LANES / 2; d; d /= 2) square += __shfl_xor_sync(~0u, square, d);
  const float scale = rsqrtf(square / HD + 1e-5f);
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float a = y[i] * scale * norm[i], b = y[i + 1] * scale * norm[i + 1];
    y[i] = a * turns[i] - b * turns[i + 1];
    y[i + 1] = b * turns[i] + a * turns[i + 1];
  }
}

__device__ __forceinline__ void spread(const uint4& from, float (&y)[8]) {
  const u32 word[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) y[2 * i] = __uint_as_float(word[i] << 16), y[2 * i + 1] = __uint_as_float(word[i] & ~0xffffu);
}

__device__ __forceinline__ uint4 narrow8(const float (&y)[8]) {
  return {bf16_2(y[0], y[1]), bf16_2(y[2], y[3]), bf16_2(y[4], y[5]), bf16_2(y[6], y[7])};
}

__device__ __forceinline__ float dot(const float (&q)[8], const float (&key)[8]) {
  float score = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) score += q[i] * key[i];
#pragma unroll
  for (int d = LANES / 2; d; d /= 2) score += __shfl_xor_sync(~0u, score, d);
  return score;
}

// Queries, keys and values of this step, once those that made them are done; keys and values of earlier ones
__device__ void attend(const Step& step, const Block& block, const Shared& shared, bool alone, u32& barrier, u32& count) {
  const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
  float norm[2][8];
#pragma unroll
  for (int i = 0; i < 16; ++i) norm[i / 8][i % 8] = block.norm[i / 8 * HD + 8 * lane + i % 8];
  for (int item = blockIdx.x; item < ITEMS; item += CTAS) {
    const Positions here(item, shared, alone);
    const float* turns = shared.turns(here.row) + 8 * lane;
    const bool own = here.part == 0 && threadIdx.x < 32;  // the current token's key and value are not read back
    await(step, barrier, [&](u32 cta) {
      bool needed = false;
#pragma unroll
      for (int which = 0; which < 3; ++which) {
        const u32 stage = u32(which * D + here.head * HD) / 16 * Qkv::EACH;
        needed |= cta >= Qkv::owner(stage) && cta <= Qkv::owner(stage + HD / 16 * Qkv::EACH - 1);
      }
      return needed;
    });
    float q[8], key[8], value[8], acc[8] = {}, most = LOWEST, total = 0;
    head_values(step, here, 0, lane, q);
    if (own) head_values(step, here, 1, lane, key), head_values(step, here, 2, lane, value);
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
    for (int first = here.first; first < here.last; first += KEYS, ++count) {
      constexpr int EACH = KEYS / GROUPS;
      const int slot = count % STAGES;
      const char* stage = shared.bytes + AT_RING + slot * STAGE + 16 * lane;
      float score[EACH], top = most;
      mbar_wait(shared.full(slot), count / STAGES & 1);
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
      if ((threadIdx.x & 31) == 0) mbar_arrive(shared.empty(slot));
    }
    float* scratch = shared.floats(AT_HEAD);  // (GROUPS, HD), then most and total of each group
#pragma unroll
    for (int j = 0; j < 8; j += 4)
      *reinterpret_cast<float4*>(scratch + group * HD + 8 * lane + j) = {acc[j], acc[j + 1], acc[j + 2], acc[j + 3]};
    if (lane == 0) scratch[GROUPS * HD + group] = most, scratch[GROUPS * HD + GROUPS + group] = total;
    meet();
    if (threadIdx.x < HD) {
      float top = LOWEST, sum = 0, result = 0;
#pragma unroll
      for (int i = 0; i < GROUPS; ++i) top = fmaxf(top, scratch[GROUPS * HD + i]);
#pragma unroll
      for (int i = 0; i < GROUPS; ++i) {
        const float fade = __expf(scratch[GROUPS * HD + i] - top);
        sum += fade * scratch[GROUPS * HD + GROUPS + i];
        result += fade * scratch[i * HD + threadIdx.x];
      }
      const int to = here.part * R + here.row;
      step.parts[to * D + here.head * HD + threadIdx.x] = sum > 0 ? result / sum : 0;
      if (threadIdx.x == 0) step.shares[to * HEADS + here.head] = sum > 0 ? top + __logf(sum) : LOWEST;
    }
    meet();
  }
}

// The parts of every head -> activations
__device__ void merge(const Step& step, const Shared& shared, u32 barrier) {
  u16* act = reinterpret_cast<u16*>(shared.bytes + AT_ACT);
  constexpr int FOURS = D / OUT_GROUPS / 4;  // of a group of columns
  const u32 begin = Out::begin(blockIdx.x), end = Out::begin(blockIdx.x + 1);
  const u32 first = Out::group(begin), groups = end > begin ? Out::group(end - 1) - first + 1 : 0;
  await(step, barrier, [&](u32 cta) {
    bool needed = false;
    for (u32 item = cta; item < ITEMS; item += CTAS) {
      const u32 group = u32(item) / SPLITS % HEADS * HD / (D / OUT_GROUPS);
      needed |= group >= first && group < first + groups;
    }
    return needed;
  });
  for (u32 i = threadIdx.x; i < R * groups * FOURS; i += THREADS) {
    const u32 row = i % R, k = (first * FOURS + i / R) * 4, head = k / HD;
    float share[SPLITS], top = LOWEST, sum = 0;
    float4 value[SPLITS], mixed = {0, 0, 0, 0};
#pragma unroll
    for (int p = 0; p < SPLITS; ++p) {
      share[p] = fresh1(step.shares + (p * R + row) * HEADS + head);
      value[p] = fresh(step.parts + (p * R + row) * D + k);
    }
#pragma unroll
    for (int p = 0; p < SPLITS; ++p) top = fmaxf(top, share[p]);
#pragma unroll
    for (int p = 0; p < SPLITS; ++p) {
      const float weight = __expf(share[p] - top);
      sum += weight;
      mixed.x += weight * value[p].x, mixed.y += weight * value[p].y;
      mixed.z += weight * value[p].z, mixed.w += weight * value[p].w;
    }
    const float scale = 1 / sum;
    *reinterpret_cast<u32*>(act + row * ACT_D + stands(k)) = narrow2(mixed.x * scale, mixed.y * scale);
    *reinterpret_cast<u32*>(act + row * ACT_D + stands(k + 2)) = narrow2(mixed.z * scale, mixed.w * scale);
  }
  meet();
}

__device__ void take_hidden(const Step& step, const Shared& shared) {
  u16* act = reinterpret_cast<u16*>(shared.bytes + AT_ACT);
#pragma unroll 6
  for (int i = threadIdx.x; i < R * HIDDEN / 8; i += THREADS) {
    const int row = i / (HIDDEN / 8), k = i % (HIDDEN / 8) * 8;
    const uint4 eight = fresh(static_cast<const void*>(step.hidden + row * HIDDEN + k));
    u16* to = act + row * ACT_H;
    if (KIND == 0) {
      *reinterpret_cast<uint4*>(to + k) = eight;
    } else {
      *reinterpret_cast<u32*>(to + stands(k)) = eight.x, *reinterpret_cast<u32*>(to + stands(k + 2)) = eight.y;
      *reinterpret_cast<u32*>(to + stands(k + 4)) = eight.z, *reinterpret_cast<u32*>(to + stands(k + 6)) = eight.w;
    }
  }
  meet();
}

extern "C" __global__ void __launch_bounds__(THREADS + 32, 1) persistent(const Step* given) {
  extern __shared__ __align__(1024) char bytes[];
  const Step step = *given;
  Shared shared{shared_address(bytes), bytes};
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared.full(i)) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared.empty(i)), "n"(WARPS) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    *reinterpret_cast<uint4*>(bytes + AT_ZERO) = uint4{0, 0, 0, 0};
  }
  for (int i = threadIdx.x; i < BLOCKS * int(sizeof(Block)) / 8; i += THREADS + 32)
    reinterpret_cast<u64*>(bytes + AT_BLOCKS)[i] = reinterpret_cast<const u64*>(step.blocks)[i];
  for (int i = threadIdx.x; i < R / 2; i += THREADS + 32)
    reinterpret_cast<int*>(bytes + AT_PLACES)[i] = int(step.position[i]);
  for (int i = threadIdx.x; i < R / 2 * HD; i += THREADS + 32)
    shared.floats(AT_TURNS)[i] = step.turns[step.position[i / HD] * HD + i % HD];
  __syncthreads();
  if (threadIdx.x >= THREADS) {
    if (threadIdx.x == THREADS) fetch(step, shared);
    return;
  }

  u32 count = 0, barrier = step.passed[blockIdx.x];
  for (int i = threadIdx.x; i < R * D / 4; i += THREADS)
    reinterpret_cast<float4*>(shared.floats(AT_X))[i] = fresh(step.x + 4 * i);
  meet();
  for (int i = 0; i < BLOCKS; ++i) {
    const Block& block = shared.block(i);
    if (i == 0)
      normalise<0>(shared, nullptr);
    else
      normalise<DOWN_PLANES>(shared, step.down);
    product<Qkv, 3 * D>(shared, ACT_D, block.qkv_scale, block.qkv_bias, step.qkv, count);
    publish(step, barrier);
    attend(step, block, shared, i >= DUAL, barrier, count);
    publish(step, barrier);
    merge(step, shared, barrier);
    product<Out, D>(shared, ACT_D, block.out_scale, block.out_bias, step.out, count);
    all_meet(step, barrier);
    normalise<OUT_PLANES>(shared, step.out);
    gated_product(shared, block.gate_up_scale, block.gate_up_bias, step.hidden, count);
    all_meet(step, barrier);
    take_hidden(step, shared);
    product<Down, D>(shared, ACT_H, block.down_scale, block.down_bias, step.down, count);
    all_meet(step, barrier);
  }
  normalise<DOWN_PLANES>(shared, step.down);
  product<Head, CODES>(shared, ACT_D, step.head_scale, nullptr, step.logits, count);
}

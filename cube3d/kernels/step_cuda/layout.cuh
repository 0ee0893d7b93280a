// What a step works on: its arguments, its shared memory, and how its products are dealt out to CTAs. The model's sizes
// are macros, which shares.py says.

constexpr int THREADS = 32 * WARPS, HIDDEN = 4 * D;
constexpr int HELPERS = AHEAD > 0 ? 2 : 1;   // warps that only fetch
constexpr int BYTES = KIND == 0 ? 2 : 1;     // of a weight
constexpr int SPAN = COLUMNS / WARPS;        // columns of a stage that one warp takes
constexpr int STAGE = 16 * COLUMNS * BYTES;  // a stage is 16 rows of COLUMNS weights, in blocks of 128 bytes a row
constexpr int ITEMS = R * HEADS * SPLITS;    // of attention
constexpr int LANES = HD / 8, GROUPS = WARPS * 32 / LANES;  // threads for a key; keys at a time
constexpr int KEYS = STAGE / 4 / HD / GROUPS * GROUPS;      // in a stage, and as many values behind them
constexpr int ACT_D = D + 8, ACT_H = HIDDEN + 8;            // strides of rows of 16-bit activations
constexpr float LOWEST = -1e30f;
__device__ constexpr int divisor(int whole, int most) { return whole % most ? divisor(whole, most - 1) : most; }

// What of an (N, K) product a CTA takes: stages from begin(cta) to begin(cta + 1). They are ordered by group of columns,
// unit of 16 rows, and columns within; the stages of one group and unit are an item, which no two CTAs share. Sums of
// different groups are "planes", added by their reader in order, so that a result never depends on timing.
template <int N, int K, int KGROUPS>
struct Share {
  static constexpr u32 PLANES = KGROUPS, EACH = K / KGROUPS / COLUMNS, UNITS = N / 16, ALL = UNITS * KGROUPS;
  __device__ static u32 begin(u32 cta) { return cta * ALL / CTAS; }  // items
  __device__ static u32 items() { return begin(blockIdx.x + 1) - begin(blockIdx.x); }
};
using Qkv = Share<3 * D, D, QKV_GROUPS>;
using Out = Share<D, D, OUT_GROUPS>;
using GateUp = Share<2 * HIDDEN, D, 1>;
using Down = Share<D, HIDDEN, DOWN_GROUPS>;
using Head = Share<CODES, D, 1>;

struct Block {
  const char *qkv, *out, *gate_up, *down;                            // tensor maps of the weights
  const float *qkv_scale, *out_scale, *gate_up_scale, *down_scale;  // of 8-bit weights
  const u16 *qkv_bias, *out_bias, *gate_up_bias, *down_bias;        // bfloat16, or none
  const float* norm;                                                // of q, then of k
  u16 *k, *v;                                                       // this step's rows of the cache
  u64 unused;
};

struct Step {
  const Block* blocks;
  const char* head;  // tensor map
  const float* head_scale;
  const long long* position;  // of each slot
  const float* turns;         // cosines and sines of every position
  const float* x;             // (R, D): embeddings of the tokens
  u64* qkv;                   // packets of two float32: (planes, R, 3 D / 2)
  u64 *out, *down;            // packets of four bfloat16: (planes, R, D / 4)
  u64* parts;                 // packets of four bfloat16: (SPLITS, R, D / 4)
  u64* shares;                // packets of one float32: (SPLITS, R, HEADS)
  u64* hidden;                // packets of four activations: (R, HIDDEN / 4)
  float* logits;              // (R, CODES)
  u32* launches;              // so far
  u64* marks;                 // of a profile: (CTAS, BLOCKS + 1, MARKS)
};

// When the first computing thread came where, in clocks; the head is part 0 of one block more
enum Mark { BEGIN, FIRST, ALL, READY, STARVED, DONE, SENT, EVENTS };  // STARVED: how long it waited for weights
constexpr int PARTS = 5, BLOCKED = PARTS * EVENTS, ISSUED = BLOCKED + 1, TIME = ISSUED + 1, MARKS = TIME + 1;

// Shared memory, in bytes
constexpr int AT_X = 0, AT_ACT = AT_X + R * D * 4, AT_SUMS = AT_ACT + R * ACT_H * 2;
constexpr int AT_HEAD = AT_SUMS + SUM_ITEMS * WARPS * 16 * R * 4, AT_ROWS = AT_HEAD + GROUPS * (HD + 2) * 4;
constexpr int AT_ZERO = AT_ROWS + 256, AT_FETCHED = AT_ZERO + 16, AT_FULL = AT_FETCHED + 16;
constexpr int AT_EMPTY = AT_FULL + 8 * STAGES, AT_TURNS = AT_EMPTY + 8 * STAGES, AT_PLACES = AT_TURNS + R / 2 * HD * 4;
constexpr int AT_BLOCKS = (AT_PLACES + R / 2 * 4 + 15) / 16 * 16;
constexpr int AT_RING = (AT_BLOCKS + BLOCKS * int(sizeof(Block)) + 1023) / 1024 * 1024;

struct Shared {
  char* bytes;
  u32 base;    // as the hardware counts
  u64* marks;  // of this CTA, block and part
  __device__ float* floats(int at) const { return reinterpret_cast<float*>(bytes + at); }
  __device__ const Block& block(int i) const { return reinterpret_cast<const Block*>(bytes + AT_BLOCKS)[i]; }
  __device__ const float* turns(int row) const { return floats(AT_TURNS) + row / 2 * HD; }
  __device__ u32 full(u32 slot) const { return base + AT_FULL + 8 * slot; }
  __device__ u32 empty(u32 slot) const { return base + AT_EMPTY + 8 * slot; }
  __device__ u32* fetched() const { return reinterpret_cast<u32*>(bytes + AT_FETCHED); }  // stages
  __device__ u64* starved() const { return reinterpret_cast<u64*>(bytes + AT_FETCHED + 8); }
  __device__ void mark(Mark mark) const {
    if (!PROFILE || threadIdx.x != 0) return;
    marks[mark] = clocks();
    if (mark == DONE) marks[STARVED] = *starved(), *starved() = 0;
  }
  __device__ void wait_full(u32 slot, u32 parity) const {
    if constexpr (LEAVE_OUT & 2) return;
    const u64 before = PROFILE ? clocks() : 0;
    barrier_wait(full(slot), parity);
    if (PROFILE && threadIdx.x == 0) *starved() += clocks() - before;
  }
};

struct Ring {  // a place in the endless row of stages
  u32 slot = 0, parity = 0;
  __device__ void advance() {
    if (++slot == STAGES) slot = 0, parity ^= 1;
  }
};

struct Positions {  // what an item of attention reads: [first, last) of the cache of (row, head)
  int part, row, head, at, first, last;
  __device__ Positions(u32 item, const Shared& shared, bool alone) {
    part = item % SPLITS, row = item / SPLITS / HEADS, head = item / SPLITS % HEADS;
    const int step = reinterpret_cast<const int*>(shared.bytes + AT_PLACES)[row / 2];
    at = CONDITIONS + step;
    const int start = alone ? CONDITIONS : 0, live = step < STEPS ? at : start;  // a free slot has nothing to read
    const int share = (live - start + SPLITS - 1) / SPLITS;
    first = start + part * share;
    last = min(first + share, live);
  }
  __device__ long cache() const { return long(row * HEADS + head) * CAPACITY * HD; }
};

__device__ __forceinline__ float wide(u16 bits) { return __uint_as_float(u32(bits) << 16); }
__device__ __forceinline__ float low(u32 two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float high(u32 two) { return __uint_as_float(two & ~0xffffu); }
__device__ __forceinline__ u32 narrow2(float a, float b) { return KIND == 0 ? bf16_2(a, b) : f16_2(a, b); }
__device__ __forceinline__ void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  if (KIND == 0)
    mma_bf16(c, a0, a1, a2, a3, b0, b1);
  else
    mma_f16(c, a0, a1, a2, a3, b0, b1);
}
// Where the activation of column k stands in its row, so that a lane finds it beside its weights: of 8-bit weights, a
// lane holds four neighbours where the product wants two pairs 8 apart.
__device__ __forceinline__ int stands(int k) {
  return KIND == 0 ? k : (k & ~15) | (k & 2) << 2 | (k & 12) >> 1 | (k & 1);
}

// A packet: values, and in place of the first one's last bit that of the epoch. So it proves its arrival, and nothing else
// need be waited for: a reader, who looks at the same packets every epoch, finds this epoch's or the last one's there.
__device__ __forceinline__ u64 packet(u32 front, u32 back, u32 epoch) {
  return u64(back) << 32 | (front & ~1u) | (epoch & 1);
}
__device__ __forceinline__ u32 front(u64 packet) { return u32(packet) & ~1u; }
__device__ __forceinline__ u32 back(u64 packet) { return u32(packet >> 32); }

// COUNT packets, or pairs of them, once all are of this epoch; at(i): where they are. Whole warps come here. POLL says how
// they are waited for, which all CTAs do at much the same time: 0, each thread asks for its first, then for the rest; 1,
// one lane asks for its first, then all for all; 2, all ask for all, and again for what was not there.
__device__ __forceinline__ bool there(u64 seen, u32 epoch) { return ((u32(seen) ^ epoch) & 1) == 0; }
__device__ __forceinline__ bool there(const Two& seen, u32 epoch) {
  return there(seen.first, epoch) && there(seen.second, epoch);
}
template <class Seen, int COUNT, class At>
__device__ __forceinline__ void receive(const Shared& shared, Seen (&seen)[COUNT], u32 epoch, const At& at) {
  if constexpr (POLL < 2 && !(LEAVE_OUT & 1)) {
    if (POLL == 0 || threadIdx.x % 32 == 0) {
      do look(at(0), seen[0]);
      while (!there(seen[0], epoch));
    }
    __syncwarp();
    shared.mark(FIRST);
  }
#pragma unroll
  for (int i = POLL == 0 && !(LEAVE_OUT & 1) ? 1 : 0; i < COUNT; ++i) look(at(i), seen[i]);
  bool all = LEAVE_OUT & 1;
  while (!all) {
    all = true;
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      if (!there(seen[i], epoch)) all = false, look(at(i), seen[i]);
  }
  shared.mark(ALL);
}

// The order of a step -> its weights, and the keys and values of earlier tokens, in shared memory, as far ahead as there
// is room. One thread of each CTA does nothing else; another asks for what lies further ahead, into the L2 cache. Knows
// no arithmetic.

// The next stage into shared memory, when there is room for it. No more than LIMIT are under way, so that what the other
// threads read meanwhile does not queue behind them.
struct Fill {
  const Shared& shared;
  Ring ring, late;
  u32 under_way = 0, count = 0;
  u64 blocked = 0;

  __device__ u32 take(u32 bytes) {
    const u64 before = PROFILE ? clocks() : 0;
    if (LIMIT < STAGES && under_way == LIMIT) {
      barrier_wait(shared.full(late.slot), late.parity);
      late.advance();
    } else {
      ++under_way;
    }
    barrier_wait(shared.empty(ring.slot), ring.parity ^ 1);
    if (PROFILE) blocked += clocks() - before;
    barrier_expect(shared.full(ring.slot), bytes);
    return shared.base + AT_RING + ring.slot * STAGE;
  }
  __device__ void taken() {
    ring.advance();
    if (AHEAD > 0) *shared.fetched() = ++count;
  }
  __device__ void box(const char* map, int halves, int eights, int block) {
    const u32 to = take(STAGE);
    copy_box(to, map, halves, eights, block, shared.full(ring.slot));
    taken();
  }
  __device__ void cache(const u16* k, const u16* v, u32 bytes) {
    const u32 to = take(2 * bytes);
    copy_bytes(to, k, bytes, shared.full(ring.slot));
    copy_bytes(to + STAGE / 2, v, bytes, shared.full(ring.slot));
    taken();
  }
  __device__ void block_done(const Step& step, int block) {
    if (!PROFILE) return;
    u64* marks = step.marks + (blockIdx.x * (BLOCKS + 1) + block) * MARKS;
    marks[BLOCKED] = blocked, marks[ISSUED] = clocks();
    blocked = 0;
  }
};

// The next stage into the L2 cache, at most AHEAD before shared memory asks for it, and no sooner than PACE clocks after
// the one before; not at all if shared memory asked first.
struct Ahead {
  const Shared& shared;
  u32 count = 0;
  u64 last = 0;

  __device__ bool wanted() {
    for (;;) {
      const u32 fetched = peek(shared.fetched());
      const u64 now = clocks();
      if (count < fetched) return ++count, false;
      if (count < fetched + AHEAD && now - last >= PACE) return ++count, last = now, true;
    }
  }
  __device__ void box(const char* map, int halves, int eights, int block) {
    if (wanted()) prefetch_box(map, halves, eights, block);
  }
  __device__ void cache(const u16* k, const u16* v, u32 bytes) {
    if (wanted()) prefetch(k, bytes), prefetch(v, bytes);
  }
  __device__ void block_done(const Step&, int) {}
};

template <class Take>
struct Stream {
  const Shared& shared;
  Take take;

  template <class S, bool GATED = false>
  __device__ void product(const char* map) {
    const u32 end = S::begin(blockIdx.x + 1);
    for (u32 item = S::begin(blockIdx.x); item < end; ++item)
      for (u32 part = 0; part < S::EACH; ++part) {
        const u32 unit = item % S::UNITS, column = (item / S::UNITS * S::EACH + part) * COLUMNS;
        take.box(map, GATED ? 8 * unit : 0, GATED ? 0 : 2 * unit, column * BYTES / 128);
      }
  }

  __device__ void cache(const Block& block, bool alone) {
    for (u32 item = blockIdx.x; item < ITEMS; item += CTAS) {
      const Positions here(item, shared, alone);
      for (int first = here.first; first < here.last; first += KEYS) {
        const long at = here.cache() + long(first) * HD;
        take.cache(block.k + at, block.v + at, min(KEYS, here.last - first) * HD * 2);
      }
    }
  }
};

// What is small, and would be waited for: the maps of the products to come, and one CTA for all, what they add
__device__ void prefetch_small(const Block& block) {
  prefetch_map(block.qkv), prefetch_map(block.out), prefetch_map(block.gate_up), prefetch_map(block.down);
  if (blockIdx.x == 0) {
    prefetch(block.qkv_bias, 3 * D * 2), prefetch(block.out_bias, D * 2);
    prefetch(block.gate_up_bias, 2 * HIDDEN * 2), prefetch(block.down_bias, D * 2);
    prefetch(block.qkv_scale, 3 * D * 4), prefetch(block.out_scale, D * 4);
    prefetch(block.gate_up_scale, 2 * HIDDEN * 4), prefetch(block.down_scale, D * 4);
    prefetch(block.norm, 2 * HD * 4);
  }
}

template <class Take>
__device__ void fetch(const Step& step, const Shared& shared, bool small) {
  Stream<Take> stream{shared, {shared}};
  if (small) prefetch_small(shared.block(0));
  for (int i = 0; i < BLOCKS; ++i) {
    const Block& block = shared.block(i);
    if (small && i + 1 < BLOCKS) prefetch_small(shared.block(i + 1));
    stream.template product<Qkv>(block.qkv);
    stream.cache(block, i >= DUAL);
    stream.template product<Out>(block.out);
    stream.template product<GateUp, true>(block.gate_up);
    stream.template product<Down>(block.down);
    stream.take.block_done(step, i);
  }
  stream.template product<Head>(step.head);
  stream.take.block_done(step, BLOCKS);
}

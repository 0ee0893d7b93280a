// The order of a step -> its weights, and the keys and values of earlier tokens, in shared memory, as far ahead as there
// is room. One thread of each CTA does nothing else. Knows no arithmetic.

// Room for one more stage, which will bring so many bytes. No more than LIMIT are under way, so that what the other
// threads read meanwhile does not queue behind them.
__device__ __forceinline__ void take(const Shared& shared, const Ring& ring, Ring& late, u32& under_way, u32 bytes) {
  if (LIMIT < STAGES && under_way == LIMIT) {
    barrier_wait(shared.full(late.slot), late.parity);
    late.advance();
  } else {
    ++under_way;
  }
  barrier_wait(shared.empty(ring.slot), ring.parity ^ 1);
  barrier_expect(shared.full(ring.slot), bytes);
}

struct Stream {
  const Shared& shared;
  Ring ring, late;
  u32 under_way = 0;

  template <class S, bool GATED = false>
  __device__ void product(const char* map) {
    const u32 end = S::begin(blockIdx.x + 1);
    for (u32 item = S::begin(blockIdx.x); item < end; ++item)
      for (u32 part = 0; part < S::EACH; ++part) {
        const u32 unit = item % S::UNITS, column = (item / S::UNITS * S::EACH + part) * COLUMNS;
        take(shared, ring, late, under_way, STAGE);
        copy_box(shared.base + AT_RING + ring.slot * STAGE, map, GATED ? 8 * unit : 0, GATED ? 0 : 2 * unit,
                 column * BYTES / 128, shared.full(ring.slot));
        ring.advance();
      }
  }

  __device__ void cache(const Block& block, bool alone) {
    for (u32 item = blockIdx.x; item < ITEMS; item += CTAS) {
      const Positions here(item, shared, alone);
      for (int first = here.first; first < here.last; first += KEYS) {
        const u32 bytes = min(KEYS, here.last - first) * HD * 2, to = shared.base + AT_RING + ring.slot * STAGE;
        const long at = here.cache() + long(first) * HD;
        take(shared, ring, late, under_way, 2 * bytes);
        copy_bytes(to, block.k + at, bytes, shared.full(ring.slot));
        copy_bytes(to + STAGE / 2, block.v + at, bytes, shared.full(ring.slot));
        ring.advance();
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

__device__ void fetch(const Step& step, const Shared& shared) {
  Stream stream{shared};
  prefetch_small(shared.block(0));
  for (int i = 0; i < BLOCKS; ++i) {
    const Block& block = shared.block(i);
    if (i + 1 < BLOCKS) prefetch_small(shared.block(i + 1));
    stream.product<Qkv>(block.qkv);
    stream.cache(block, i >= DUAL);
    stream.product<Out>(block.out);
    stream.product<GateUp, true>(block.gate_up);
    stream.product<Down>(block.down);
  }
  stream.product<Head>(step.head);
}

// The current token of each slot -> logits, in one launch of one CTA for each multiprocessor.
//
// A step is a chain of four products and an attention a block, each of which needs what came before. Launched one by
// one, memory stands still between them. Here one thread of each CTA does nothing but ask for weights, in the order in
// which they will be needed and as far ahead as shared memory holds (5 us of traffic), whatever the others wait for.
// Those send each other what they make in packets that say when they have arrived. A buffer of packets is written again
// only when every CTA has read it: to come so far, a CTA needs something from each of the others that follows their
// reading. All CTAs must be on the card at once. Knows no sampling.

extern "C" __global__ void __launch_bounds__(THREADS + 32 * HELPERS, 1) persistent(const Step* given) {
  SHARED_MEMORY(bytes);
  constexpr int EVERYONE = THREADS + 32 * HELPERS;
  const Step step = *given;
  Shared shared{bytes, shared_address(bytes), nullptr};
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) barrier_init(shared.full(i), 1), barrier_init(shared.empty(i), WARPS);
    barrier_show();
    *reinterpret_cast<uint4*>(bytes + AT_ZERO) = uint4{0, 0, 0, 0};
    *reinterpret_cast<uint4*>(bytes + AT_FETCHED) = uint4{0, 0, 0, 0};
  }
  for (int i = threadIdx.x; i < BLOCKS * int(sizeof(Block)) / 8; i += EVERYONE)
    reinterpret_cast<u64*>(bytes + AT_BLOCKS)[i] = reinterpret_cast<const u64*>(step.blocks)[i];
  for (int i = threadIdx.x; i < R / 2; i += EVERYONE)
    reinterpret_cast<int*>(bytes + AT_PLACES)[i] = int(step.position[i]);
  for (int i = threadIdx.x; i < R / 2 * HD; i += EVERYONE)
    shared.floats(AT_TURNS)[i] = step.turns[step.position[i / HD] * HD + i % HD];
  for (int i = threadIdx.x; i < R * D / 4; i += EVERYONE)
    reinterpret_cast<float4*>(shared.floats(AT_X))[i] = reinterpret_cast<const float4*>(step.x)[i];
  const u32 launch = *step.launches;
  __syncthreads();
  if (threadIdx.x >= THREADS) {
    if (LEAVE_OUT & 2) return;
    if (threadIdx.x == THREADS) fetch<Fill>(step, shared, true);
    if (AHEAD > 0 && threadIdx.x == THREADS + 32) fetch<Ahead>(step, shared, false);
    return;
  }

  Ring ring;
  u32 epoch = launch * BLOCKS;
  const auto part = [&](int block, int part) {
    if (!PROFILE) return;
    u64* marks = step.marks + (blockIdx.x * (BLOCKS + 1) + block) * MARKS;
    if (threadIdx.x == 0 && part == 0) marks[TIME] = nanoseconds();
    shared.marks = marks + part * EVENTS;
    shared.mark(BEGIN);
  };
  for (int i = 0; i < BLOCKS; ++i) {
    const Block& block = shared.block(i);
    part(i, 0);
    if (i == 0)
      normalise<0>(shared, nullptr, 0);
    else
      normalise<Down::PLANES>(shared, step.down, epoch);
    ++epoch;
    send_wide<Qkv, 3 * D>(shared, block.qkv_scale, block.qkv_bias, step.qkv, epoch, ring);
    part(i, 1);
    attend(step, block, shared, i >= DUAL, epoch, ring);
    part(i, 2);
    merge(step, shared, epoch);
    send_narrow<Out>(shared, ACT_D, block.out_scale, block.out_bias, step.out, epoch, ring);
    part(i, 3);
    normalise<Out::PLANES>(shared, step.out, epoch);
    send_hidden(shared, block.gate_up_scale, block.gate_up_bias, step.hidden, epoch, ring);
    part(i, 4);
    take_hidden(step, shared, epoch);
    send_narrow<Down>(shared, ACT_H, block.down_scale, block.down_bias, step.down, epoch, ring);
  }
  part(BLOCKS, 0);
  normalise<Down::PLANES>(shared, step.down, epoch);
  product<Head>(shared, ACT_D, step.head_scale, nullptr, ring, [&](u32, u32 n, u32 place, float value) {
    step.logits[n * CODES + place] = value;
  });
  if (blockIdx.x == 0 && threadIdx.x == 0) *step.launches = launch + 1;
}

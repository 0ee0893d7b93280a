// What the hardware does, by name: arithmetic of 16 bits, tensor cores, the copy engine and its barriers, words that
// carry their own proof of arrival. tests/emulated.h says the same on a CPU.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

#define SHARED_MEMORY(name) extern __shared__ __align__(1024) char name[]

__device__ __forceinline__ u32 shared_address(const void* p) {
  u64 at;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(at) : "l"(p));
  return u32(at);
}

// The computing warps of a CTA
__device__ __forceinline__ void meet() { asm volatile("bar.sync 1, %0;" ::"n"(32 * WARPS) : "memory"); }
template <class T>
__device__ __forceinline__ T other_lane(T value, int distance) {
  return __shfl_xor_sync(~0u, value, distance);
}

// Two values in 16 bits, the second in the upper half
__device__ __forceinline__ u32 bf16_2(float a, float b) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(b), "f"(a));
  return both;
}
__device__ __forceinline__ u32 f16_2(float a, float b) {
  u32 both;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(b), "f"(a));
  return both;
}
// Four 8-bit floats (e4m3) -> two pairs of 16 bits
__device__ __forceinline__ void widen_fp8(u32 four, u32& low, u32& high) {
  asm("{\n.reg .b16 a, b;\nmov.b32 {a, b}, %2;\ncvt.rn.f16x2.e4m3x2 %0, a;\ncvt.rn.f16x2.e4m3x2 %1, b;\n}"
      : "=r"(low), "=r"(high) : "r"(four));
}
// Four 8-bit integers -> two pairs of 16 bits: 1024 + (weight + 128) has the weight in its last bits
__device__ __forceinline__ void widen_int8(u32 four, u32& low, u32& high) {
  const u32 shifted = four ^ 0x80808080u, ones = 0x64646464u, less = 0xE480E480u;  // two times -1152
  asm("{\n.reg .b32 a, b;\nprmt.b32 a, %2, %3, 0x4140;\nprmt.b32 b, %2, %3, 0x4342;\n"
      "add.rn.f16x2 %0, a, %4;\nadd.rn.f16x2 %1, b, %4;\n}"
      : "=r"(low), "=r"(high) : "r"(shifted), "r"(ones), "r"(less));
}

// Four 8 x 8 matrices of 16 bits: lane 8 m + r says where row r of matrix m begins
__device__ __forceinline__ void ldmatrix(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
// c (16 x 8) += a (16 x 16) b (16 x 8), float32; of bfloat16 or of float16
__device__ __forceinline__ void mma_bf16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_f16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Barriers in shared memory that count arrivals and bytes
__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_show() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra OVER;\nbra AGAIN;\nOVER:\n}" ::"r"(barrier), "r"(parity) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(barrier),
               "r"(bytes) : "memory");
}

// The copy engine: a box of a tensor map, or bytes that follow one another; the barrier hears of their arrival
__device__ __forceinline__ void copy_box(u32 to, const char* map, int halves, int eights, int block, u32 barrier) {
  if constexpr (EVICT_FIRST)
    asm volatile(
        "{\n.reg .b64 once;\ncreatepolicy.fractional.L2::evict_first.b64 once, 1.0;\n"
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0],"
        " [%1, {%2, %3, %4, %5}], [%6], once;\n}" ::"r"(to), "l"(map), "r"(0), "r"(halves), "r"(eights), "r"(block),
        "r"(barrier) : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}],"
        " [%6];" ::"r"(to), "l"(map), "r"(0), "r"(halves), "r"(eights), "r"(block), "r"(barrier) : "memory");
}
__device__ __forceinline__ void copy_bytes(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
__device__ __forceinline__ void prefetch_map(const char* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void prefetch_box(const char* map, int halves, int eights, int block) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(0),
               "r"(halves), "r"(eights), "r"(block) : "memory");
}
__device__ __forceinline__ void prefetch(const void* from, u32 bytes) {
  if (from) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// A word of shared memory that another warp changes meanwhile
__device__ __forceinline__ u32 peek(const u32* word) { return *reinterpret_cast<const volatile u32*>(word); }
__device__ __forceinline__ u64 clocks() { return clock64(); }
__device__ __forceinline__ u64 nanoseconds() {
  u64 time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

// 64 bits from one CTA to others, which arrive together
__device__ __forceinline__ void send(u64* to, u64 packet) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(packet) : "memory");
}
struct Two {
  u64 first, second;
};
__device__ __forceinline__ void look(const u64* from, u64& seen) {
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(seen) : "l"(from) : "memory");
}
__device__ __forceinline__ void look(const u64* from, Two& seen) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(seen.first), "=l"(seen.second) : "l"(from)
               : "memory");
}

// The number of this thread, found anew wherever it is asked for: what follows from it is not kept from block to block,
// which would take more registers than there are.
__device__ __forceinline__ u32 this_thread() {
  u32 x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}

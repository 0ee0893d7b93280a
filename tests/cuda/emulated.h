// device.cuh on a CPU: threads of all CTAs as fibers that take turns in random order, so that what one reads before
// another wrote it shows. Every wait gives up its turn; if all wait, the program ends with "deadlock".
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <vector>

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
using std::min;
struct float4 { float x, y, z, w; };
struct uint4 { u32 x, y, z, w; };
struct Index { u32 x; };
static Index threadIdx, blockIdx;

namespace machine {
constexpr int LANES = 32, ALL = 32 * (WARPS + (AHEAD > 0 ? 2 : 1));
struct Gate {  // of a group of threads
  u32 arrived = 0, turn = 0;
};
struct MBarrier {
  u32 expected = 0, pending = 0, phase = 0;
  long bytes = 0;
  void settle() {
    if (pending == 0 && bytes == 0) phase ^= 1, pending = expected;
  }
};
struct Cta {
  alignas(1024) char shared[227 * 1024];
  std::map<u32, MBarrier> barriers;
  Gate computing, all, warps[ALL / 32];
  u32 lanes[ALL / 32][LANES][8];
};
struct Fiber {
  ucontext_t context;  // to begin with; then jumps, which unlike swapcontext ask nothing of the kernel
  jmp_buf place;
  bool begun = false;
  std::vector<char> stack;
  u32 cta, thread;
  bool done = false;
};
static std::vector<Cta*> ctas;
static std::vector<Fiber> fibers;
static Fiber* current;
static jmp_buf scheduler;
static u64 progress;  // changes that someone may wait for
static std::function<void()> body;

inline Cta& cta() { return *ctas[current->cta]; }
inline void yield() {
  if (_setjmp(current->place) == 0) _longjmp(scheduler, 1);
}
inline void resume(Fiber& fiber) {
  current = &fiber, threadIdx.x = fiber.thread, blockIdx.x = fiber.cta;
  if (_setjmp(scheduler)) return;
  if (fiber.begun) _longjmp(fiber.place, 1);
  fiber.begun = true;
  setcontext(&fiber.context);
}
inline void pass(Gate& gate, u32 count) {
  const u32 turn = gate.turn;
  ++progress;
  if (++gate.arrived == count) {
    gate.arrived = 0, ++gate.turn;
    return;
  }
  while (gate.turn == turn) yield();
}
inline void warp_meets() { pass(cta().warps[current->thread / 32], 32); }
inline u32* mine() { return cta().lanes[current->thread / 32][current->thread % 32]; }
inline u32* of(u32 lane) { return cta().lanes[current->thread / 32][lane]; }
inline void start() {
  body();
  current->done = true;
  ++progress;
  yield();
}
inline void run(u32 count, u32 seed, std::function<void()> kernel) {
  body = std::move(kernel);
  fibers = std::vector<Fiber>(count * ALL);
  ctas.clear();
  for (u32 i = 0; i < count; ++i) ctas.push_back(new Cta);
  std::vector<u32> order(fibers.size());
  for (u32 i = 0; i < fibers.size(); ++i) {
    Fiber& fiber = fibers[i];
    fiber.stack.resize(128 * 1024), fiber.cta = i / ALL, fiber.thread = i % ALL, order[i] = i;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data(), fiber.context.uc_stack.ss_size = fiber.stack.size();
    makecontext(&fiber.context, start, 0);
  }
  std::mt19937 random(seed);
  for (u32 idle = 0; !order.empty();) {
    const u64 before = progress;
    std::shuffle(order.begin(), order.end(), random);
    for (u32 i : order) resume(fibers[i]);
    order.erase(std::remove_if(order.begin(), order.end(), [](u32 i) { return fibers[i].done; }), order.end());
    idle = progress == before ? idle + 1 : 0;
    if (idle > 1000) std::fprintf(stderr, "deadlock\n"), std::abort();
  }
  for (Cta* one : ctas) delete one;
}
}  // namespace machine

#define SHARED_MEMORY(name) char* const name = machine::cta().shared
inline u32 shared_address(const void* p) { return u32(static_cast<const char*>(p) - machine::cta().shared); }
inline void meet() { machine::pass(machine::cta().computing, 32 * WARPS); }
inline void __syncthreads() { machine::pass(machine::cta().all, machine::ALL); }
inline void __syncwarp() { machine::warp_meets(); }
template <class T>
T other_lane(T value, int distance) {
  std::memcpy(machine::mine(), &value, 4);
  machine::warp_meets();
  T other;
  std::memcpy(&other, machine::of((machine::current->thread % 32) ^ distance), 4);
  machine::warp_meets();
  return other;
}

inline float __uint_as_float(u32 bits) { float f; std::memcpy(&f, &bits, 4); return f; }
inline u32 __float_as_uint(float f) { u32 bits; std::memcpy(&bits, &f, 4); return bits; }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline u32 bf16(float f) {
  const u32 bits = __float_as_uint(f);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline u32 bf16_2(float a, float b) { return bf16(a) | bf16(b) << 16; }
inline u32 f16(float f) {
  const _Float16 half = static_cast<_Float16>(std::clamp(f, -65504.0f, 65504.0f));
  u16 bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}
inline float from_f16(u32 bits) {
  const u16 low = u16(bits);
  _Float16 half;
  std::memcpy(&half, &low, 2);
  return half;
}
inline float from_bf16(u32 bits) { return __uint_as_float(bits << 16); }
inline u32 f16_2(float a, float b) { return f16(a) | f16(b) << 16; }
inline float e4m3(u32 byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const float value = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
  return byte & 128 ? -value : value;
}
inline void widen_fp8(u32 four, u32& low, u32& high) {
  low = f16_2(e4m3(four & 255), e4m3(four >> 8 & 255)), high = f16_2(e4m3(four >> 16 & 255), e4m3(four >> 24));
}
inline void widen_int8(u32 four, u32& low, u32& high) {
  const auto at = [&](int i) { return float(static_cast<signed char>(four >> 8 * i)); };
  low = f16_2(at(0), at(1)), high = f16_2(at(2), at(3));
}

inline void ldmatrix(u32 (&r)[4], u32 address) {
  machine::mine()[0] = address;
  machine::warp_meets();
  const u32 lane = machine::current->thread % 32;
  for (u32 m = 0; m < 4; ++m)
    std::memcpy(&r[m], machine::cta().shared + machine::of(8 * m + lane / 4)[0] + lane % 4 * 4, 4);
  machine::warp_meets();
}
template <class Wide>
void mma(float (&c)[4], const u32 (&ab)[6], Wide wide) {
  std::memcpy(machine::mine(), ab, sizeof ab);
  machine::warp_meets();
  const u32 lane = machine::current->thread % 32, g = lane / 4, t = lane % 4;
  const auto half = [&](u32 word, u32 k) { return wide(word >> (k % 2 * 16) & 0xffff); };
  for (u32 i = 0; i < 4; ++i) {
    const u32 row = g + i / 2 * 8, column = 2 * t + i % 2;
    for (u32 k = 0; k < 16; ++k) {
      const float a = half(machine::of(row % 8 * 4 + k % 8 / 2)[row / 8 + k / 8 * 2], k);
      const float b = half(machine::of(column * 4 + k % 8 / 2)[4 + k / 8], k);
      c[i] += a * b;
    }
  }
  machine::warp_meets();
}
inline void mma_bf16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma(c, {a0, a1, a2, a3, b0, b1}, from_bf16);
}
inline void mma_f16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma(c, {a0, a1, a2, a3, b0, b1}, from_f16);
}

inline void barrier_init(u32 barrier, u32 arrivals) {
  machine::cta().barriers[barrier] = {arrivals, arrivals, 0, 0};
}
inline void barrier_show() {}
inline void barrier_wait(u32 barrier, u32 parity) {
  machine::MBarrier& one = machine::cta().barriers.at(barrier);
  while (one.phase == parity) machine::yield();
}
inline void barrier_arrive(u32 barrier) {
  machine::MBarrier& one = machine::cta().barriers.at(barrier);
  --one.pending, one.settle(), ++machine::progress;
}
inline void barrier_expect(u32 barrier, u32 bytes) {
  machine::cta().barriers.at(barrier).bytes += bytes;
  barrier_arrive(barrier);
}
inline void arrive(u32 to, const void* from, u32 bytes) { std::memcpy(machine::cta().shared + to, from, bytes); }
inline void landed(u32 barrier, u32 bytes) {
  for (u32 late = rand() % 3; late; --late) machine::yield();
  machine::MBarrier& one = machine::cta().barriers.at(barrier);
  one.bytes -= bytes, one.settle(), ++machine::progress;
}
struct Map {  // what tests write in place of a tensor map
  const char* from;
  long row, half;  // bytes
  int blocks;      // of 128 bytes in a box
};
inline void copy_box(u32 to, const char* map, int halves, int eights, int block, u32 barrier) {
  const Map& box = *reinterpret_cast<const Map*>(map);
  if (to % 1024) std::abort();
  for (int b = 0; b < box.blocks; ++b)
    for (int row = 0; row < 16; ++row)
      for (int chunk = 0; chunk < 8; ++chunk)
        arrive(to + b * 2048 + row * 128 + (chunk ^ (row & 7)) * 16,
               box.from + (halves + row % 8) * box.row + (eights + row / 8) * box.half + (block + b) * 128 + chunk * 16, 16);
  landed(barrier, box.blocks * 2048);
}
inline void copy_bytes(u32 to, const void* from, u32 bytes, u32 barrier) {
  arrive(to, from, bytes), landed(barrier, bytes);
}
inline void prefetch_map(const char*) {}
inline void prefetch_box(const char*, int, int, int) {}
inline void prefetch(const void*, u32) {}

inline u32 this_thread() { return threadIdx.x; }
inline u32 peek(const u32* word) {
  machine::yield();
  return *word;
}
inline u64 clocks() {
  static u64 time;
  return time += 100;
}
inline u64 nanoseconds() { return clocks(); }

inline void send(u64* to, u64 packet) { *to = packet, ++machine::progress; }
struct Two {
  u64 first, second;
};
inline void look(const u64* from, u64& seen) { seen = *from, machine::yield(); }
inline void look(const u64* from, Two& seen) { seen = {from[0], from[1]}, machine::yield(); }

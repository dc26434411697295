/// \file Spins briefly for another thread before sleeping.
#pragma once
#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tg {

inline void spin_pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Long enough to bridge two kernels launched in a row, short enough not to hurt a shared machine.
constexpr std::chrono::microseconds kSpin{20};

/// Spins until ready() or the time limit; returns whether it is ready.
template <class F> bool spin_until(F ready) {
  if (ready()) return true;
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      spin_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return ready();
}

}  // namespace tg

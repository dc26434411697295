/// \file Every collective on host memory against values that each process computes by itself.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "tinygrad/runtime/world/world.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/mesh.h"

namespace tg {
namespace {
using Bytes = std::vector<std::byte>;
using distributed::rank;
using distributed::size;
constexpr int64_t kSizes[] = {0, 1, 2, 7, 63, 1000, 4099, 300007};  // the last ones are sent in segments
const DType kAll[] = {dtypes::bool_,       dtypes::int8,       dtypes::uint8,   dtypes::int16,   dtypes::uint16,
                      dtypes::int32,       dtypes::uint32,     dtypes::int64,   dtypes::uint64,  dtypes::float16,
                      dtypes::bfloat16,    dtypes::float32,    dtypes::float64, dtypes::fp8e4m3, dtypes::fp8e5m2,
                      dtypes::fp8e4m3fnuz, dtypes::fp8e5m2fnuz};

std::vector<int> everybody() {
  std::vector<int> all(static_cast<size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}
size_t itemsize(DType d) { return static_cast<size_t>(d.itemsize()); }

/// Element i of process r: small enough for every type, and not the same twice in a row.
ConstValue value_of(DType d, int r, int64_t i) {
  const auto h = static_cast<uint32_t>(i) * 2654435761u ^ static_cast<uint32_t>(r + 1) * 40503u;
  if (d.is_bool()) return ConstValue((h >> 13 & 3) == 0);
  if (d.is_float()) return ConstValue((static_cast<double>(h >> 8 & 255) - 128) / 64);
  const int64_t v = h >> 5 & 0x7fffffff;
  return ConstValue(d.is_unsigned() ? v : v - 0x3fffffff);  // wraps
}
Bytes values_of(DType d, int r, int64_t first, int64_t n) {
  Bytes out(static_cast<size_t>(n) * itemsize(d));
  for (int64_t i = 0; i < n; i++) {
    const ConstValue cast = eval_cast(value_of(d, r, first + i),
                                      d.is_float()  ? dtypes::float64
                                      : d.is_bool() ? d
                                                    : dtypes::int64,
                                      d);
    store_const(out.data() + static_cast<size_t>(i) * itemsize(d), cast, d);
  }
  return out;
}
double as_double(const Bytes& b, DType d, int64_t i) {
  const ConstValue v = load_const(b.data() + static_cast<size_t>(i) * itemsize(d), d);
  return eval_cast(v, d, dtypes::float64).as_double();
}
/// The bits of integers and of maxima; for sums the exact one, within the rounding of the type.
void expect_combined(const Bytes& got, DType d, Ops op, int64_t first, int64_t n, const std::vector<int>& group) {
  ASSERT_EQ(got.size(), static_cast<size_t>(n) * itemsize(d));
  std::vector<Bytes> parts;
  for (int r : group) parts.push_back(values_of(d, r, first, n));
  if (!d.is_float() || op == Ops::MAX) {
    Bytes want = parts[0];
    for (size_t p = 1; p < parts.size() && n; p++) {
      const void* const operands[] = {want.data(), parts[p].data()};
      Bytes next(want.size());
      alu_loop(op, d)(next.data(), operands, static_cast<size_t>(n));
      want = next;
    }
    EXPECT_TRUE(got == want) << d << ' ' << op << " of " << n;
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    double want = as_double(parts[0], d, i);
    for (size_t p = 1; p < parts.size(); p++) {
      const double v = as_double(parts[p], d, i);
      want = op == Ops::ADD ? want + v : want * v;
    }
    // Sums of these values are exact in float32, so they are rounded once; products are rounded at each step.
    const double rounded = truncate_float(want, d), got_value = as_double(got, d, i);
    if (op == Ops::ADD) ASSERT_EQ(got_value, rounded) << d << " element " << i << " of " << n;
    else
      ASSERT_NEAR(got_value, rounded, std::ldexp(std::fabs(rounded), -finfo(d).mantissa) * 2)
          << d << " element " << i << " of " << n;
  }
}
/// Whether all processes have the same bytes.
void expect_same_everywhere(const Bytes& mine) {
  uint64_t h = 1469598103934665603ull;
  for (std::byte b : mine) h = (h ^ static_cast<uint64_t>(b)) * 1099511628211ull;
  std::vector<uint64_t> all(static_cast<size_t>(size()));
  distributed::run({.what = CollectiveKind::kAllGather, .dtype = dtypes::uint64, .elements = 1, .group = everybody()},
                   &h, all.data());
  for (uint64_t x : all) EXPECT_EQ(x, h);
}

TEST(Collectives, AllReduceAdds) {
  for (DType d : kAll)
    for (int64_t n : kSizes) {
      const Bytes in = values_of(d, rank(), 0, n);
      Bytes out(in.size());
      distributed::run({.dtype = d, .elements = n, .group = everybody()}, in.data(), out.data());
      expect_combined(out, d, Ops::ADD, 0, n, everybody());
      expect_same_everywhere(out);
    }
}

TEST(Collectives, AllReduceTakesEveryOperation) {
  for (DType d : kAll)
    for (Ops op : {Ops::MUL, Ops::MAX, Ops::AND, Ops::OR, Ops::XOR}) {
      if (!alu_loop(op, d)) continue;
      for (int64_t n : {1, 1000, 70001}) {
        const Bytes in = values_of(d, rank(), 3, n);
        Bytes out(in.size());
        distributed::run({.op = op, .dtype = d, .elements = n, .group = everybody()}, in.data(), out.data());
        expect_combined(out, d, op, 3, n, everybody());
        expect_same_everywhere(out);
      }
    }
}

TEST(Collectives, AllReduceInPlace) {
  for (int64_t n : kSizes) {
    Bytes data = values_of(dtypes::float32, rank(), 0, n);
    distributed::run({.elements = n, .group = everybody()}, data.data(), data.data());
    expect_combined(data, dtypes::float32, Ops::ADD, 0, n, everybody());
  }
}

TEST(Collectives, SumsAreTheSameInEveryRun) {
  for (DType d : {dtypes::float32, dtypes::bfloat16}) {
    const int64_t n = 200003;
    const Bytes in = values_of(d, rank(), 0, n);
    Bytes first(in.size()), again(in.size());
    const Collective c{.dtype = d, .elements = n, .group = everybody()};
    distributed::run(c, in.data(), first.data());
    for (int k = 0; k < 10; k++) {
      std::fill(again.begin(), again.end(), std::byte{});
      distributed::run(c, in.data(), again.data());
      EXPECT_TRUE(again == first);
    }
  }
}

TEST(Collectives, ReduceScatter) {
  for (DType d : kAll)
    for (int64_t n : kSizes) {
      if (n > 100000 && d != dtypes::float32) continue;
      const Bytes in = values_of(d, rank(), 0, n * size());
      Bytes out(static_cast<size_t>(n) * itemsize(d));
      distributed::run({.what = CollectiveKind::kReduceScatter, .dtype = d, .elements = n, .group = everybody()},
                       in.data(), out.data());
      expect_combined(out, d, Ops::ADD, n * rank(), n, everybody());
    }
}

TEST(Collectives, AllGather) {
  for (DType d : kAll)
    for (int64_t n : kSizes) {
      const Bytes in = values_of(d, rank(), 0, n);
      Bytes out(in.size() * static_cast<size_t>(size())), want;
      distributed::run({.what = CollectiveKind::kAllGather, .dtype = d, .elements = n, .group = everybody()}, in.data(),
                       out.data());
      for (int r = 0; r < size(); r++) {
        const Bytes piece = values_of(d, r, 0, n);
        want.insert(want.end(), piece.begin(), piece.end());
      }
      EXPECT_TRUE(out == want) << d << " x " << n;
    }
}

TEST(Collectives, AllToAll) {
  for (DType d : kAll)
    for (int64_t n : kSizes) {
      if (n > 100000 && d != dtypes::int16) continue;
      const Bytes in = values_of(d, rank(), 0, n * size());
      Bytes out(in.size()), want;
      distributed::run({.what = CollectiveKind::kAllToAll, .dtype = d, .elements = n, .group = everybody()}, in.data(),
                       out.data());
      for (int r = 0; r < size(); r++) {
        const Bytes piece = values_of(d, r, n * rank(), n);
        want.insert(want.end(), piece.begin(), piece.end());
      }
      EXPECT_TRUE(out == want) << d << " x " << n;
    }
}

TEST(Collectives, BroadcastFromEveryRoot) {
  for (DType d : kAll)
    for (int root = 0; root < size(); root++)
      for (int64_t n : kSizes) {
        const Bytes in = values_of(d, rank(), 0, n);
        Bytes out(in.size());
        distributed::run(
            {.what = CollectiveKind::kBroadcast, .dtype = d, .elements = n, .group = everybody(), .root = root},
            in.data(), out.data());
        EXPECT_TRUE(out == values_of(d, root, 0, n)) << d << " x " << n;
      }
}

TEST(Collectives, SendAndReceiveRoundTheRing) {
  const int to = (rank() + 1) % size(), from = (rank() + size() - 1) % size();
  for (DType d : kAll)
    for (int64_t n : kSizes) {
      const Bytes in = values_of(d, rank(), 0, n);
      Bytes kept(in.size()), out(in.size());
      const EventRef sent = distributed::start({.what = CollectiveKind::kSend, .dtype = d, .elements = n, .root = to},
                                               in.data(), kept.data());
      distributed::run({.what = CollectiveKind::kReceive, .dtype = d, .elements = n, .root = from}, nullptr,
                       out.data());
      sent->wait();
      EXPECT_TRUE(out == values_of(d, from, 0, n));
      EXPECT_TRUE(kept == in);
    }
}

TEST(Collectives, ManyAtOnce) {
  std::vector<Bytes> in, out;
  std::vector<EventRef> events;
  for (int k = 0; k < 200; k++) in.push_back(values_of(dtypes::float32, rank(), k, 100 + 37 * (k % 50)));
  for (const Bytes& b : in) out.emplace_back(b.size());
  for (size_t k = 0; k < in.size(); k++)
    events.push_back(distributed::start({.elements = static_cast<int64_t>(in[k].size() / 4), .group = everybody()},
                                        in[k].data(), out[k].data()));
  for (size_t k = in.size(); k-- > 0;) {  // the last first
    events[k]->wait();
    expect_combined(out[k], dtypes::float32, Ops::ADD, static_cast<int64_t>(k), static_cast<int64_t>(in[k].size() / 4),
                    everybody());
  }
}

TEST(Collectives, GroupsAlongBothAxesOfAMesh) {
  const WorldDevices mesh{"CPU", 0, {{"rows", 2}, {"columns", size() / 2}}};
  for (int64_t n : {int64_t{5}, int64_t{50001}}) {
    const Bytes in = values_of(dtypes::int32, rank(), 0, n);
    Bytes along[2] = {Bytes(in.size()), Bytes(in.size())};
    EventRef events[2];
    for (uint32_t k = 0; k < 2; k++)
      events[k] = distributed::start({.dtype = dtypes::int32, .elements = n, .group = mesh.group_of(rank(), 1u << k)},
                                     in.data(), along[k].data());
    for (uint32_t k = 0; k < 2; k++) {
      events[k]->wait();
      expect_combined(along[k], dtypes::int32, Ops::ADD, 0, n, mesh.group_of(rank(), 1u << k));
    }
  }
}

TEST(Collectives, SpecialValuesArriveEverywhere) {
  const float inf = INFINITY;
  const float in[] = {rank() == 0 ? NAN : 1.0f, rank() == 0 ? inf : -inf, -0.0f};
  float sum[3], most[3];
  distributed::run({.elements = 3, .group = everybody()}, in, sum);
  EXPECT_TRUE(std::isnan(sum[0]));
  EXPECT_TRUE(std::isnan(sum[1]));
  EXPECT_TRUE(std::signbit(sum[2]));
  distributed::run({.op = Ops::MAX, .elements = 3, .group = everybody()}, in, most);
  EXPECT_TRUE(std::isnan(most[0]));
  EXPECT_EQ(most[1], inf);
}

TEST(Collectives, WhoWeAre) {
  EXPECT_TRUE(distributed::is_initialized());
  EXPECT_GE(rank(), 0);
  EXPECT_LT(rank(), size());
  EXPECT_EQ(distributed::local_size(), size());
  EXPECT_EQ(distributed::local_rank(), rank());
  EXPECT_FALSE(distributed::library().empty());
  std::vector<int> all(static_cast<size_t>(size()));
  const int mine = rank();
  distributed::run({.what = CollectiveKind::kAllGather, .dtype = dtypes::int32, .elements = 1, .group = everybody()},
                   &mine, all.data());
  EXPECT_EQ(all, everybody());
  std::vector<uint64_t> seeds(static_cast<size_t>(size()));
  const uint64_t seed = distributed::shared_seed();
  distributed::run({.what = CollectiveKind::kAllGather, .dtype = dtypes::uint64, .elements = 1, .group = everybody()},
                   &seed, seeds.data());
  for (uint64_t s : seeds) EXPECT_EQ(s, seed);
}

TEST(Collectives, BarrierWaitsForTheSlowest) {
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };  // one for the machine
  for (int k = 0; k < 10; k++) {
    if (rank() == k % size()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const int64_t came = now();
    distributed::barrier();
    const int64_t left = now();
    std::vector<int64_t> all(static_cast<size_t>(size()));
    distributed::run({.what = CollectiveKind::kAllGather, .dtype = dtypes::int64, .elements = 1, .group = everybody()},
                     &came, all.data());
    for (int64_t c : all) EXPECT_GE(left, c);
  }
}

TEST(Collectives, MistakesAreErrorsAtOnce) {
  float x = 0;
  const auto run = [&](Collective c) { distributed::run(c, &x, &x); };
  EXPECT_THROW(run({.elements = -1, .group = everybody()}), ValueError);
  EXPECT_THROW(run({.elements = 1, .group = {0, 99}}), ValueError);
  EXPECT_THROW(run({.op = Ops::XOR, .elements = 1, .group = everybody()}), DTypeError);
  EXPECT_THROW(run({.what = CollectiveKind::kBroadcast, .elements = 1, .group = everybody(), .root = size()}),
               ValueError);
  EXPECT_THROW(run({.what = CollectiveKind::kSend, .elements = 1, .root = rank()}), ValueError);
  EXPECT_THROW(run({.what = CollectiveKind::kReceive, .elements = 1, .root = size()}), ValueError);
  distributed::barrier();
}

TEST(SlowCollectives, OneGiB) {
  const int64_t n = int64_t{1} << 28;
  std::vector<float> in(static_cast<size_t>(n)), out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; i++) in[static_cast<size_t>(i)] = static_cast<float>((i & 1023) + rank());
  distributed::run({.elements = n, .group = everybody()}, in.data(), out.data());
  const int ranks = size() * (size() - 1) / 2;
  for (int64_t i = 0; i < n; i++)
    ASSERT_EQ(out[static_cast<size_t>(i)], static_cast<float>((i & 1023) * size() + ranks)) << i;
  distributed::run({.what = CollectiveKind::kBroadcast, .elements = n, .group = everybody(), .root = 1}, in.data(),
                   out.data());
  for (int64_t i = 0; i < n; i++) ASSERT_EQ(out[static_cast<size_t>(i)], static_cast<float>((i & 1023) + 1)) << i;
}

/// Element i of process r: made quickly, for tensors of a GiB.
float large_value(int r, int64_t i) { return static_cast<float>((i & 1023) + r); }
std::vector<float> large_values(int r, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; i++) out[static_cast<size_t>(i)] = large_value(r, i);
  return out;
}

TEST(SlowCollectives, OneGiBInPieces) {
  const int64_t n = (int64_t{1} << 28) / size() + 3;  // of a piece
  const std::vector<float> whole = large_values(rank(), n * size());
  std::vector<float> part(static_cast<size_t>(n)), all(whole.size());
  distributed::run({.what = CollectiveKind::kReduceScatter, .elements = n, .group = everybody()}, whole.data(),
                   part.data());
  const int ranks = size() * (size() - 1) / 2;
  for (int64_t i = 0; i < n; i++)
    ASSERT_EQ(part[static_cast<size_t>(i)], static_cast<float>(((n * rank() + i) & 1023) * size() + ranks)) << i;
  distributed::run({.what = CollectiveKind::kAllGather, .elements = n, .group = everybody()}, whole.data(), all.data());
  for (int64_t i = 0; i < n * size(); i++)
    ASSERT_EQ(all[static_cast<size_t>(i)], large_value(static_cast<int>(i / n), i % n)) << i;
  distributed::run({.what = CollectiveKind::kAllToAll, .elements = n, .group = everybody()}, whole.data(), all.data());
  for (int64_t i = 0; i < n * size(); i++)
    ASSERT_EQ(all[static_cast<size_t>(i)], large_value(static_cast<int>(i / n), n * rank() + i % n)) << i;
}

/// MPI counts in int: longer messages go in pieces.
TEST(SlowCollectives, MessagesOfMoreThanTwoGiB) {
  const int64_t n = (int64_t{1} << 29) + 5;
  const int to = (rank() + 1) % size(), from = (rank() + size() - 1) % size();
  const std::vector<float> in = large_values(rank(), n);
  std::vector<float> kept(in.size()), out(in.size());
  const EventRef sent =
      distributed::start({.what = CollectiveKind::kSend, .elements = n, .root = to}, in.data(), kept.data());
  distributed::run({.what = CollectiveKind::kReceive, .elements = n, .root = from}, nullptr, out.data());
  sent->wait();
  for (int64_t i = 0; i < n; i++) ASSERT_EQ(out[static_cast<size_t>(i)], large_value(from, i)) << i;
  EXPECT_TRUE(kept == in);
}
}  // namespace
}  // namespace tg

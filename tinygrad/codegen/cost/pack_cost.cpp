/// \file Cycles to fill scratch memory: how often panels and windows are filled, and what an element takes.
#include <cmath>

#include "tinygrad/codegen/cost/cost_model.h"

namespace tg {
namespace {
using Mask = CostModel::Mask;
using Access = CostModel::Access;
using Operand = CostModel::Operand;
using PackCycles = CostModel::PackCycles;

/// The filling of one candidate's scratch memory, operand by operand.
class Packing {
 public:
  Packing(const CostModel& model, const Candidate& candidate, Mask lane);
  void add(size_t operand, PackCycles& total) const;

 private:
  /// How the loads of an operand look from the loops that fill it.
  struct Form {
    bool vector = false;      ///< lanes load and store whole vectors
    bool runs = false;        ///< it goes along memory
    bool transposes = false;  ///< along memory, in blocks that are transposed
    bool gated = false;
    double each = 0;  ///< cycles of the loads for a vector
  };
  bool is_window(size_t o) const { return CostModel::is_window(c_, static_cast<int>(o)); }
  bool has_lanes(const Operand& p) const { return (p.mask & lane_) != 0; }
  double elements(Mask m) const;
  double share(size_t o) const;
  Form form(size_t o) const;
  double vector_load(const Access& a, size_t o, Form& form) const;
  double per_element(size_t o, const Form& form) const;
  double waiting(const Access& a) const;

  const CostModel& m_;
  const Candidate& c_;
  const MachineRates& rates_;
  const Mask lane_;
  const CostModel::Cover cover_;
  const Mask inside_;   // output axes that a window holds whole
  double panels_ = 1;   // panels with lanes, over the whole kernel
  double repeats_ = 1;  // fillings of an operand without lanes
};

Packing::Packing(const CostModel& model, const Candidate& candidate, Mask lane)
    : m_(model),
      c_(candidate),
      rates_(model.rates),
      lane_(lane),
      cover_(model.cover(candidate, lane)),
      inside_(cover_.usable ? cover_.whole : model.window_inner_axes(candidate, lane)) {
  for (size_t o = 0; o < m_.operands.size(); o++) {
    if (!(c_.staged >> o & 1) || !has_lanes(m_.operands[o])) continue;
    for (size_t i = 0; i < m_.size.size(); i++)
      if (m_.operands[o].mask >> i & 1 && !m_.is_reduce[i] && !(inside_ >> i & 1)) panels_ *= m_.trips(c_, i);
  }
  repeats_ = std::ceil(panels_ / static_cast<double>(m_.resident_panels(c_, lane)));
}

double Packing::elements(Mask m) const {
  double n = 1;
  for (size_t i = 0; i < m_.size.size(); i++)
    if (m >> i & 1) n *= static_cast<double>(m_.size[i]);
  return n;
}

/// Returns how often an element is filled because it is in several windows; 1: as a panel.
double Packing::share(size_t o) const {
  if (!is_window(o)) return 1;
  const Operand& p = m_.operands[o];
  const auto blocks = static_cast<double>(std::max<int64_t>(c_.blocks, 1));
  double windows = panels_;
  if (!has_lanes(p)) {
    windows = blocks;
    for (size_t i = 0; i < m_.size.size(); i++)
      if ((p.mask | cover_.outer) >> i & 1 && !m_.is_reduce[i] && !(inside_ >> i & 1)) windows *= m_.trips(c_, i);
    windows /= static_cast<double>(cover_.rows);
  }
  const double whole = m_.window(p, c_, lane_, inside_, cover_.rows_axis, cover_.rows) / (has_lanes(p) ? 1 : blocks);
  return whole > 0 ? whole / p.bytes * windows / elements(p.mask) : 1;
}

Packing::Form Packing::form(size_t o) const {
  Form form;
  form.vector = has_lanes(m_.operands[o]);
  for (const Access& a : m_.accesses) {
    if (a.operand != static_cast<int>(o)) continue;
    for (size_t i = 0; i < m_.size.size(); i++) {
      // Along memory, inside of the panel.
      const bool whole = m_.is_reduce[i] || lane_ >> i & 1 || inside_ >> i & 1;
      const bool run = a.mask >> i & 1 && !(a.nonlinear >> i & 1) && a.stride[i] == 1 &&
                       (whole ? m_.size[i] : c_.tile[i]) >= rates_.min_pack_run;
      form.runs |= run;
      form.transposes |= run && !(a.gate >> i & 1) && !(lane_ >> i & 1);
    }
    form.each += vector_load(a, o, form);
    if (a.gate & lane_) form.each += rates_.pack_masked * m_.vectors(c_, a.itemsize);
    form.gated |= a.gated;
  }
  return form;
}

/// Returns the cycles to load a vector of lanes; takes the vectors back where there are none.
double Packing::vector_load(const Access& a, size_t o, Form& form) const {
  const double w = m_.vectors(c_, a.itemsize);
  int64_t stride = CostModel::lane_stride(a, c_);
  // Rows one after the other: the window is filled row by row when it holds all of them.
  if (stride < 0 && is_window(o))
    for (int v : c_.lane_axes)
      if (m_.trips(c_, static_cast<size_t>(v)) <= 1 || inside_ >> v & 1) stride = 1;
  if (stride > rates_.shuffle_reach && form.transposes) {
    const int64_t rows = rates_.transposed_rows;
    return m_.transposed_vector(a.itemsize, c_.lanes, rows, false) +
           static_cast<double>(c_.lanes) / static_cast<double>(rows);
  }
  if (stride < 0 || stride > rates_.shuffle_reach) {
    form.vector = false;
    return 0;
  }
  if (stride > 1)
    return a.gate & lane_ ? c_.lanes * rates_.masked_gather : rates_.shuffled_load * static_cast<double>(stride) * w;
  return rates_.load * w;
}

/// Returns the cycles of an element: blocks are transposed in registers, masked rows go one by one.
double Packing::per_element(size_t o, const Form& form) const {
  const Operand& p = m_.operands[o];
  if (form.vector) return (form.each + rates_.pack_store) / c_.lanes;
  if (is_window(o)) {
    if (has_lanes(p) || !form.runs) return rates_.window_element;
    return cover_.usable ? rates_.window_copy + rates_.window_run_start / m_.window_run(o, c_, lane_, inside_)
                         : rates_.window_run;
  }
  if (form.runs && !form.gated) {
    bool tiled = false;  // lanes of what is unrolled
    for (size_t i = 0; i < m_.size.size() && !has_lanes(p); i++)
      tiled |= p.mask >> i & 1 && !m_.is_reduce[i] && c_.tile[i] % 4 == 0;
    return tiled ? rates_.pack_transposed_tile : rates_.pack_transposed;
  }
  if (form.gated && has_lanes(p)) return rates_.pack_masked_element;
  return form.runs ? rates_.pack_masked_run : rates_.pack_element;
}

/// Returns the cycles to bring an access once from memory. Runs that are each on another page are not fetched ahead:
/// less than half as fast, however long they are.
double Packing::waiting(const Access& a) const {
  bool far = elements(a.mask) * a.itemsize > m_.l2;
  for (size_t i = 0; i < m_.size.size() && far; i++)
    if (a.mask >> i & 1 && (m_.is_reduce[i] || lane_ >> i & 1 || c_.tile[i] > 1))
      far = a.step(i) == 1 || a.step(i) * a.itemsize >= MachineRates::kPage;
  return std::max(far ? rates_.far_fill : 1.0, MachineRates::kLine / m_.contiguous_bytes(a, c_, lane_));
}

void Packing::add(size_t o, PackCycles& total) const {
  const Operand& p = m_.operands[o];
  const double times = has_lanes(p) ? 1 : repeats_, share = this->share(o);
  const Form form = this->form(o);
  for (const Access& a : m_.accesses)
    if (a.operand == static_cast<int>(o))
      total.waiting += elements(a.mask) * share * a.itemsize * times / rates_.memory_bandwidth * waiting(a);
  total.filling += elements(p.mask) * share * times * per_element(o, form);
  for (const CostModel::Alu& a : m_.alu) {
    if (a.operand != static_cast<int>(o)) continue;
    const double width = form.vector && a.mask & lane_ ? m_.vectors(c_, a.bytes) / c_.lanes : 1;
    total.filling += elements(a.mask) * share * times * a.cost * rates_.issue * width;
  }
}
}  // namespace

CostModel::PackCycles CostModel::pack_cycles(const Candidate& c, Mask lane) const {
  const Packing packing(*this, c, lane);
  PackCycles total;
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1) packing.add(o, total);
  return total;
}

}  // namespace tg

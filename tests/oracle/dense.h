/// \file The dense evaluator: tensor graphs op by op on host arrays, straight from docs/ir.md. Shares nothing with
/// scheduler, code generation and runtimes but the definition of the scalar ops (uop/eval.h), which has tests of its
/// own.
#pragma once
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/tensor.h"
#include "tinygrad/uop/eval.h"

namespace tg::oracle {

struct DenseArray {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;  ///< row-major, eval_itemsize(dtype) bytes each
  int64_t numel() const { return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()); }
  ConstValue at(int64_t i) const { return load_const(&data[static_cast<size_t>(i) * eval_itemsize(dtype)], dtype); }
  double number(int64_t i) const { return at(i).as_double(); }
  std::vector<double> numbers() const {
    std::vector<double> r;
    for (int64_t i = 0; i < numel(); i++) r.push_back(number(i));
    return r;
  }
};
using Dense = std::shared_ptr<const DenseArray>;

inline std::shared_ptr<DenseArray> dense(DType d, std::vector<int64_t> shape) {
  auto a = std::make_shared<DenseArray>(DenseArray{d, std::move(shape), {}});
  a->data.resize(static_cast<size_t>(a->numel()) * eval_itemsize(d));
  return a;
}

/// out[i] = in[source(coordinates of i)], zero where source gives -1.
template <class F> Dense gathered(const DenseArray& in, std::vector<int64_t> shape, F&& source) {
  auto out = dense(in.dtype, std::move(shape));
  size_t size = eval_itemsize(in.dtype), nd = out->shape.size();
  std::vector<int64_t> at(nd, 0);
  for (int64_t i = 0, n = out->numel(); i < n; i++) {
    int64_t from = source(at);
    if (from >= 0)
      std::memcpy(&out->data[static_cast<size_t>(i) * size], &in.data[static_cast<size_t>(from) * size], size);
    for (size_t a = nd; a-- > 0;) {
      if (++at[a] < out->shape[a]) break;
      at[a] = 0;
    }
  }
  return out;
}
inline std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> s(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) s[i - 1] = s[i] * shape[i];
  return s;
}
inline Dense broadcast(const Dense& in, const std::vector<int64_t>& shape) {
  if (in->shape == shape) return in;
  std::vector<int64_t> st = strides_of(in->shape);
  size_t lead = shape.size() - in->shape.size();
  return gathered(*in, shape, [&](const std::vector<int64_t>& at) {
    int64_t o = 0;
    for (size_t i = 0; i < st.size(); i++)
      if (in->shape[i] != 1) o += at[lead + i] * st[i];
    return o;
  });
}

/// A movement op applied to the value of its source.
inline Dense moved(UOp u, const Dense& x) {
  std::vector<int64_t> st = strides_of(x->shape), shape = shape_of(u).ints();
  switch (u.op()) {
    case Ops::RESHAPE: {
      auto r = std::make_shared<DenseArray>(*x);
      r->shape = shape;
      return r;
    }
    case Ops::EXPAND: return broadcast(x, shape);
    case Ops::PERMUTE: {
      const auto& order = u.arg<std::vector<int64_t>>();
      return gathered(*x, shape, [&](const std::vector<int64_t>& at) {
        int64_t o = 0;
        for (size_t i = 0; i < at.size(); i++) o += at[i] * st[static_cast<size_t>(order[i])];
        return o;
      });
    }
    case Ops::FLIP: {
      const auto& axes = u.arg<std::vector<int64_t>>();
      return gathered(*x, shape, [&](std::vector<int64_t> at) {
        for (int64_t a : axes)
          at[static_cast<size_t>(a)] = shape[static_cast<size_t>(a)] - 1 - at[static_cast<size_t>(a)];
        return std::inner_product(at.begin(), at.end(), st.begin(), int64_t{0});
      });
    }
    default: {  // SHRINK and PAD
      std::vector<int64_t> offset = dims_of(u.src(1)).ints();
      int64_t sign = u.is(Ops::SHRINK) ? 1 : -1;
      return gathered(*x, shape, [&](const std::vector<int64_t>& at) {
        int64_t o = 0;
        for (size_t i = 0; i < at.size(); i++) {
          int64_t k = at[i] + sign * offset[i];
          if (k < 0 || k >= x->shape[i]) return int64_t{-1};
          o += k * st[i];
        }
        return o;
      });
    }
  }
}

inline Dense reduced(UOp u, const DenseArray& x) {
  const ReduceArg& r = u.arg<ReduceArg>();
  auto out = dense(u.dtype(), shape_of(u).ints());
  std::vector<int64_t> st = strides_of(out->shape), at(x.shape.size(), 0);
  for (int32_t a : r.axes) st[static_cast<size_t>(a)] = 0;
  std::vector<ConstValue> acc(static_cast<size_t>(out->numel()));
  std::vector<char> seen(acc.size(), 0);
  bool is_float = u.dtype().is_float();
  for (int64_t i = 0, n = x.numel(); i < n; i++) {
    size_t o = static_cast<size_t>(std::inner_product(at.begin(), at.end(), st.begin(), int64_t{0}));
    ConstValue v = x.at(i);
    // Floats accumulate in double and round once: the order of additions does not matter here.
    if (!seen[o]) {
      acc[o] = v;
      seen[o] = 1;
    } else if (is_float && r.op == Ops::ADD) acc[o].f += v.f;
    else if (is_float && r.op == Ops::MUL) acc[o].f *= v.f;
    else {
      ConstValue both[] = {acc[o], v};
      acc[o] = eval_alu(r.op, u.dtype(), both, u.dtype());
    }
    for (size_t a = at.size(); a-- > 0;) {
      if (++at[a] < x.shape[a]) break;
      at[a] = 0;
    }
  }
  size_t size = eval_itemsize(u.dtype());
  for (size_t o = 0; o < acc.size(); o++)
    store_const(&out->data[o * size], is_float ? eval_cast(acc[o], dtypes::float64, u.dtype()) : acc[o], u.dtype());
  return out;
}

inline Dense elementwise(UOp u, const std::vector<Dense>& in) {
  auto out = dense(u.dtype(), shape_of(u).ints());
  std::vector<Dense> wide;
  std::vector<const void*> data;
  for (const Dense& d : in) {
    wide.push_back(broadcast(d, out->shape));
    data.push_back(wide.back()->data.data());
  }
  EvalLoop loop =
      u.is(Ops::CAST) ? cast_loop(in[0]->dtype, u.dtype()) : alu_loop(u.op(), in[u.is(Ops::WHERE) ? 1 : 0]->dtype);
  if (!loop) throw Error(str("oracle: ", u.op(), " is not defined on ", in[0]->dtype));
  if (out->numel()) loop(out->data.data(), data.data(), static_cast<size_t>(out->numel()));
  return out;
}

/// The value of `root`, a node of the global graph. Under a GraphScope.
inline Dense evaluate(UOp root) {
  std::unordered_map<UOp, Dense> value;
  for (UOp u : root.toposort()) {
    auto in = [&](size_t i) -> const Dense& { return value.at(u.src(i)); };
    Dense v;
    switch (u.op()) {
      case Ops::BUFFER: {
        auto a = dense(u.dtype(), shape_of(u).ints());
        BufferRef b = buffer_table::get(u);
        if (b && b->is_allocated()) b->copy_out(a->data);
        v = a;
        break;
      }
      case Ops::CONST: {
        auto a = dense(u.dtype(), {});
        store_const(a->data.data(), u.const_value(), u.dtype());
        v = a;
        break;
      }
      case Ops::ARANGE: {
        auto a = dense(u.dtype(), shape_of(u).ints());
        for (int64_t i = 0; i < a->numel(); i++)
          store_const(&a->data[static_cast<size_t>(i) * eval_itemsize(u.dtype())], ConstValue(i), u.dtype());
        v = a;
        break;
      }
      case Ops::PARAM:
      case Ops::STORE: continue;  // read where they are used
      case Ops::STACK: {
        auto a = dense(u.dtype(), shape_of(u).ints());
        size_t at = 0;
        for (uint32_t i = 0; i < u.nsrc(); i++) {
          std::memcpy(a->data.data() + at, in(i)->data.data(), in(i)->data.size());
          at += in(i)->data.size();
        }
        v = a;
        break;
      }
      case Ops::RESHAPE:
      case Ops::EXPAND:
      case Ops::PERMUTE:
      case Ops::FLIP:
      case Ops::SHRINK:
      case Ops::PAD: v = moved(u, in(0)); break;
      case Ops::REDUCE: v = reduced(u, *in(0)); break;
      case Ops::CONTIGUOUS:
      case Ops::CONTIGUOUS_BACKWARD:
      case Ops::CUSTOM_GRADIENT:
      case Ops::DETACH:
      case Ops::COPY: v = in(0); break;
      case Ops::BITCAST: {
        auto a = std::make_shared<DenseArray>(*in(0));
        a->dtype = u.dtype();
        v = a;
        break;
      }
      case Ops::INDEX: {
        const DenseArray& x = *in(0);
        std::vector<int64_t> st = strides_of(x.shape), shape = shape_of(u).ints();
        size_t k = u.nsrc() - 1, batch = shape.size() - (x.shape.size() - k);
        std::vector<Dense> idx;
        for (size_t i = 0; i < k; i++)
          idx.push_back(
              broadcast(in(i + 1), std::vector<int64_t>(shape.begin(), shape.begin() + static_cast<long>(batch))));
        std::vector<int64_t> bst =
            strides_of(std::vector<int64_t>(shape.begin(), shape.begin() + static_cast<long>(batch)));
        v = gathered(x, shape, [&](const std::vector<int64_t>& at) {
          int64_t b = std::inner_product(bst.begin(), bst.end(), at.begin(), int64_t{0}), o = 0;
          for (size_t i = 0; i < k; i++) {
            int64_t r = static_cast<int64_t>(idx[i]->at(b).i);
            if (r < 0 || r >= x.shape[i])
              throw Error(str("oracle: index ", r, " is out of bounds for axis ", i, " of ",
                              Shape(std::span<const int64_t>(x.shape))));
            o += r * st[i];
          }
          for (size_t i = k; i < x.shape.size(); i++) o += at[batch + i - k] * st[i];
          return o;
        });
        break;
      }
      case Ops::AFTER: {
        if (u.src(0).is(Ops::PARAM)) {
          v = value.at(u.src(1).src(1));
          break;
        }
        v = in(0);
        for (uint32_t e = 1; e < u.nsrc(); e++) {
          if (!u.src(e).is(Ops::STORE)) throw Error(str("oracle: effect ", u.src(e)));
          // Where each element of the destination view lies, found by viewing the positions.
          std::vector<UOp> chain;
          for (UOp d = u.src(e).src(0); d != u.src(0); d = d.src(0)) chain.push_back(d);
          auto place = dense(dtypes::int64, v->shape);
          for (int64_t i = 0; i < place->numel(); i++)
            store_const(&place->data[static_cast<size_t>(i) * 8], ConstValue(i), dtypes::int64);
          Dense p = place;
          for (size_t i = chain.size(); i-- > 0;) p = moved(chain[i], p);
          auto a = std::make_shared<DenseArray>(*v);
          const Dense& w = value.at(u.src(e).src(1));
          size_t size = eval_itemsize(a->dtype);
          for (int64_t i = 0; i < w->numel(); i++)
            std::memcpy(&a->data[static_cast<size_t>(p->at(i).i) * size], &w->data[static_cast<size_t>(i) * size],
                        size);
          v = a;
        }
        break;
      }
      default:
        if (!u.in(groups::kElementwise)) throw Error(str("oracle: no rule for ", u));
        std::vector<Dense> src;
        for (UOp s : u.srcs()) src.push_back(value.at(s));
        v = elementwise(u, src);
    }
    value[u] = std::move(v);
  }
  return value.at(root);
}
inline Dense evaluate(const Tensor& t) {
  GraphScope g;
  return evaluate(inline_functions(t.uop()));
}

}  // namespace tg::oracle

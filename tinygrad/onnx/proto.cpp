/// \file The parts of an ONNX file that are used, as plain structs.
#include "tinygrad/onnx/proto.h"

#include <bit>
#include <cstring>
#include <protozero/pbf_reader.hpp>

#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/onnx/external_data.h"
#include "tinygrad/onnx/tensor_data.h"

namespace tg::onnx {
namespace {

using Wire = protozero::pbf_wire_type;

std::string quoted(std::string_view s) { return str("\"", s.substr(0, 80), s.size() > 80 ? "..." : "", "\""); }

/// Counts what parsing allocates: a file of n bytes may take 64 n and 64 MB, one beside it 16 n.
class Budget {
 public:
  explicit Budget(size_t bytes) : left_(bytes * 64 + (size_t{64} << 20)) {}
  void take(size_t bytes) {
    TG_CHECK(FormatError, bytes <= left_, "got more entries than a file of this size can have");
    left_ -= bytes;
  }
  /// Adds what a file beside the model pays for: it may be widened, but not again and again.
  void add_file(size_t bytes) { left_ += bytes * 16; }

 private:
  size_t left_;
};

/// What all messages of a file are parsed with.
struct Source {
  HostBytes bytes;
  ExternalData external;
  Budget budget;

  /// Sets the elements of a tensor that lie in a file beside the model.
  void read_external(TensorProto& t, const TensorFields& from) {
    const ExternalData::Part part = external.part(from.external);
    budget.add_file(part.new_bytes);
    if (t.type != ElemType::kString && !is_stored_raw(t.type))
      budget.take(static_cast<size_t>(t.count()) * static_cast<size_t>(number_dtype(t.type).itemsize()));
    TensorFields fields;
    fields.raw = part.bytes;
    decode_tensor(t, fields, part.owner);
  }
};

/// Runs `body`; an error in it begins with the place that `where` returns.
template <class W, class F> auto within(W&& where, F&& body) {
  try {
    return body();
  } catch (const FormatError& e) { throw FormatError(printable(str(where(), ": ", e.what()))); }
}

/// One message: fields with their wire types checked.
class Message {
 public:
  Message(protozero::pbf_reader reader, Source& source) : reader_(reader), source_(source) {}
  bool next() { return reader_.next(); }
  uint32_t tag() const { return reader_.tag(); }
  void skip() { reader_.skip(); }
  Source& source() const { return source_; }

  Message message() { return {protozero::pbf_reader(delimited()), source_}; }
  /// A name or another short text.
  std::string_view text() {
    const std::string_view v = blob();
    TG_CHECK(FormatError, v.size() <= kMaxName, "got a name of ", v.size(), " bytes, expected at most ", kMaxName);
    return v;
  }
  std::string_view blob() {
    const protozero::data_view v = delimited();
    return {v.data(), v.size()};
  }
  int64_t integer() {
    expect(Wire::varint);
    return reader_.get_int64();
  }
  float number() {
    expect(Wire::fixed32);
    return reader_.get_float();
  }
  template <class T> void integers(std::vector<T>& out) {
    repeated(out, Wire::varint, &Reader::get_int64, &Reader::get_packed_int64);
  }
  void floats(std::vector<float>& out) { repeated(out, Wire::fixed32, &Reader::get_float, &Reader::get_packed_float); }
  void doubles(std::vector<double>& out) {
    repeated(out, Wire::fixed64, &Reader::get_double, &Reader::get_packed_double);
  }
  /// Appends an entry of a repeated field and pays for it.
  template <class T> T& push(std::vector<T>& out, T v) {
    source_.budget.take(sizeof(T));
    return out.emplace_back(std::move(v));
  }

 private:
  using Reader = protozero::pbf_reader;
  /// Appends one value, or the packed values, of a repeated field.
  template <class T, class One, class All> void repeated(std::vector<T>& out, Wire type, One one, All all) {
    if (reader_.wire_type() == type) {
      push(out, static_cast<T>((reader_.*one)()));
      return;
    }
    expect(Wire::length_delimited);
    for (const auto v : (reader_.*all)()) push(out, static_cast<T>(v));
  }
  void expect(Wire type) const {
    TG_CHECK(FormatError, reader_.wire_type() == type, "field ", reader_.tag(), " has wire type ",
             static_cast<uint32_t>(reader_.wire_type()), ", expected ", static_cast<uint32_t>(type));
  }
  protozero::data_view delimited() {
    expect(Wire::length_delimited);
    return reader_.get_view();
  }

  protozero::pbf_reader reader_;
  Source& source_;
};

void check_depth(int depth) {
  TG_CHECK(FormatError, depth < kMaxDepth, "got more than ", kMaxDepth, " levels of graphs or types");
}

Dimension parse_dimension(Message m) {
  Dimension d;
  while (m.next()) {
    if (m.tag() == 1) d.value = m.integer();
    else if (m.tag() == 2) d.name = m.text();
    else m.skip();
  }
  // How some exporters write a size that is not known.
  if (d.value && *d.value < 0) d.value.reset();
  if (d.name == "?") d.name = "";
  return d;
}

/// Reads the element type and the sizes of a tensor type.
void parse_tensor_type(Message m, TypeInfo& t) {
  while (m.next()) {
    if (m.tag() == 1) t.elem = static_cast<ElemType>(m.integer());
    else if (m.tag() == 2) {
      Message shape = m.message();
      std::vector<Dimension>& dims = t.shape.emplace();
      while (shape.next()) {
        if (shape.tag() == 1) shape.push(dims, parse_dimension(shape.message()));
        else shape.skip();
      }
      TG_CHECK(FormatError, dims.size() <= kMaxAxes, "got a type of ", dims.size(), " axes, expected at most ",
               kMaxAxes);
    } else m.skip();
  }
}

TypeInfo parse_type(Message m, int depth);

/// Reads the type in field `tag` of a sequence, optional or map, and the type of a map's keys.
std::shared_ptr<const TypeInfo> parse_inner_type(Message m, uint32_t tag, int depth, ElemType& keys) {
  auto out = std::make_shared<TypeInfo>();
  while (m.next()) {
    if (m.tag() == tag) *out = parse_type(m.message(), depth + 1);
    else if (m.tag() == 1) keys = static_cast<ElemType>(m.integer());
    else m.skip();
  }
  return out;
}

TypeInfo parse_type(Message m, int depth) {
  check_depth(depth);
  m.source().budget.take(sizeof(TypeInfo));
  TypeInfo t;
  while (m.next()) {
    const auto inner = [&](TypeInfo::Kind kind, uint32_t tag) {
      t.kind = kind;
      t.inner = parse_inner_type(m.message(), tag, depth, t.elem);
    };
    switch (m.tag()) {
      case 1:
        t.kind = TypeInfo::kTensor;
        parse_tensor_type(m.message(), t);
        break;
      case 4: inner(TypeInfo::kSequence, 1); break;
      case 5: inner(TypeInfo::kMap, 2); break;
      case 8:
        t.kind = TypeInfo::kSparse;
        parse_tensor_type(m.message(), t);
        break;
      case 9: inner(TypeInfo::kOptional, 1); break;
      default: m.skip();
    }
  }
  return t;
}

ValueInfo parse_value_info(Message m) {
  ValueInfo v;
  while (m.next()) {
    if (m.tag() == 1) v.name = m.text();
    else if (m.tag() == 2) v.type = parse_type(m.message(), 0);
    else m.skip();
  }
  return v;
}

std::pair<std::string_view, std::string_view> parse_entry(Message m) {
  std::pair<std::string_view, std::string_view> e;
  while (m.next()) {
    if (m.tag() == 1) e.first = m.text();
    else if (m.tag() == 2) e.second = m.blob();
    else m.skip();
  }
  return e;
}

/// Reads the fields of a tensor as they are stored.
TensorFields read_tensor_fields(Message& m, TensorProto& t) {
  TensorFields f;
  while (m.next()) {
    switch (m.tag()) {
      case 1: m.integers(t.dims); break;
      case 2: t.type = static_cast<ElemType>(m.integer()); break;
      case 4: m.floats(f.floats); break;
      case 5:
      case 7:
      case 11: m.integers(f.ints); break;
      case 6: m.push(t.strings, m.blob()); break;
      case 8: t.name = m.text(); break;
      case 9: f.raw = m.blob(); break;
      case 10: m.doubles(f.doubles); break;
      case 13: f.external.push_back(parse_entry(m.message())); break;
      case 14: f.outside = m.integer() == 1; break;
      default: m.skip();
    }
  }
  return f;
}

TensorProto parse_tensor(Message m) {
  TensorProto t;
  const TensorFields fields = read_tensor_fields(m, t);
  within([&] { return str("tensor ", quoted(t.name)); },
         [&] {
           if (t.dims.size() > kMaxAxes)
             throw FormatError(str("got ", t.dims.size(), " axes, expected at most ", kMaxAxes));
           for (const int64_t d : t.dims) TG_CHECK(FormatError, d >= 0, "dims has a negative size ", d);
           if (fields.outside) {
             m.source().read_external(t, fields);
           } else {
             m.source().budget.take(fields.raw ? 0 : fields.values() * 8);
             decode_tensor(t, fields, m.source().bytes.owner);
           }
         });
  return t;
}

GraphProto parse_graph(Message m, int depth);

Attribute::Type attribute_type(int64_t number) {
  constexpr Attribute::Type kTypes[] = {
      Attribute::kUnknown, Attribute::kFloat,  Attribute::kInt,     Attribute::kString,  Attribute::kTensor,
      Attribute::kGraph,   Attribute::kFloats, Attribute::kInts,    Attribute::kStrings, Attribute::kTensors,
      Attribute::kGraphs,  Attribute::kSparse, Attribute::kSparses, Attribute::kType,    Attribute::kTypes};
  return number >= 0 && number < static_cast<int64_t>(std::size(kTypes)) ? kTypes[number] : Attribute::kUnknown;
}

/// Returns the type of an attribute that does not say it, as files of the first versions do.
Attribute::Type guessed_type(const Attribute& a) {
  if (a.tensor) return Attribute::kTensor;
  if (a.graph) return Attribute::kGraph;
  if (!a.floats.empty()) return Attribute::kFloats;
  if (!a.ints.empty()) return Attribute::kInts;
  if (!a.strings.empty()) return Attribute::kStrings;
  if (!a.s.empty()) return Attribute::kString;
  if (a.f != 0) return Attribute::kFloat;
  return a.i != 0 ? Attribute::kInt : Attribute::kUnknown;
}

Attribute parse_attribute(Message m, int depth) {
  Attribute a;
  within([&] { return str("attribute ", quoted(a.name)); },
         [&] {
           while (m.next()) {
             switch (m.tag()) {
               case 1: a.name = m.text(); break;
               case 2: a.f = m.number(); break;
               case 3: a.i = m.integer(); break;
               case 4: a.s = m.blob(); break;
               case 5: a.tensor = std::make_shared<TensorProto>(parse_tensor(m.message())); break;
               case 6: a.graph = std::make_shared<GraphProto>(parse_graph(m.message(), depth + 1)); break;
               case 7: m.floats(a.floats); break;
               case 8: m.integers(a.ints); break;
               case 9: m.push(a.strings, m.blob()); break;
               case 14: a.value_type = std::make_shared<TypeInfo>(parse_type(m.message(), 0)); break;
               case 20: a.type = attribute_type(m.integer()); break;
               case 21: a.reference = m.text(); break;
               default: m.skip();
             }
           }
         });
  if (a.type == Attribute::kUnknown) a.type = guessed_type(a);
  return a;
}

Node parse_node(Message m, size_t number, int depth) {
  Node n;
  within([&] { return str("node ", number, " (", n.op.substr(0, 64), " ", quoted(n.name), ")"); },
         [&] {
           while (m.next()) {
             switch (m.tag()) {
               case 1: m.push(n.inputs, m.text()); break;
               case 2: m.push(n.outputs, m.text()); break;
               case 3: n.name = m.text(); break;
               case 4: n.op = m.text(); break;
               case 5: m.push(n.attributes, parse_attribute(m.message(), depth)); break;
               case 7: n.domain = m.text(); break;
               case 8: n.overload = m.text(); break;
               default: m.skip();
             }
           }
           TG_CHECK(FormatError, !n.op.empty(), "got no op_type");
         });
  if (n.domain == "ai.onnx") n.domain = "";
  return n;
}

GraphProto parse_graph(Message m, int depth) {
  check_depth(depth);
  GraphProto g;
  while (m.next()) {
    switch (m.tag()) {
      case 1: m.push(g.nodes, parse_node(m.message(), g.nodes.size(), depth)); break;
      case 2: g.name = m.text(); break;
      case 5: m.push(g.initializers, parse_tensor(m.message())); break;
      case 11: m.push(g.inputs, parse_value_info(m.message())); break;
      case 12: m.push(g.outputs, parse_value_info(m.message())); break;
      case 15: throw FormatError("got a sparse_initializer, expected initializers that are dense");
      default: m.skip();
    }
  }
  return g;
}

void parse_opset(Message m, OpsetImports& out) {
  std::string_view domain;
  int64_t version = 1;
  while (m.next()) {
    if (m.tag() == 1) domain = m.text();
    else if (m.tag() == 2) version = m.integer();
    else m.skip();
  }
  out.emplace_back(domain == "ai.onnx" ? "" : domain, version);
}

FunctionProto parse_function(Message m) {
  FunctionProto f;
  within([&] { return str("function ", quoted(f.name)); },
         [&] {
           while (m.next()) {
             switch (m.tag()) {
               case 1: f.name = m.text(); break;
               case 4: m.push(f.inputs, m.text()); break;
               case 5: m.push(f.outputs, m.text()); break;
               case 6: m.push(f.attributes, m.text()); break;
               case 7: m.push(f.nodes, parse_node(m.message(), f.nodes.size(), 0)); break;
               case 9: parse_opset(m.message(), f.opsets); break;
               case 10: f.domain = m.text(); break;
               case 11: m.push(f.defaults, parse_attribute(m.message(), 0)); break;
               case 13: f.overload = m.text(); break;
               default: m.skip();
             }
           }
         });
  if (f.domain == "ai.onnx") f.domain = "";
  return f;
}

void parse_model_fields(Message m, ModelProto& model) {
  bool has_graph = false;
  while (m.next()) {
    switch (m.tag()) {
      case 1: model.ir_version = m.integer(); break;
      case 2: model.producer = m.text(); break;
      case 3: model.producer_version = m.text(); break;
      case 4: model.domain = m.text(); break;
      case 5: model.model_version = m.integer(); break;
      case 6: model.doc = m.blob(); break;
      case 7:
        model.graph = parse_graph(m.message(), 0);
        has_graph = true;
        break;
      case 8: parse_opset(m.message(), model.opsets); break;
      case 14: m.push(model.metadata, parse_entry(m.message())); break;
      case 25: m.push(model.functions, parse_function(m.message())); break;
      default: m.skip();
    }
  }
  TG_CHECK(FormatError, has_graph, "got no graph: this is no ONNX model");
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out(text);
  const bool readable = is_utf8(text);
  for (size_t i = 0; i < out.size(); i++) {
    const auto byte = static_cast<unsigned char>(out[i]);
    const bool c1 = byte == 0xc2 && i + 1 < out.size() && static_cast<unsigned char>(out[i + 1]) < 0xa0;
    if (byte == '\n') out[i] = ' ';
    else if (byte < 32 || byte == 127 || (byte > 127 && !readable)) out[i] = '?';
    else if (c1) out.replace(i, 2, "?");
  }
  return out;
}

ModelProto parse_model(HostBytes bytes, const std::string& what, const std::filesystem::path& folder) {
  ModelProto model;
  model.bytes = bytes;
  model.what = what;
  return within([&] { return str("[onnx] ", what); },
                [&] {
                  Source source{bytes, ExternalData(folder), Budget(bytes.bytes.size())};
                  const protozero::pbf_reader reader(reinterpret_cast<const char*>(bytes.bytes.data()),
                                                     bytes.bytes.size());
                  try {
                    parse_model_fields(Message(reader, source), model);
                  } catch (const protozero::exception& e) {
                    throw FormatError(str("this is no ONNX model, or a damaged one: ", e.what()));
                  }
                  return std::move(model);
                });
}

}  // namespace tg::onnx

/// \file The parts of an ONNX file that are used, as plain structs (format: https://github.com/onnx/onnx, onnx.proto).
/// Nothing in a file is trusted.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinygrad/base/dtype.h"
#include "tinygrad/base/host_bytes.h"

namespace tg::onnx {

/// Element types by the numbers that files have.
enum class ElemType : int32_t {
  kUndefined,
  kFloat,
  kUInt8,
  kInt8,
  kUInt16,
  kInt16,
  kInt32,
  kInt64,
  kString,
  kBool,
  kFloat16,
  kDouble,
  kUInt32,
  kUInt64,
  kComplex64,
  kComplex128,
  kBFloat16,
  kFloat8E4M3FN,
  kFloat8E4M3FNUZ,
  kFloat8E5M2,
  kFloat8E5M2FNUZ,
  kUInt4,
  kInt4,
  kFloat4E2M1,
  kFloat8E8M0,
  kUInt2,
  kInt2,
  kCount
};
/// Returns the name in onnx.proto, "FLOAT"; "type 99" for a number without one.
std::string elem_name(ElemType t);
/// Returns the type tensors store elements in. Narrow types that this library lacks are stored wider: 4 and 2-bit
/// integers in 8 bits, FLOAT4E2M1 and FLOAT8E8M0 in float32. Nothing for texts, complex and unknown types.
std::optional<DType> storage_dtype(ElemType t);
/// The same of a type that must be one of numbers; FormatError for others.
DType number_dtype(ElemType t);
/// Returns the element type that tensors of `d` have in a file. DTypeError for weak types and void.
ElemType elem_type_of(DType d);
/// Returns the bits of one element where several share a byte, else 0.
int packed_bits(ElemType t);

/// A constant of the file. Elements are the bytes of the file itself where they are stored as such.
struct TensorProto {
  std::string_view name;
  ElemType type = ElemType::kUndefined;
  std::vector<int64_t> dims;
  HostBytes bytes;                        ///< elements of storage_dtype(type), row-major
  std::vector<std::string_view> strings;  ///< those of a text tensor
  int64_t count() const;                  ///< product of the dims
};

/// A size of an input: a number, a name, or neither.
struct Dimension {
  std::optional<int64_t> value;
  std::string_view name;
};
/// What is said of the type of a value. Sequences and optionals have one element type; `elem` of a map is that of its
/// keys.
struct TypeInfo {
  enum Kind : uint8_t { kNone, kTensor, kSequence, kOptional, kMap, kSparse, kOpaque } kind = kNone;
  ElemType elem = ElemType::kUndefined;
  std::optional<std::vector<Dimension>> shape;  ///< none: of any number of axes
  std::shared_ptr<const TypeInfo> inner;        ///< of kSequence, kOptional and the values of kMap
};
struct ValueInfo {
  std::string_view name;
  TypeInfo type;
};

struct GraphProto;
struct Attribute {
  enum Type : uint8_t {
    kUnknown,
    kFloat,
    kInt,
    kString,
    kTensor,
    kGraph,
    kFloats,
    kInts,
    kStrings,
    kTensors,
    kGraphs,
    kSparse,
    kSparses,
    kType,
    kTypes
  };
  std::string_view name;
  std::string_view reference;  ///< attribute of the enclosing function that gives the value
  Type type = kUnknown;
  float f = 0;
  int64_t i = 0;
  std::string_view s;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> strings;
  std::shared_ptr<const TensorProto> tensor;
  std::shared_ptr<const GraphProto> graph;
  std::shared_ptr<const TypeInfo> value_type;
};

struct Node {
  std::string_view name, op, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<Attribute> attributes;
};

struct GraphProto {
  std::string_view name;
  std::vector<Node> nodes;
  std::vector<TensorProto> initializers;
  std::vector<ValueInfo> inputs, outputs;
};

/// The version of the operators of each domain, "" for the default one.
using OpsetImports = std::vector<std::pair<std::string_view, int64_t>>;

/// A composed operator that the file defines.
struct FunctionProto {
  std::string_view name, domain, overload;
  std::vector<std::string_view> inputs, outputs, attributes;
  std::vector<Attribute> defaults;  ///< attributes with a value
  std::vector<Node> nodes;
  OpsetImports opsets;
};

struct ModelProto {
  int64_t ir_version = 0, model_version = 0;
  std::string_view producer, producer_version, domain, doc;
  OpsetImports opsets;
  GraphProto graph;
  std::vector<FunctionProto> functions;
  std::vector<std::pair<std::string_view, std::string_view>> metadata;
  HostBytes bytes;   ///< of the file: what the views point into
  std::string what;  ///< the file, for messages
};

/// Returns a text of a file for messages: bytes that are no UTF-8, and control characters, are question marks; the end
/// of a line is a space.
std::string printable(std::string_view text);

/// Most levels of graphs inside of graphs and of types inside of types, and most axes of a tensor.
inline constexpr int kMaxDepth = 24;
inline constexpr size_t kMaxAxes = 64;
/// Longest name accepted, in bytes.
inline constexpr size_t kMaxName = 1 << 16;

/// Parses a model. `folder` is where data outside of the file may lie: in it alone, as plain files; empty: nowhere.
/// FormatError that begins with "[onnx] `what`" and names node and field for bytes that are no such model, that nest
/// too deeply, or whose data are not where they should be.
ModelProto parse_model(HostBytes bytes, const std::string& what, const std::filesystem::path& folder = {});

}  // namespace tg::onnx

/// \file Inputs of models: pictures, sound, arrays, texts, numbers, random values.
#include "apps/tg/model_inputs.h"

#include <algorithm>
#include <charconv>

#include "apps/tg/usage_error.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/picture.h"
#include "tinygrad/io/sound.h"
#include "tinygrad/nn/npy_file.h"

namespace tg::app {
namespace {

constexpr int64_t kOpen = -1;

/// One input while its value is made.
class InputMaker {
 public:
  InputMaker(const onnx::ValueInfo& info, const InputOptions& o) : info_(info), o_(o), elem_(info.type.elem) {
    TG_CHECK(app::UsageError, info.type.kind == onnx::TypeInfo::kTensor, "[run] input ", onnx::printable(info.name),
             " is no tensor: such models run from C++ and Python");
    if (const auto said = o.shapes.find(std::string(info.name)); said != o.shapes.end()) sizes_ = said->second;
    else if (info.type.shape)
      for (const onnx::Dimension& d : *info.type.shape) sizes_.push_back(size_of(d));
  }

  MadeInput make(const std::string& said) {
    const std::string name(info_.name);
    if (said.empty() || said == "random") return {name, random(), "random"};
    if (said == "zeros" || said == "ones") return {name, filled(said == "ones"), said};
    if (std::filesystem::exists(said)) return {name, of_file(said), made_};
    if (elem_ == onnx::ElemType::kString) return {name, texts({said}), "text"};
    return {name, of_numbers(said), said};
  }

 private:
  int64_t size_of(const onnx::Dimension& d) const {
    if (d.value && *d.value > 0) return *d.value;
    const auto at = o_.sizes.find(std::string(d.name));
    return at == o_.sizes.end() ? kOpen : at->second;
  }

  bool is_planes() const { return sizes_.size() == 4 && (sizes_[1] == 1 || sizes_[1] == 3); }
  bool is_pixels() const { return sizes_.size() == 4 && !is_planes() && (sizes_[3] == 1 || sizes_[3] == 3); }

  /// Whether an open size has a name that is not a batch's.
  bool is_long(size_t i) const {
    const std::string_view name = info_.type.shape && i < info_.type.shape->size() ? (*info_.type.shape)[i].name : "";
    return !name.empty() && i > 0 && name.find("batch") == std::string_view::npos;
  }

  /// The sizes, with a choice for those that the file leaves open.
  Shape chosen() const {
    Shape out;
    for (size_t i = 0; i < sizes_.size(); i++) {
      const bool picture = (is_planes() && i >= 2) || (is_pixels() && (i == 1 || i == 2));
      out.push_back(sizes_[i] != kOpen ? sizes_[i] : picture ? 224 : is_long(i) ? 16 : 1);
    }
    return out;
  }

  DType dtype() const {
    const std::optional<DType> d = onnx::storage_dtype(elem_);
    TG_CHECK(app::UsageError, d, "[run] input ", onnx::printable(info_.name), " is ", onnx::elem_name(elem_),
             ", which no tensor has");
    return *d;
  }
  bool dtype_is_byte() const { return elem_ == onnx::ElemType::kUInt8 || elem_ == onnx::ElemType::kInt8; }
  onnx::Value typed(const Tensor& t) const { return onnx::Value(t.cast(dtype()).contiguous().realize(), elem_); }

  onnx::Value random() const {
    if (elem_ == onnx::ElemType::kString) return texts({"a text"});
    const DType d = dtype();
    if (d.is_float()) return typed(Tensor::rand(chosen()));
    // Numbers that are likely to be valid: tokens, masks and types.
    const bool mask = info_.name.find("mask") != std::string_view::npos || d == dtypes::bool_;
    const bool type = info_.name.find("type") != std::string_view::npos;
    if (mask || type) return filled(mask);
    return typed(Tensor::randint(chosen(), {.low = 0, .high = d.itemsize() == 1 ? 128 : 32}));
  }
  onnx::Value filled(bool ones) const { return typed(Tensor::full(chosen(), ones ? 1 : 0)); }

  onnx::Value texts(std::vector<std::string> values) const {
    std::vector<int64_t> shape;
    for (size_t i = 0; i < sizes_.size(); i++) shape.push_back(i == 0 ? static_cast<int64_t>(values.size()) : 1);
    return onnx::StringArray::of(std::move(shape), std::move(values));
  }

  onnx::Value of_numbers(const std::string& said) const {
    std::vector<double> values;
    for (const char *at = said.c_str(), *end = at + said.size(); at < end;) {
      double v = 0;
      const auto [next, error] = std::from_chars(at, end, v);
      TG_CHECK(app::UsageError, error == std::errc() && (next == end || *next == ','), "[run] got \"", said,
               "\" for input ", onnx::printable(info_.name),
               ", expected a file, random, zeros, ones, or numbers with commas between");
      values.push_back(v);
      at = next + 1;
    }
    const Tensor t = Tensor::from(values);
    if (sizes_.empty() && values.size() == 1) return typed(t.reshape(Shape{}));
    return typed(fitted(t));
  }

  /// A row in the shape of the input: one open size is as large as the row needs.
  Tensor fitted(const Tensor& row) const {
    const int64_t n = row.numel();
    if (!info_.type.shape) return row;
    Shape out;
    int64_t known = 1, open = 0;
    for (size_t i = sizes_.size(); i-- > 0;) {
      if (sizes_[i] == kOpen) open++;
      else known *= sizes_[i];
    }
    for (size_t i = sizes_.size(), filled = 0; i-- > 0;) {
      const bool takes_all = sizes_[i] == kOpen && filled == 0 && known > 0 && n % known == 0;
      filled += takes_all;
      out.insert(out.begin(), sizes_[i] != kOpen ? sizes_[i] : takes_all ? n / known : 1);
    }
    TG_CHECK(ShapeError, out.numel() == n, "[run] got ", n, " values for input ", onnx::printable(info_.name),
             ", which is ", describe(info_));
    return row.reshape(out);
  }

  onnx::Value of_file(const std::string& path) {
    made_ = path;
    const io::MappedFile file = io::map_file(path, "run");
    if (path.ends_with(".npy")) return typed(nn::npy_load(path));
    const bool decodes_itself = dtype_is_byte() && info_.type.shape && sizes_.size() <= 1;
    if (!decodes_itself && !io::image_kind(file.bytes).empty()) return of_picture(path);
    if (!decodes_itself && io::is_sound(file.bytes)) return of_sound(file.bytes, path);
    const std::string text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
    if (elem_ == onnx::ElemType::kString) return texts({text});
    const Tensor bytes = Tensor::from(std::vector<uint8_t>(file.bytes.begin(), file.bytes.end()));
    const auto size = static_cast<size_t>(chosen().numel());
    TG_CHECK(app::UsageError, dtype().itemsize() == 1 || file.bytes.size() == size, "[run] ", path,
             " is no .npy file, "
             "picture or sound, and input ",
             onnx::printable(info_.name), " is ", describe(info_), ", which takes no bytes");
    return typed(fitted(bytes));
  }

  onnx::Value of_picture(const std::string& path) {
    TG_CHECK(app::UsageError, is_planes() || is_pixels() || sizes_.size() == 4, "[run] ", path,
             " is a picture, and input ", onnx::printable(info_.name), " is ", describe(info_), ", which takes none");
    const size_t channel = is_pixels() ? 3 : 1, first = is_pixels() ? 1 : 2;
    Tensor x = load_picture(path, sizes_[channel] == 1 ? 1 : 3);
    const int64_t height = sizes_[first] == kOpen ? x.shape(2) : sizes_[first];
    const int64_t width = sizes_[first + 1] == kOpen ? x.shape(3) : sizes_[first + 1];
    made_ = str(path, ", ", x.shape(3), " x ", x.shape(2));
    if (height != x.shape(2) || width != x.shape(3)) {
      made_ += str(", resized to ", width, " x ", height);
      x = resized(x, height, width);
    }
    if (onnx::storage_dtype(elem_).value_or(dtypes::float32).is_float()) x = normalized(x, o_.picture);
    else x = (o_.picture.bgr ? x.flip(1) : x).cast(dtypes::float32).round();
    if (is_pixels()) x = x.permute({0, 2, 3, 1});
    if (sizes_[0] > 1) x = x.expand(Shape{sizes_[0], x.shape(1), x.shape(2), x.shape(3)});
    return typed(x);
  }

  onnx::Value of_sound(std::span<const uint8_t> bytes, const std::string& path) {
    const io::Sound sound = io::decode_sound(bytes, str("[run] ", path));
    std::vector<float> samples = io::mono(sound, o_.rate);
    made_ = str(path, ", ", samples.size(), " samples at ", o_.rate, " Hz");
    // A model of fixed length takes the beginning, or silence behind the end.
    const bool open = std::ranges::find(sizes_, kOpen) != sizes_.end() || !info_.type.shape;
    if (!open && chosen().numel() != static_cast<int64_t>(samples.size())) {
      samples.resize(static_cast<size_t>(chosen().numel()));
      made_ += str(", of which ", samples.size(), " are taken");
    }
    return typed(fitted(Tensor::from(samples)));
  }

  const onnx::ValueInfo& info_;
  const InputOptions& o_;
  onnx::ElemType elem_;
  std::vector<int64_t> sizes_;
  std::string made_;
};

/// Throws a UsageError for a size of something that no input has.
void check_sizes(const onnx::Model& model, const InputOptions& options) {
  std::string known;
  const auto is_known = [&](const std::string& name) {
    for (const onnx::ValueInfo& info : model.inputs()) {
      if (info.name == name) return true;
      known += str(known.empty() ? "" : ", ", onnx::printable(info.name));
      if (!info.type.shape) continue;
      for (const onnx::Dimension& d : *info.type.shape) {
        if (!d.name.empty() && d.name == name) return true;
        if (!d.name.empty()) known += str(", ", onnx::printable(d.name));
      }
    }
    return false;
  };
  for (const auto& [name, sizes] : options.shapes)
    TG_CHECK(app::UsageError, is_known(name), "[run] got a size of ", name, ", expected one of: ", known);
}

}  // namespace

std::string describe(const onnx::ValueInfo& info) {
  const onnx::TypeInfo* t = &info.type;
  std::string kind;
  for (; t->inner; t = t->inner.get()) kind += t->kind == onnx::TypeInfo::kOptional ? "optional " : "sequence of ";
  const std::optional<DType> d = onnx::storage_dtype(t->elem);
  std::string out = kind + (t->elem == onnx::ElemType::kString ? "text"
                            : d                                ? std::string(d->name())
                                                               : elem_name(t->elem));
  if (!t->shape) return out + " (any shape)";
  out += " (";
  for (const onnx::Dimension& size : *t->shape) {
    if (out.back() != '(') out += ", ";
    out += size.value && *size.value > 0 ? str(*size.value) : size.name.empty() ? "?" : onnx::printable(size.name);
  }
  return out + ")";
}

std::vector<MadeInput> make_inputs(const onnx::Model& model, const InputOptions& options) {
  std::string known;
  for (const onnx::ValueInfo& info : model.inputs())
    known += str(known.empty() ? "" : ", ", onnx::printable(info.name));
  for (const auto& [name, said] : options.given)
    TG_CHECK(app::UsageError,
             std::ranges::any_of(model.inputs(), [&](const onnx::ValueInfo& i) { return i.name == name; }),
             "[run] got input ", name, ", expected one of: ", known.empty() ? "(the model has none)" : known);
  check_sizes(model, options);
  Tensor::manual_seed(static_cast<uint64_t>(options.seed));
  std::vector<MadeInput> out;
  for (const onnx::ValueInfo& info : model.inputs()) {
    const auto said = options.given.find(std::string(info.name));
    out.push_back(InputMaker(info, options).make(said == options.given.end() ? "" : said->second));
  }
  return out;
}

}  // namespace tg::app

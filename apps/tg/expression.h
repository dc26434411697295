/// \file Tensor expressions as text: `x = rand(64, 64); (x @ x.T).softmax(-1)`, in Python's spelling of the methods.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::app {

/// What an expression or a part of it is: None, a tensor, a literal, a list.
struct ExpressionValue {
  std::variant<std::monostate, Tensor, Scalar, std::string, std::vector<ExpressionValue>> what;
};

/// The arguments of one call, read by position or by name.
class CallArguments {
 public:
  CallArguments(std::string function, std::vector<ExpressionValue> by_position,
                std::map<std::string, ExpressionValue> by_name)
      : function_(std::move(function)), by_position_(std::move(by_position)), by_name_(std::move(by_name)) {}

  // Each returns argument `place`, or the one of that name, else what is given instead. ValueError for one of another
  // kind.
  Tensor tensor(size_t place, const char* name);  ///< ValueError where it is missing
  Tensor tensor_or_none(size_t place, const char* name);
  double number(size_t place, const char* name, double otherwise);
  int64_t integer(size_t place, const char* name, int64_t otherwise);
  bool flag(size_t place, const char* name, bool otherwise);
  std::string text(size_t place, const char* name, const std::string& otherwise);
  Scalar scalar(size_t place, const char* name);  ///< ValueError where it is missing
  /// A list, one integer, or all arguments from `place` on.
  std::vector<int64_t> integers(size_t place, const char* name);
  Tensors tensors(size_t place, const char* name);
  Ints sizes(size_t place, const char* name, const Ints& otherwise);
  Axes axes(size_t place, const char* name, const Axes& otherwise);
  std::optional<DType> dtype(size_t place, const char* name);

  /// ValueError for arguments that nothing has asked for.
  void check_all_used() const;

 private:
  const ExpressionValue* find(size_t place, const char* name);
  [[noreturn]] void wrong(const char* name, const char* expected) const;
  std::string function_;
  std::vector<ExpressionValue> by_position_;
  std::map<std::string, ExpressionValue> by_name_;
  size_t used_ = 0;
  std::set<std::string> used_names_;
};

/// Evaluates statements separated by ';': `name = expression`, the last one an expression, whose tensor is returned.
/// Random values are computed at once, as inputs are. ValueError says where the text is not understood, and what was
/// expected there.
Tensor evaluate(std::string_view text);

/// Calls a method of a tensor, or a function that makes one, by its name in Python. ValueError for an unknown one.
Tensor call_method(const Tensor& x, const std::string& name, CallArguments& arguments);
Tensor call_function(const std::string& name, CallArguments& arguments);
/// Lists the names that these know.
std::vector<std::string> method_names();
std::vector<std::string> function_names();

}  // namespace tg::app

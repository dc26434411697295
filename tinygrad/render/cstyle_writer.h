/// \file The state of writing one function as C; private to the C renderer.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tinygrad/render/cstyle.h"
#include "tinygrad/render/linear.h"

namespace tg {

class CWriter {
 public:
  CWriter(const Program& p, const CStyle& style);
  std::string write();

 private:
  // text
  std::string scalar_type(DType d) const;
  std::string type(DType d, int lanes = 1);
  std::string packed_type(DType d, int lanes);  ///< the vector type as memory holds it: aligned like an element
  std::string literal(const ConstValue& v, DType d) const;
  void line(const std::string& text);
  std::string helper(const std::string& name, const std::string& definition);
  std::string bind(DType d, int lanes, const std::string& expression);  ///< names the value of an expression
  std::string lanewise(DType d, int lanes, const std::vector<std::pair<std::string, bool>>& args, const std::string& call);

  // values
  std::string value(UOp u, int lanes);
  std::string lane0(UOp u);
  std::string mask(const std::string& v, DType as, int lanes);
  std::string convert(const std::string& v, DType from, DType to, int lanes);
  std::string bitcast(const std::string& v, DType from, DType to, int lanes);
  std::string maximum(const std::string& a, const std::string& b, DType d, int lanes, bool number);
  std::string binary(UOp u, const std::string& a, const std::string& b, int lanes);
  std::string alu(UOp u, const std::vector<std::string>& s, int lanes);
  bool inlined(const LinearInst& in) const;
  void define(UOp u, const std::string& expression, int lanes);

  // instructions
  void head();
  void instruction(const LinearInst& in);
  void reduce(const LinearInst& in);
  void open_loop(UOp range);
  void close_loop(UOp range);
  std::string element(const Access& a, const std::string& index) const;
  std::string index_of_lane(const Access& a, int lane);
  std::string load(UOp u);
  void store(UOp u);

  const Program& p_;
  const CStyle& style_;
  LinearView view_;
  std::string head_, body_;
  std::map<std::string, std::string> types_, helpers_;
  std::vector<std::string> helper_order_;
  std::vector<std::string> values_, lane0_, names_;
  std::vector<int> uses_;
  std::vector<bool> whole_;  // registers held in one vector variable
  UOps loops_;
  int next_ = 0;
  bool vectors_ = false;
};

}  // namespace tg

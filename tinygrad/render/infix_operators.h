/// \file How the languages with C's expressions write operations between their operands.
#pragma once
#include "tinygrad/uop/ops.h"

namespace tg {

/// Returns the operator that stands between the operands of an operation, "+"; nullptr where it has none. Shifts have
/// none: languages differ in what counts beyond the width do.
inline const char* infix_operator(Ops op) {
  switch (op) {
    case Ops::ADD: return "+";
    case Ops::SUB: return "-";
    case Ops::MUL: return "*";
    case Ops::FDIV:
    case Ops::CDIV: return "/";
    case Ops::CMOD: return "%";
    case Ops::AND: return "&";
    case Ops::OR: return "|";
    case Ops::XOR: return "^";
    case Ops::CMPLT: return "<";
    case Ops::CMPNE: return "!=";
    case Ops::CMPEQ: return "==";
    default: return nullptr;
  }
}

}  // namespace tg

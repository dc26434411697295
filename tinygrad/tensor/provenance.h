/// \file Source locations of nodes in the user's program, for languages that provide them.
#pragma once
#include <string>

namespace tg {

/// Returns the line of the user's program this thread is executing, as "train.py:12"; empty when there is none.
using CallSite = std::string (*)();
/// Sets the function that is called for every node made under TRACEMETA=2, or VIZ=1.
void set_call_site(CallSite f);

namespace tensor_detail {
/// Returns the mark of a node: the method, under TRACEMETA=2 or VIZ=1 with the line that called it. Never freed.
const char* origin_of(const char* method);
}  // namespace tensor_detail
}  // namespace tg

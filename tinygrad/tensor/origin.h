/// \file Where in the user's program nodes come from, for languages that can tell.
#pragma once
#include <string>

namespace tg {

/// The line of the user's program this thread is in, as "train.py:12"; empty when it is in none.
using CallSite = std::string (*)();
/// Asked for every node made under TRACEMETA=2.
void set_call_site(CallSite f);

namespace tensor_detail {
/// What nodes are marked with: the method, from TRACEMETA=2 on with the line that called it. Lives for good.
const char* origin_of(const char* method);
}  // namespace tensor_detail
}  // namespace tg

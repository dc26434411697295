/// \file What an error test asks: the type, the operation in brackets, and a part of the message.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tg {

template <class E, class F> void expect(F&& f, const std::string& op, const std::string& part) {
  try {
    f();
  } catch (const E& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("[" + op + "]"));
    EXPECT_THAT(e.what(), testing::HasSubstr(part));
    return;
  } catch (const std::exception& e) { FAIL() << "another error: " << e.what(); }
  FAIL() << "no error, expected one of " << op;
}

}  // namespace tg

/// \file Printing: the same text as NumPy's str (the expectations were printed by NumPy).
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

const std::map<std::string, std::string> kNumPy{
    {"floats", R"([ 1.    2.5  -3.25])"},
    {"matrix", R"([[1. 2.]
 [3. 4.]])"},
    {"thirds", R"([  0.33333334   0.6666667  100.5       ])"},
    {"science", R"([1.0e-05 1.5e+00 2.0e+03])"},
    {"large", R"([1.e+09 1.e+00])"},
    {"special", R"([ nan  inf -inf   1.])"},
    {"ints", R"([[  1 -20 300]
 [  4   5   6]])"},
    {"bools", R"([ True False])"},
    {"cube", R"([[[ 0  1]
  [ 2  3]
  [ 4  5]]

 [[ 6  7]
  [ 8  9]
  [10 11]]])"},
    {"line", R"([ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39])"},
    {"summary", R"([   0    1    2 ... 1997 1998 1999])"},
    {"summary2", R"([[   0    1    2 ...   27   28   29]
 [  30   31   32 ...   57   58   59]
 [  60   61   62 ...   87   88   89]
 ...
 [1110 1111 1112 ... 1137 1138 1139]
 [1140 1141 1142 ... 1167 1168 1169]
 [1170 1171 1172 ... 1197 1198 1199]])"},
    {"empty", R"([])"},
    {"double", R"([0.33333333 0.1       ])"},
    {"zeros", R"([[0. 0.]
 [0. 0.]])"},
    {"linefloat", R"([0.         0.14285715 0.2857143  0.42857143 0.5714286  0.71428573
 0.85714287 1.         1.1428572  1.2857143  1.4285715  1.5714285
 1.7142857  1.8571428  2.         2.142857   2.2857144  2.4285715
 2.5714285  2.7142856  2.857143   3.         3.142857   3.2857144
 3.4285715  3.5714285  3.7142856  3.857143   4.         4.142857  ])"},
    {"summary3", R"([[[   0    1    2 ...   37   38   39]
  [  40   41   42 ...   77   78   79]
  [  80   81   82 ...  117  118  119]
  ...
  [1080 1081 1082 ... 1117 1118 1119]
  [1120 1121 1122 ... 1157 1158 1159]
  [1160 1161 1162 ... 1197 1198 1199]]

 [[1200 1201 1202 ... 1237 1238 1239]
  [1240 1241 1242 ... 1277 1278 1279]
  [1280 1281 1282 ... 1317 1318 1319]
  ...
  [2280 2281 2282 ... 2317 2318 2319]
  [2320 2321 2322 ... 2357 2358 2359]
  [2360 2361 2362 ... 2397 2398 2399]]])"},
    {"zero_d", R"(2.5)"},
    {"zero_d_int", R"(7)"},
    {"neg", R"([-0.    -0.001  0.5  ])"},
};

std::string text(const Tensor& t) { return str(t); }
void expect(const char* name, const Tensor& t) { EXPECT_EQ(text(t), kNumPy.at(name)) << name; }
Tensor counting(const Shape& shape) {
  std::vector<int64_t> v(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < v.size(); i++) v[i] = static_cast<int64_t>(i);
  return Tensor::from(v, shape);
}

TEST(Print, LikeNumPy) {
  expect("floats", Tensor({1.f, 2.5f, -3.25f}));
  expect("matrix", Tensor({{1.f, 2.f}, {3.f, 4.f}}));
  expect("thirds", Tensor({1.0 / 3, 2.0 / 3, 100.5}));
  expect("science", Tensor({1e-5, 1.5, 2000.0}));
  expect("large", Tensor({1e9, 1.0}));
  expect("special", Tensor({NAN, INFINITY, -INFINITY, 1.f}));
  expect("ints", Tensor({{1, -20, 300}, {4, 5, 6}}));
  expect("bools", Tensor({true, false}));
  expect("cube", counting({2, 3, 2}));
  expect("line", counting({40}));
  expect("summary", counting({2000}));
  expect("summary2", counting({40, 30}));
  expect("summary3", counting({2, 30, 40}));
  expect("empty", Tensor::zeros(0, 3));
  expect("double", Tensor(std::vector<double>{1.0 / 3, 0.1}));
  expect("zeros", Tensor::zeros(2, 2));
  expect("zero_d", Tensor(2.5));
  expect("zero_d_int", Tensor(7));
  expect("neg", Tensor({-0.0, -1e-3, 0.5}));
  std::vector<float> sevenths;
  for (int i = 0; i < 30; i++) sevenths.push_back(static_cast<float>(i / 7.0));
  expect("linefloat", Tensor(sevenths));
}

TEST(Print, Repr) {
  Tensor x({1.f, 2.f});
  EXPECT_EQ(repr(x), str("<Tensor (2,) float32 on ", x.device(), ", realized>"));
  EXPECT_EQ(repr(x + 1), str("<Tensor (2,) float32 on ", x.device(), ", lazy>"));
  EXPECT_EQ(repr(Tensor()), "Tensor()");
}

}  // namespace
}  // namespace tg

// A small program outside the project: find_package, include, link, run; and the data of the installation, whose prefix
// is the argument.
#include <tinygrad/base/paths.h>
#include <tinygrad/nn/dataset_files.h>
#include <tinygrad/tinygrad.h>

#include <algorithm>
#include <iostream>

int main(int, char** argv) {
  const float sum = tg::Tensor::ones({2, 3}).sum().item<float>();
  std::cout << sum << "\n";
  const std::string data = std::string(argv[1]) + "/share/tinygrad/data";
  const std::vector<std::string> installed = tg::installed_data_dirs();
  if (std::find(installed.begin(), installed.end(), data) == installed.end()) {
    std::cerr << data << " is not among the places where data sets are looked for\n";
    return 1;
  }
  const auto mnist = tg::nn::datasets::mnist_bytes(false, {.download = false, .directories = {data + "/mnist"}});
  return sum == 6.0f && mnist.train_labels.size() == 60000 ? 0 : 1;
}

/// \file docs_snippets PAGE NUMBER: runs the C++ of a page of the documentation, as tools/snippets.py asks for it.
/// docs_snippets --tiny-model FILE writes a language model for pages that need one.
#include "snippets_main.h"

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

#include "tiny_files.h"

namespace snippets {

static std::map<std::pair<std::string, int>, void (*)()>& table() {
  static std::map<std::pair<std::string, int>, void (*)()> t;
  return t;
}

Register::Register(const char* page, int number, void (*run)()) { table()[{page, number}] = run; }

void mark(int k) { std::cout << '\x1e' << k << std::endl; }

/// Prints an error as the pages show it: its class and its message.
static void report(const std::exception& e) {
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(typeid(e).name(), nullptr, nullptr, nullptr),
                                                    std::free);
  const std::string full = name ? name.get() : "error";
  std::cout << full.substr(full.rfind(':') + 1) << ": " << e.what() << "\n\x1fthrown" << std::endl;
}

static int run(const std::string& page, int number) {
  const auto it = table().find({page, number});
  if (it == table().end()) {
    std::cerr << "there is no group " << number << " of page " << page << '\n';
    return 2;
  }
  try {
    it->second();
  } catch (const std::exception& e) { report(e); }
  return 0;
}

}  // namespace snippets

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--tiny-model") {
    snippets::write_tiny_model(argv[2]);
    return 0;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::cout << std::unitbuf;
  return argc == 3 ? snippets::run(argv[1], std::atoi(argv[2])) : 2;
}

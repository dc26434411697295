# tg_target(name): language, warnings, sanitizers, linker. Flags live on our targets, so a project that adds this one keeps its own.

# A compiler cache knows a file by everything it includes, so it excludes precompiled headers. A build uses one only when it
# is told to: it must not depend on which programs a machine has.
option(TG_CCACHE "Compile through ccache, without precompiled headers" OFF)
if(TG_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TG_CCACHE_PROGRAM ccache REQUIRED)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TG_CCACHE_PROGRAM})
endif()

# Under sanitizers some files have flags of their own, which a precompiled header cannot have.
if(CMAKE_CXX_COMPILER_LAUNCHER OR TG_SANITIZE)
  set(tg_precompile OFF)
else()
  set(tg_precompile ON)
endif()
option(TG_PRECOMPILE "Precompile the headers of libraries that most files include" ${tg_precompile})

find_program(TG_LLD ld.lld)
include(CheckLinkerFlag)
if(TG_LLD)
  check_linker_flag(CXX -fuse-ld=lld TG_HAS_LLD)
endif()

function(tg_target name)
  set_target_properties(${name} PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  # Results must not depend on which compiler contracts a*b+c.
  target_compile_options(${name} PRIVATE -Wall -Wextra -ffp-contract=off)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE -Wno-restrict) # g++ 12 warns about its own std::string
    # Cold parts of functions may be empty where g++ optimizes. The unwind entry of such a part has the address of the next
    # function's, and lld's table for exceptions keeps the first of the two: what the other one throws ends the program.
    target_compile_options(${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-fno-reorder-blocks-and-partition>)
  else()
    target_compile_options(${name} PRIVATE -Wno-deprecated-declarations) # clang warns about libstdc++ 12's std::stable_sort
  endif()
  if(TG_WERROR)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  if(TG_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${TG_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${name} PRIVATE -Wno-maybe-uninitialized) # false alarms: the checks hide what is assigned
    endif()
    target_link_options(${name} PRIVATE -fsanitize=${TG_SANITIZE})
  endif()
  if(TG_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      message(FATAL_ERROR "TG_FUZZ needs clang: its runtime is libFuzzer")
    endif()
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(TG_HAS_LLD)
    target_link_options(${name} PRIVATE -fuse-ld=lld)
  endif()
endfunction()

# tg_precompile(name [HEADER...]): the standard headers that nearly every file of the target includes, and these.
function(tg_precompile name)
  if(TG_PRECOMPILE)
    target_precompile_headers(${name} PRIVATE <algorithm> <array> <atomic> <functional> <map> <memory> <mutex> <optional>
      <span> <string> <string_view> <unordered_map> <unordered_set> <utility> <variant> <vector> ${ARGN})
  endif()
endfunction()

# tg_needs_plugin(name): a program that compiles kernels wants the plugin built beside it; nothing links to it.
function(tg_needs_plugin name)
  if(TARGET tinygrad_llvm)
    add_dependencies(${name} tinygrad_llvm)
  endif()
endfunction()

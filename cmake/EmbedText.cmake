# tg_embed_text(TARGET FILE NAMESPACE FUNCTION): compiles a text file into the target as `std::string_view FUNCTION()`, empty
# where there is no such file.
function(tg_embed_text target file namespace function)
  set(text)
  if(EXISTS "${file}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} text)
  endif()
  set(out ${CMAKE_CURRENT_BINARY_DIR}/embedded/${function}.cpp)
  string(CONCAT source "#include <string_view>\nnamespace ${namespace} {\nstd::string_view ${function}();\n"
    "std::string_view ${function}() { return R\"TG_TEXT(" "${text}" ")TG_TEXT\"; }\n}\n")
  if(EXISTS ${out})
    file(READ ${out} before)
  endif()
  if(NOT "${source}" STREQUAL "${before}")
    file(WRITE ${out} "${source}")
  endif()
  target_sources(${target} PRIVATE ${out})
endfunction()

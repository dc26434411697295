# Installs the build to a fresh prefix, then configures, builds and runs the consumer against nothing but that prefix.
set(work ${BUILD}/consumer)
file(REMOVE_RECURSE ${work})
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE rc OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT rc EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${out}")
  endif()
endfunction()
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix --config ${CONFIG})
step(${CMAKE_COMMAND} -S ${SOURCE} -B ${work}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${work}/prefix)
step(${CMAKE_COMMAND} --build ${work}/build)
step(${CMAKE_COMMAND} -E env CACHEDB=${work}/cache.db ${work}/build/consumer ${work}/prefix)

# A program with a backend of its own, which no file of the library knows.
step(${CMAKE_COMMAND} -S ${SOURCE}/../../examples/backend -B ${work}/backend -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${work}/prefix)
step(${CMAKE_COMMAND} --build ${work}/backend)
step(${CMAKE_COMMAND} -E env CACHEDB=${work}/cache.db ${work}/backend/sim_demo)

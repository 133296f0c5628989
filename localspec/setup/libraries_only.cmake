# Read by CMake at `project()`, by -DCMAKE_PROJECT_INCLUDE=… (CMAKE_ARGS). llama-cpp-python sets LLAMA_BUILD_COMMON
# in the cache with FORCE, so that -DLLAMA_BUILD_COMMON=OFF is lost; an ordinary variable stands before the cache's.
# Without it, what the programs of llama.cpp need beside its libraries is not compiled: two fifths of the time, and
# the binding loads none of it.
set(LLAMA_BUILD_COMMON OFF)

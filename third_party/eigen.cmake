# Finds Eigen's headers: an unpacked copy beside this file (third_party/eigen), else the build
# requirement cmeel-eigen, which puts a CMake package below <site-packages>/cmeel.prefix.
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/eigen/Eigen/Dense)
  add_library(Eigen3::Eigen INTERFACE IMPORTED)
  target_include_directories(Eigen3::Eigen SYSTEM INTERFACE ${CMAKE_CURRENT_LIST_DIR}/eigen)
else()
  list(TRANSFORM CMAKE_PREFIX_PATH APPEND "/cmeel.prefix" OUTPUT_VARIABLE cmeel_prefixes)
  find_package(Eigen3 3.4 CONFIG REQUIRED HINTS ${cmeel_prefixes})
endif()

# Plug-ins: engines over libraries that not everybody has, loaded by src/comm/plugin.c when asked
# for. build/plugins/choir_NAME.so, installed into LIBDIR/choir/.
#   choir_plugin(ucx PkgConfig::UCX)   all of src/comm/ucx/*.c
function(choir_plugin name)
  file(GLOB sources CONFIGURE_DEPENDS src/comm/${name}/*.c)
  add_library(choir_${name} MODULE ${sources} src/comm/plugin_side.c)
  set_target_properties(choir_${name} PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/plugins)
  target_include_directories(choir_${name} PRIVATE include src)
  target_compile_definitions(choir_${name} PRIVATE _GNU_SOURCE CHOIR_VERSION="${PROJECT_VERSION}")
  target_link_libraries(choir_${name} PRIVATE choir_flags Threads::Threads ${ARGN})
  if(NOT CHOIR_SANITIZE)
    target_link_options(choir_${name} PRIVATE -Wl,--no-undefined)
  endif()
  install(TARGETS choir_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/choir)
endfunction()

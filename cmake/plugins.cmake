# Plug-ins: engines over libraries that not everybody has, loaded by src/comm/plugin.c when asked
# for. build/plugins/choir_NAME.so, installed into LIBDIR/choir/.
#   choir_plugin(ucx PkgConfig::UCX)               all of src/comm/ucx/*.c
#   choir_plugin_of(mpi mpi_mpich PkgConfig::MPICH)  choir_mpi_mpich.so of src/comm/mpi/*.c
function(choir_plugin name)
  choir_plugin_of(${name} ${name} ${ARGN})
endfunction()
function(choir_plugin_of folder name)
  file(GLOB sources CONFIGURE_DEPENDS src/comm/${folder}/*.c)
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

# A plug-in for every MPI that is here, since a program runs under one mpirun and must be of its
# kind: choir_mpi_openmpi.so, choir_mpi_mpich.so; for any other MPI choir_mpi.so.
set(CHOIR_MPI AUTO CACHE STRING "MPI groups, by Open MPI, MPICH or both: ON, OFF or AUTO")
set_property(CACHE CHOIR_MPI PROPERTY STRINGS ON OFF AUTO)
set(CHOIR_MPI_FOUND "")
if(CHOIR_MPI)
  pkg_check_modules(OPENMPI QUIET IMPORTED_TARGET ompi-c)
  pkg_check_modules(MPICH QUIET IMPORTED_TARGET mpich)
  foreach(name IN ITEMS OPENMPI MPICH)
    if(TARGET PkgConfig::${name})
      string(TOLOWER ${name} kind)
      choir_plugin_of(mpi mpi_${kind} PkgConfig::${name})
      # MPICH's MPI_STATUSES_IGNORE is address 1, which GCC takes for an array of no bytes.
      target_compile_options(choir_mpi_${kind} PRIVATE -Wno-stringop-overflow)
      list(APPEND CHOIR_MPI_FOUND ${kind})
    endif()
  endforeach()
  if(NOT CHOIR_MPI_FOUND)
    find_package(MPI QUIET COMPONENTS C)
    if(MPI_C_FOUND)
      choir_plugin_of(mpi mpi MPI::MPI_C)
      list(APPEND CHOIR_MPI_FOUND mpi)
    endif()
  endif()
  if(NOT CHOIR_MPI_FOUND AND NOT CHOIR_MPI STREQUAL AUTO)
    message(FATAL_ERROR "CHOIR_MPI is ${CHOIR_MPI}, and there is no MPI: install libopenmpi-dev")
  endif()
endif()

if(CHOIR_UCX AND TARGET PkgConfig::UCX)
  choir_plugin(ucx PkgConfig::UCX)
endif()

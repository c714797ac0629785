# Plug-ins: engines over libraries that are not installed everywhere, loaded by
# src/comm/plugin.c on request. build/plugins/choir_NAME.so, installed into LIBDIR/choir/.
#   choir_plugin(ucx PkgConfig::UCX)               all of src/comm/ucx/*.c
#   choir_plugin_of(mpi mpi_mpich PkgConfig::MPICH)  choir_mpi_mpich.so of src/comm/mpi/*.c
function(choir_plugin name)
  choir_plugin_of(${name} ${name} ${ARGN})
endfunction()
function(choir_plugin_of folder name)
  file(GLOB sources CONFIGURE_DEPENDS src/comm/${folder}/*.c)
  choir_plugin_from(${name} "${sources};src/comm/plugin_side.c" ${ARGN})
endfunction()
function(choir_plugin_from name sources)
  add_library(choir_${name} MODULE ${sources} src/base/plugin/plugin_side.c)
  set_target_properties(choir_${name} PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/plugins)
  target_include_directories(choir_${name} PRIVATE include src)
  target_compile_definitions(choir_${name} PRIVATE _GNU_SOURCE CHOIR_VERSION="${PROJECT_VERSION}")
  target_link_libraries(choir_${name} PRIVATE choir_flags Threads::Threads ${ARGN})
  if(NOT CHOIR_SANITIZE)
    target_link_options(choir_${name} PRIVATE -Wl,--no-undefined)
  endif()
  install(TARGETS choir_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/choir
    COMPONENT plugins)
endfunction()

# One plug-in for every installed MPI, since a program runs under one mpirun and must use its
# MPI: choir_mpi_openmpi.so, choir_mpi_mpich.so; for any other MPI choir_mpi.so.
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

# --- the meeting of nodes in etcd -----------------------------------------------------------------
# choir_etcd.so: src/launch/etcd/, and its side of the plug-in.
if(CHOIR_ETCD AND TARGET PkgConfig::ETCD)
  file(GLOB CHOIR_ETCD_SOURCES CONFIGURE_DEPENDS src/launch/etcd/*.c)
  choir_plugin_from(etcd "${CHOIR_ETCD_SOURCES};src/launch/agent/plugin_side.c" PkgConfig::ETCD
    PkgConfig::JANSSON PkgConfig::SODIUM)
endif()

# --- the ledger that the nodes of a job hold together ---------------------------------------------
# choir_raft.so: src/launch/raft/, with the store's channel and sockets.
if(CHOIR_RAFT AND TARGET PkgConfig::RAFT)
  file(GLOB CHOIR_RAFT_SOURCES CONFIGURE_DEPENDS src/launch/raft/*.c)
  foreach(part IN ITEMS channel net peer holder)
    list(APPEND CHOIR_RAFT_SOURCES src/launch/store/${part}.c)
  endforeach()
  choir_plugin_from(raft "${CHOIR_RAFT_SOURCES};src/launch/agent/plugin_side.c" PkgConfig::RAFT
    PkgConfig::SODIUM m)
endif()

# --- rows of Parquet files ------------------------------------------------------------------------
include(${CMAKE_CURRENT_LIST_DIR}/parquet.cmake)

# --- devices that are loaded on request -----------------------------------------------------------
# choir_cuda.so: src/device/cuda/ and its side of the plug-in, with the parts that nvcc
# compiles, for the GPUs that CMAKE_CUDA_ARCHITECTURES names (cmake/cuda.cmake has the default).
set(CHOIR_CUDA AUTO CACHE STRING "CUDA devices, by the CUDA toolkit: ON, OFF or AUTO")
set_property(CACHE CHOIR_CUDA PROPERTY STRINGS ON OFF AUTO)
file(GLOB_RECURSE CHOIR_CUDA_SOURCES CONFIGURE_DEPENDS src/device/cuda/*.c)
file(GLOB_RECURSE CHOIR_CUDA_KERNELS CONFIGURE_DEPENDS src/device/cuda/*.cu)
if(CHOIR_CUDA)
  include(cmake/cuda.cmake)
  include(CheckLanguage)
  choir_find_nvcc(nvcc looked)
  set(no_cuda "")
  if(NOT nvcc)
    set(no_cuda "no nvcc in ${looked}; -DCMAKE_CUDA_COMPILER=/.../nvcc names one")
  else()
    get_filename_component(toolkit ${nvcc} REALPATH)
    get_filename_component(toolkit ${toolkit} DIRECTORY)
    get_filename_component(toolkit ${toolkit} DIRECTORY)
    if(NOT DEFINED CMAKE_CUDA_COMPILER)
      set(ENV{CUDACXX} ${nvcc})
    endif()
    if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER AND "$ENV{CUDAHOSTCXX}" STREQUAL "")
      choir_newest_host(${toolkit}/include/crt/host_config.h newest)
      choir_find_host("${newest}" host no_cuda)
      if(host)
        set(CMAKE_CUDA_HOST_COMPILER ${host} CACHE FILEPATH "The C++ compiler of nvcc")
      endif()
    endif()
  endif()
  if(NOT no_cuda)
    check_language(CUDA)
    find_package(CUDAToolkit 12.5 QUIET)
    if(NOT CMAKE_CUDA_COMPILER)
      set(no_cuda "${nvcc} does not compile: -DCHOIR_CUDA=ON shows why")
      if(NOT CHOIR_CUDA STREQUAL AUTO)
        enable_language(CUDA) # its error has the compiler's own
      endif()
    elseif(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cublasLt)
      set(no_cuda "${nvcc} is there, and cuBLASLt of CUDA 12.5 or later is missing")
    else()
      find_path(CHOIR_CUBLAS_HEADERS cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
      if(NOT CHOIR_CUBLAS_HEADERS)
        set(no_cuda "${nvcc} is there, and the headers of cuBLASLt are missing")
      endif()
    endif()
  endif()
  if(NOT no_cuda)
    set(CHOIR_CUDA_FOUND ON)
  elseif(CHOIR_CUDA STREQUAL AUTO)
    message(NOTICE "Without CUDA devices: ${no_cuda}")
  else()
    message(FATAL_ERROR "CHOIR_CUDA is ${CHOIR_CUDA}: ${no_cuda}")
  endif()
endif()
# cuDNN, for convolutions and attention: its headers here, the library when the plug-in first
# needs it (src/device/cuda/dnn/dnn_library.c); without it the plug-in uses its own kernels.
set(CHOIR_CUDNN AUTO CACHE STRING "cuDNN in the CUDA devices: ON, OFF or AUTO")
set_property(CACHE CHOIR_CUDNN PROPERTY STRINGS ON OFF AUTO)
if(CHOIR_CUDA_FOUND AND CHOIR_CUDNN)
  find_path(CHOIR_CUDNN_HEADERS cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDNN_PATH
    PATH_SUFFIXES include)
  if(CHOIR_CUDNN_HEADERS)
    set(CHOIR_CUDNN_FOUND ON)
  elseif(NOT CHOIR_CUDNN STREQUAL AUTO)
    message(FATAL_ERROR "CHOIR_CUDNN is ${CHOIR_CUDNN}, and the headers of cuDNN 9 are missing: "
      "CUDNN_PATH names the folder that has them in include/")
  endif()
endif()
# The folders of the toolkit's libraries, for plug-ins to look in: the dynamic linker does not know
# those of wheels, conda and modules.
set(CHOIR_CUDA_RPATH)
if(CHOIR_CUDA_FOUND)
  foreach(target IN ITEMS CUDA::cudart CUDA::cublasLt)
    get_target_property(file ${target} IMPORTED_LOCATION)
    if(file)
      get_filename_component(folder ${file} DIRECTORY)
      if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
        list(APPEND CHOIR_CUDA_RPATH ${folder})
      endif()
    endif()
  endforeach()
  list(REMOVE_DUPLICATES CHOIR_CUDA_RPATH)
endif()
if(CHOIR_CUDA_FOUND)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND "$ENV{CUDAARCHS}" STREQUAL "")
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch
      OUTPUT_VARIABLE known ERROR_QUIET)
    choir_cuda_kinds("${known}" CMAKE_CUDA_ARCHITECTURES)
  elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    message(NOTICE "The CUDA device is compiled for GPUs of these kinds alone: $ENV{CUDAARCHS} "
      "(CUDAARCHS; -DCMAKE_CUDA_ARCHITECTURES changes it)")
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 17)
  # Line information of kernels: --generate-line-info costs nothing at run time.
  add_library(choir_cuda MODULE ${CHOIR_CUDA_SOURCES} ${CHOIR_CUDA_KERNELS}
    src/device/plugin_side.c src/base/plugin/plugin_side.c src/device/code_map.c
    src/base/plugin/library.c
    src/base/plugin/library_nvidia.c)
  # No fused multiply-add where the bits must equal the CPU's, or where a sum must not depend on
  # the kernel that computed its terms.
  set_source_files_properties(src/device/cuda/kernels/random.cu
    src/device/cuda/kernels/embedding_backward.cu
    PROPERTIES COMPILE_OPTIONS "-fmad=false")
  set_target_properties(choir_cuda PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/plugins
    BUILD_RPATH "${CHOIR_CUDA_RPATH}" INSTALL_RPATH "${CHOIR_CUDA_RPATH}")
  target_include_directories(choir_cuda PRIVATE include src)
  target_compile_definitions(choir_cuda PRIVATE _GNU_SOURCE CHOIR_VERSION="${PROJECT_VERSION}")
  target_compile_options(choir_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-extended-lambda -lineinfo>
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -ffp-contract=off>)
  target_link_libraries(choir_cuda PRIVATE CUDA::cudart CUDA::cublasLt Threads::Threads m)
  target_include_directories(choir_cuda SYSTEM PRIVATE ${CHOIR_CUBLAS_HEADERS})
  if(CHOIR_CUDNN_FOUND)
    target_compile_definitions(choir_cuda PRIVATE CHOIR_HAVE_CUDNN)
    target_include_directories(choir_cuda SYSTEM PRIVATE ${CHOIR_CUDNN_HEADERS})
  endif()
  install(TARGETS choir_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/choir
    COMPONENT plugins)
endif()

# --- groups over NCCL -----------------------------------------------------------------------------
# choir_nccl.so: src/comm/nccl/, built where the CUDA device is.
set(CHOIR_NCCL AUTO CACHE STRING "Groups of GPUs, by NCCL: ON, OFF or AUTO")
set_property(CACHE CHOIR_NCCL PROPERTY STRINGS ON OFF AUTO)
file(GLOB CHOIR_NCCL_SOURCES CONFIGURE_DEPENDS src/comm/nccl/*.c)
file(GLOB CHOIR_NCCL_KERNELS CONFIGURE_DEPENDS src/comm/nccl/*.cu)
if(CHOIR_NCCL AND CHOIR_CUDA_FOUND)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME
    PATH_SUFFIXES include)
endif()
if(CHOIR_NCCL AND CHOIR_CUDA_FOUND AND NCCL_INCLUDE_DIR) # which an earlier configuration has found
  set(CHOIR_NCCL_FOUND ON)
  choir_plugin(nccl CUDA::cudart ${CMAKE_DL_LIBS}) # NCCL itself is opened when needed
  target_sources(choir_nccl PRIVATE src/base/plugin/library.c src/base/plugin/library_nvidia.c)
  add_library(choir_nccl_kernels OBJECT ${CHOIR_NCCL_KERNELS}) # choir_flags are for C
  set_target_properties(choir_nccl_kernels PROPERTIES CUDA_VISIBILITY_PRESET hidden)
  set_target_properties(choir_nccl PROPERTIES CUDA_RUNTIME_LIBRARY Shared
    BUILD_RPATH "${CHOIR_CUDA_RPATH}" INSTALL_RPATH "${CHOIR_CUDA_RPATH}")
  target_include_directories(choir_nccl_kernels PRIVATE include src)
  target_compile_options(choir_nccl_kernels PRIVATE -lineinfo)
  target_link_libraries(choir_nccl PRIVATE choir_nccl_kernels)
  target_include_directories(choir_nccl SYSTEM PRIVATE ${NCCL_INCLUDE_DIR}
    ${CHOIR_CUBLAS_HEADERS})
elseif(CHOIR_NCCL AND NOT CHOIR_NCCL STREQUAL AUTO)
  message(FATAL_ERROR "CHOIR_NCCL is ${CHOIR_NCCL}, and NCCL's header or the CUDA device is "
    "missing: NCCL_HOME names the folder that has nccl.h in include/")
endif()

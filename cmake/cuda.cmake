# Finding the CUDA toolkit where its installers put it, and a host compiler that its nvcc takes.
#
# CMake looks for nvcc on the PATH, and NVIDIA's installers do not add it there. nvcc refuses
# compilers newer than those it knows, which a distribution's default often is. Both are looked
# for here, before CMake does, and one line says what was found or where it was looked for.
# `cmake -P` can include this file: tests/gpu/toolkit.sh does.

# The folders in which toolkits lie: named by the environment (also by modules, which set
# CUDA_HOME or CUDA_ROOT), of conda, of Python's wheels, of the system.
set(CHOIR_CUDA_PLACES)
foreach(name IN ITEMS CUDA_HOME CUDA_PATH CUDAToolkit_ROOT CUDA_ROOT CONDA_PREFIX)
  if(NOT "$ENV{${name}}" STREQUAL "")
    list(APPEND CHOIR_CUDA_PLACES "$ENV{${name}}")
  endif()
endforeach()
if(NOT "$ENV{VIRTUAL_ENV}" STREQUAL "")
  file(GLOB wheels "$ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/cu*")
  list(APPEND CHOIR_CUDA_PLACES ${wheels})
endif()
if(NOT DEFINED CHOIR_CUDA_SYSTEM)
  set(CHOIR_CUDA_SYSTEM /usr/local/cuda /opt/cuda /opt/nvidia/cuda)
  file(GLOB versions /usr/local/cuda-*)
  list(SORT versions COMPARE NATURAL ORDER DESCENDING)
  list(APPEND CHOIR_CUDA_SYSTEM ${versions})
endif()
list(APPEND CHOIR_CUDA_PLACES ${CHOIR_CUDA_SYSTEM})

# Sets `variable` to the path of nvcc, or to "", and `looked` to where it was looked for.
function(choir_find_nvcc variable looked)
  set(places ${CHOIR_CUDA_PLACES})
  list(TRANSFORM places APPEND /bin)
  set(found "$ENV{CUDACXX}")
  if(CMAKE_CUDA_COMPILER)
    set(found "${CMAKE_CUDA_COMPILER}")
  endif()
  if(NOT found)
    find_program(found_nvcc nvcc PATHS ${places} NO_CACHE)
    if(found_nvcc)
      set(found ${found_nvcc})
    endif()
  endif()
  list(JOIN places " " text)
  set(${variable} "${found}" PARENT_SCOPE)
  set(${looked} "the PATH, ${text}" PARENT_SCOPE)
endfunction()

# Sets `variable` to the newest GCC that the nvcc with this host_config.h takes; "" if the file
# names none.
function(choir_newest_host header variable)
  set(newest "")
  if(EXISTS "${header}")
    file(STRINGS "${header}" lines REGEX "^#if +__GNUC__ +> +[0-9]+")
    foreach(line IN LISTS lines)
      string(REGEX MATCH "[0-9]+" newest "${line}")
    endforeach()
  endif()
  set(${variable} "${newest}" PARENT_SCOPE)
endfunction()

# Sets `variable` to a C++ compiler for nvcc: "" if nvcc's own choice, the g++ on the PATH, will
# do; `trouble` to a sentence if there is none. newest: of choir_newest_host.
function(choir_find_host newest variable trouble)
  set(${variable} "" PARENT_SCOPE)
  set(${trouble} "" PARENT_SCOPE)
  find_program(default_host g++ NO_CACHE)
  if(newest STREQUAL "" OR NOT default_host)
    return()
  endif()
  execute_process(COMMAND ${default_host} -dumpversion OUTPUT_VARIABLE version ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX MATCH "^[0-9]+" version "${version}")
  if(version STREQUAL "" OR NOT version GREATER newest)
    return()
  endif()
  set(names)
  foreach(number RANGE ${newest} 9 -1)
    list(APPEND names g++-${number})
  endforeach()
  find_program(older_host NAMES ${names} NAMES_PER_DIR NO_CACHE)
  if(older_host)
    set(${variable} ${older_host} PARENT_SCOPE)
  else()
    set(${trouble} "nvcc takes GCC up to ${newest}, and g++ is ${version}: install g++-${newest}, \
or name a compiler by CUDAHOSTCXX" PARENT_SCOPE)
  endif()
endfunction()

# Sets `variable` to the architectures to compile for by default: machine code for the cards since
# Ampere that this nvcc knows (code for 8.0 also runs on 8.7, for 10.0 on 10.3, for 12.0 on 12.1),
# and PTX of the newest for later cards. known: the output of nvcc --list-gpu-arch.
function(choir_cuda_kinds known variable)
  set(kinds)
  foreach(kind IN ITEMS 80 86 89 90 100 120)
    if(known MATCHES "compute_${kind}(\n|$)")
      list(APPEND kinds ${kind}-real)
      set(last ${kind})
    endif()
  endforeach()
  if(kinds)
    list(APPEND kinds ${last}-virtual)
  else()
    set(kinds 80)
  endif()
  set(${variable} ${kinds} PARENT_SCOPE)
endfunction()

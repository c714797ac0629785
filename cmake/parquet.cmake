# choir_parquet.so: rows of Parquet files, src/data/parquet/, in C++ over Apache Arrow 19 or later:
# its packages (pkg-config's parquet), or what a Python's pyarrow brings (CHOIR_PYTHON, or python3).
set(CHOIR_PARQUET AUTO CACHE STRING "Parquet files, by Apache Arrow (libparquet-dev of its own \
repository, or Python's pyarrow): ON, OFF or AUTO")
set_property(CACHE CHOIR_PARQUET PROPERTY STRINGS ON OFF AUTO)

# Sets CHOIR_PYARROW to the folder of the module pyarrow with its headers and libraries.
function(choir_find_pyarrow)
  foreach(python IN ITEMS "${CHOIR_PYTHON}" "$ENV{CHOIR_PYTHON}" python3)
    if(python)
      execute_process(COMMAND ${python} -c
        "import pyarrow as p; assert int(p.__version__.split('.')[0]) > 18; print(p.__path__[0])"
        OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
    if(folder AND EXISTS ${folder}/include/parquet/arrow/reader.h)
      set(CHOIR_PYARROW ${folder} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

if(CHOIR_PARQUET)
  include(CheckLanguage)
  check_language(CXX)
  pkg_check_modules(PARQUET QUIET IMPORTED_TARGET parquet>=19 arrow>=19)
  if(NOT TARGET PkgConfig::PARQUET AND NOT CMAKE_CROSSCOMPILING)
    choir_find_pyarrow()
    file(GLOB arrow_libraries ${CHOIR_PYARROW}/libparquet.so* ${CHOIR_PYARROW}/libarrow.so*)
    if(CHOIR_PYARROW AND arrow_libraries)
      add_library(PkgConfig::PARQUET INTERFACE IMPORTED)
      set_target_properties(PkgConfig::PARQUET PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES ${CHOIR_PYARROW}/include
        INTERFACE_LINK_LIBRARIES "${arrow_libraries}")
    endif()
  endif()
  if(CMAKE_CXX_COMPILER AND TARGET PkgConfig::PARQUET)
    enable_language(CXX)
    file(GLOB parquet_sources CONFIGURE_DEPENDS src/data/parquet/*.cc)
    add_library(choir_parquet MODULE ${parquet_sources})
    set_target_properties(choir_parquet PROPERTIES PREFIX "" CXX_STANDARD 20
      CXX_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/plugins
      BUILD_RPATH "${CHOIR_PYARROW}" INSTALL_RPATH "${CHOIR_PYARROW}")
    target_include_directories(choir_parquet PRIVATE src)
    target_compile_definitions(choir_parquet PRIVATE CHOIR_VERSION="${PROJECT_VERSION}")
    target_compile_options(choir_parquet PRIVATE -Wall -Wextra $<$<BOOL:${CHOIR_WERROR}>:-Werror>)
    target_link_libraries(choir_parquet PRIVATE PkgConfig::PARQUET)
    install(TARGETS choir_parquet LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/choir
      COMPONENT plugins)
  elseif(NOT CHOIR_PARQUET STREQUAL AUTO)
    message(FATAL_ERROR "CHOIR_PARQUET is ${CHOIR_PARQUET}, and a C++ compiler or Apache Arrow is "
      "missing: install libparquet-dev, or pyarrow for the Python that CHOIR_PYTHON names")
  endif()
endif()

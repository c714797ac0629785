# Joins text files into one: the text that comes with Choir, a small corpus for a first run.
#
#   cmake -DROOT=<source folder> -DOUT=<file> -P gather.cmake
#
# Public headers, sources, guides and README.md, in the order of their paths, so that equal
# sources give equal text.
file(GLOB_RECURSE headers RELATIVE ${ROOT} ${ROOT}/include/*.h)
file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/src/*.c)
file(GLOB guides RELATIVE ${ROOT} ${ROOT}/docs/*.md ${ROOT}/README.md)
set(paths ${headers} ${sources} ${guides})
list(SORT paths)

set(text "")
foreach(path IN LISTS paths)
  file(READ ${ROOT}/${path} part)
  string(APPEND text "${part}\n")
endforeach()
file(WRITE ${OUT} "${text}")

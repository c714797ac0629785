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

file(WRITE ${OUT}.new "")
foreach(path IN LISTS paths) # appended to a file: to a text would copy the text so far each time
  file(READ ${ROOT}/${path} part)
  file(APPEND ${OUT}.new "${part}\n")
endforeach()
file(RENAME ${OUT}.new ${OUT})

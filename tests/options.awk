# Writes OPTIONS(type) for every type of options in the public headers, for
# tests/unit/nn/defaults.c: structs named choir_*_opts, and those that a function
# choir_*_defaults returns.  awk -f options.awk include/choir/*.h

match($0, /^} choir_[a-z0-9_]*_opts;/) { types[substr($0, 3, RLENGTH - 3)] }
match($0, /^choir_[a-z0-9_]* choir_[a-z0-9_]*_defaults\(/) { types[$1] }
END {
    for (type in types)
        print "OPTIONS(" type ")"
}

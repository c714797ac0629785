# Writes one C function per public function that takes a pointer, for tests/unit/nn/misuse.c:
#
#   static struct outcome call_choir_add(unsigned bad)      bit i of bad: argument i is bad,
#                                                           BAD_KIND in place of GIVE_KIND
#
# and the table `calls` of them. The prototypes are read from the headers, so a new function is
# tested at once.  awk -f calls.awk include/choir/*.h

function trim(s) { sub(/^[ \t]+/, "", s); sub(/[ \t]+$/, "", s); return s }

# Splits the arguments at the commas outside of parentheses.
function split_args(s, args,    i, c, depth, n, part) {
    n = 0; part = ""; depth = 0
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        if (c == "(") depth++
        if (c == ")") depth--
        if (c == "," && !depth) { args[++n] = trim(part); part = "" }
        else part = part c
    }
    if (trim(part) != "") args[++n] = trim(part)
    return n
}

function declaration(s,    open, head, name, type, rest, n, args, i, a, stars, base, list, mask, kind) {
    gsub(/__attribute__ *\(\([^;]*\)\)/, "", s)
    gsub(/CHOIR_CHECKED /, "", s)
    s = trim(s)
    if (s !~ /choir_[a-z0-9_]+ *\(.*\)$/ || s ~ /^typedef|^static|^#|=|^struct|^enum/) return
    open = index(s, "(")
    head = trim(substr(s, 1, open - 1)); rest = substr(s, open + 1, length(s) - open - 1)
    if (!match(head, /choir_[a-z0-9_]+$/)) return
    name = substr(head, RSTART); type = trim(substr(head, 1, RSTART - 1))
    if (type == "" || type ~ /[()]/) return
    if (rest == "void") {
        if (type ~ /_opts$/) defaults[type] = name
        return
    }
    n = split_args(rest, args); list = ""; mask = handles = 0
    for (i = 1; i <= n; i++) {
        a = args[i]
        if (a == "...") continue
        gsub(/\[[^]]*\]/, "*", a)                     # char hex[65], choir_tensor *in[2]
        stars = gsub(/\*/, "*", a)
        base = a; gsub(/const|\*/, "", base); base = trim(base)
        if (args[i] ~ /\[/) sub(/[a-z0-9_]+$/, "", base)
        else if (base ~ / [a-z0-9_]+$/) sub(/ [a-z0-9_]+$/, "", base)
        base = trim(base); gsub(/ /, "_", base)
        list = list (i > 1 ? ", " : "")
        if (stars) {
            kind = "GIVE_" base "_" stars
            if (a ~ /\*const \*/ || a ~ /\* const \*/) kind = kind "_list"
            list = list "bad >> " (i - 1) " & 1 ? BAD_" substr(kind, 6) " : " kind
            mask += 2 ^ (i - 1)
            if (kind ~ /^GIVE_choir_(scope|tensor|module|optim|loader|scaler)_(1|2_list)$/)
                handles += 2 ^ (i - 1)
            used[kind] = 1
        } else {
            list = list "GIVE_" base
            used["GIVE_" base] = 1
            values["GIVE_" base] = base
        }
    }
    if (!mask) return
    found[++count] = name; types[count] = type; lists[count] = list; masks[count] = mask
    stale[count] = handles
}

FNR == 1 { text = ""; depth = 0; comment = 0 }
{
    line = $0
    while (1) {                                        # comments
        if (comment) {
            at = index(line, "*/")
            if (!at) { line = ""; break }
            line = substr(line, at + 2); comment = 0
        }
        at = index(line, "/*")
        if (!at) break
        if (!index(substr(line, at), "*/")) { line = substr(line, 1, at - 1); comment = 1; break }
        end = index(substr(line, at), "*/")
        line = substr(line, 1, at - 1) " " substr(line, at + end + 1)
    }
    if (line ~ /^#ifndef __cplusplus/) both = 1        # the other branch is for C++
    if (line ~ /^#else/ && both) skip = 1
    if (line ~ /^#endif/) both = skip = 0
    if (skip) next
    if (line ~ /^#/ || macro) { macro = line ~ /\\$/; next }
    if (line ~ /extern "C/) next
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (c == "{") depth++
        else if (c == "}") { depth--; if (depth < 0) depth = 0 }
        else if (c == ";" && !depth) { declaration(text); text = "" }
        else if (!depth) text = text c
    }
    text = text " "
}

END {
    for (kind in used) {
        printf "#ifndef %s\n#define %s ", kind, kind
        if (!(kind in values)) printf "NULL"
        else if (values[kind] in defaults) printf "%s()", defaults[values[kind]]
        else printf "(%s){0}", values[kind]
        print "\n#endif"
        bad = "BAD_" substr(kind, 6)
        if (!(kind in values)) printf "#ifndef %s\n#define %s NULL\n#endif\n", bad, bad
    }
    for (i = 1; i <= count; i++) {
        printf "static struct outcome call_%s(unsigned bad)\n{\n", found[i]
        print "    struct outcome outcome = {NOTHING, {0}};\n    (void)bad;"
        if (types[i] == "void") printf "    %s(%s);\n", found[i], lists[i]
        else if (types[i] == "choir_status")
            printf "    outcome.kind = STATUS, outcome.status = %s(%s);\n", found[i], lists[i]
        else if (types[i] == "choir_tensor *")
            printf "    outcome.kind = TENSOR, outcome.tensor = %s(%s);\n", found[i], lists[i]
        else if (types[i] ~ /^choir_(module|scope|optim|loader|scaler) \*$/)
            printf "    outcome.kind = OBJECT, outcome.object = %s(%s);\n", found[i], lists[i]
        else printf "    (void)%s(%s);\n", found[i], lists[i]
        print "    return outcome;\n}\n"
    }
    print "static const struct call calls[] = {"
    for (i = 1; i <= count; i++)
        printf "    {\"%s\", call_%s, %d, %d},\n", found[i], found[i], masks[i], stale[i]
    print "};"
}

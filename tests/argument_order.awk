# Finds calls of which two arguments run modules: compilers order a call's arguments as they like,
# and the order of ops is that of sums in backward. Exit status 1 if there is one.
#
#   awk -f argument_order.awk src/nn/models/*.c

function look(file, text,    i, n, c, depth, part, whole, line) {
    depth = 0; line = 1; n = length(text)
    for (i = 1; i <= n; i++) {
        c = substr(text, i, 1)
        if (c == "\n") line++
        if (c == ";" || c == "{" || c == "}") depth = 0
        if (c == "(") {
            depth++; part[depth] = whole[depth] = 0
            runs[depth] = substr(text, i - 15 > 0 ? i - 15 : 1, 15) ~ /choir_forward(_n)?$/
        } else if (c == "," && depth) {
            whole[depth] += part[depth] > 0; part[depth] = 0
        } else if (c == ")" && depth) {
            whole[depth] += part[depth] > 0
            if (whole[depth] > 1) {
                print file ":" line ": two arguments of a call run modules: make them statements"
                bad = 1
            }
            if (depth > 1 && (runs[depth] || whole[depth])) part[depth - 1]++
            depth--
        }
    }
}

FNR == 1 { if (NR > 1) look(file, text); file = FILENAME; text = "" }
{ text = text $0 "\n" }
END { look(file, text); exit bad }

#!/usr/bin/env bash
# choir compare --plot: gnuplot accepts the script and draws the measurements.
. "$(dirname "$0")/lib.sh"
command -v gnuplot >/dev/null || skip "there is no gnuplot (install gnuplot-nox)"
export CHOIR_CPU_DEVICES=2

plot=(compare --model mlp:in=20,hidden=200,classes=7 --batch-size 24 --steps 60 --repeats 1)

png() {
    good "${plot[@]}" --strategies ddp --plot "it's.png" random
    [ "$(head -c 4 "it's.png" | tail -c 3)" = PNG ] || fail "no PNG"
    [ "$(stat -c %s "it's.png")" -gt 10000 ] || fail "an empty picture"
    has out "^The picture is it's.png[.]$"
}

# An SVG stores its texts, so the test can read the picture.
svg() {
    good "${plot[@]}" --plot all.svg random
    has all.svg '^<svg' '</svg>$' '>mlp:in=20,hidden=200,classes=7 on 2 devices<' \
        '>single<' '>ddp<' '>1\.00×<' '[> ]samples per second<' '>memory, MiB<' '>busy<' '>cpu:0<' \
        '>cpu:1<' '>milliseconds in three steps<'
    texts_fit all.svg
    ! grep -q 'scale(0\.00)' all.svg || fail "a mark of no size, which strict readers refuse"
    if grep -q '^pipeline' out; then
        has all.svg '>samples per split<' '>pipeline 1f1b<'
    fi
    if command -v python3 >/dev/null; then
        python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' all.svg ||
            fail "no XML"
        python3 - all.svg <<'PY' || fail 'a speed-up is missing, or runs out of its panel'
import re, sys
text = open(sys.argv[1]).read()
place = r'translate\(([0-9.]+),[0-9.]+\)"[^>]*>\s*<text>(?:<tspan[^>]*>)*'
speeds = re.findall(place + '([0-9.]+×[^<]*)<', text)
strategies = sum(bool(re.match('[a-z].* (yes|no)$', line)) for line in open('out'))
sys.exit(len(speeds) != strategies or any(float(x) + 7 * len(t) > 0.6 * 1440 for x, t in speeds))
PY
    fi
}

# Names of compositions have room beside their bars.
long_names() {
    good compare --model gpt2:layers=2,heads=2,width=16,context=8 --batch-size 8 --steps 5 \
        --repeats 1 --mesh 1x2x1 --plot long.svg \
        --strategies single,ddp+tp+pipeline:schedule=interleaved
    has long.svg '>ddp[+]tp[+]pipeline interleaved<'
    texts_fit long.svg
}

# A failure of gnuplot is an error of choir compare, with gnuplot's message.
failure() {
    mkdir -p bin
    printf '#!/bin/sh\necho "line 7: no such thing"\nexit 1\n' >bin/gnuplot
    chmod +x bin/gnuplot
    PATH=$work/bin:$PATH choir "${plot[@]}" --strategies single --plot a.png random >out 2>err
    [ $? -eq 1 ] || fail "exit status 0"
    is_one_line 'gnuplot.*line 7' || fail "$(cat err)"
}

check png
check svg
check long_names
check failure
finish

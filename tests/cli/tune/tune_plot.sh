#!/usr/bin/env bash
# choir tune plot: pictures of stored studies. An SVG stores its texts, so the test can read them.
. "$(dirname "$0")/../lib.sh"
command -v gnuplot >/dev/null || skip "there is no gnuplot (install gnuplot-nox)"

cat >curve <<'CURVE'
#!/bin/bash
[ "$4" = 5 ] && exit 1
awk -v x="$1" -v w="$2" -v a="$3" 'BEGIN { for (s = 1; s <= 4; s++)
    printf "{\"step\":%d,\"eval_loss\":%.6f}\n", s,
        (x - 0.3)^2 + (w - 4)^2 / 9 + (a == "b" ? 1 : 0) + 1 / s }'
CURVE
chmod +x curve
space=(--space 'x=uniform(0,1)' --space 'width=int(1,8)'
    --space "act=choice(a,b,\"it's\")" --space same=1)
command=(./curve {x} {width} {act} {trial} {same})

make_study() {
    good tune --sampler random --trials 20 --dir runs --scheduler median:startup=2 \
        "${space[@]}" --plot end.svg -- "${command[@]}"
}

# picture KIND PATTERN...: the picture has the texts, and no other kind's.
picture() {
    local kind=$1 pattern
    shift
    good tune plot --kind "$kind" runs "$kind.svg"
    [ "$(cat out)" = "$kind.svg" ] || fail "$kind: $(cat out)"
    sed -E 's/<[^>]*>/\n/g' "$kind.svg" >texts
    for pattern; do
        has texts "$pattern"
    done
    if command -v python3 >/dev/null; then
        python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$kind.svg" ||
            fail "no XML: $kind"
    fi
}

kinds() {
    picture history '^History$' '^best so far$' '^failed$' '^stopped early$' '^eval_loss$' \
        '^20 trials: [0-9]+ complete, [0-9]+ stopped early, 1 failed; best eval_loss'
    picture importance '^Importance .PED-ANOVA.$' '^width$' '^x$' '^act$' '^0[.][0-9][0-9]$'
    ! grep -q '^same$' texts || fail 'a parameter that does not vary'
    good tune plot --kind importance --evaluator fanova runs fanova.svg
    sed -E 's/<[^>]*>/\n/g' fanova.svg >texts
    has texts '^Importance .fANOVA.$' '^width$'
    picture slice '^width$' "^it'?&?.*s$" '^eval_loss$'
    picture parallel '^Each trial a line' '^width$' '^x$' '^eval_loss$'
    picture rungs '^Where trials stopped' '^step$'
    picture all '^History$' '^Importance' '^Each trial a line' '^Where trials stopped' \
        '^Each parameter'
    sed -E 's/<[^>]*>/\n/g' end.svg >texts
    has texts '^History$' '^runs$' # the title that choir tune plot gives it
    good tune --trials 2 --storage sqlite:x.db --study s --space 'x=uniform(0,1)' --plot end.svg \
        -- ./curve '{x}' 1 a '{trial}'
    good tune plot --study s x.db x.svg
    sed -E 's/<[^>]*>/\n/g' end.svg >texts
    has texts '^sqlite:x.db$'
    good tune plot --kind history runs "it's.png"
    [ "$(head -c 4 "it's.png" | tail -c 3)" = PNG ] || fail "no PNG"
    [ "$(stat -c %s "it's.png")" -gt 10000 ] || fail "an empty picture"
}

# Names have room in pictures of few and of many parameters, and a picture says what it leaves out.
many() {
    local name count i file
    for name in p parameter_number_; do
        for count in 1 2 5 8 15; do
            local many=() values=()
            for ((i = 1; i <= count; i++)); do
                many+=(--space "$name$i=uniform(0,1)")
                values+=("{$name$i}")
            done
            good tune --sampler random --trials 20 --storage many.db --study $name$count \
                --scheduler median:startup=9 "${many[@]}" -- ./curve "${values[0]}" \
                "${values[-1]}" a "{trial}" "${values[@]}"
            for kind in all slice parallel importance; do
                good tune plot --study $name$count --kind $kind many.db $kind.svg
                texts_fit $kind.svg
            done
        done
    done
    sed -E 's/<[^>]*>/\n/g' all.svg >texts
    has texts '^Each parameter .*; the 8 most important of 15 parameters$' \
        '^Each trial a line .*; the 12 most important of 15 parameters$' \
        '^and 3 less important parameters$' '^parameter_number_1[0-5]$'
    file=$(printf ',parameter_number_%d' {9..1})
    good tune plot --study parameter_number_15 --params "${file#,}" --kind slice many.db some.svg
    sed -E 's/<[^>]*>/\n/g' some.svg >texts
    has texts '; the first 8 of 9 parameters$' '^parameter_number_2$'
    ! grep -q '^parameter_number_1$' texts || fail 'more than it says'
}

# Steps have the study's unit, stored or not.
# A logarithmic axis of less than two decades has more numbers than its power of ten.
marks() {
    good tune --sampler random --trials 3 --dir narrow --space 'x=uniform(0,1)' \
        --space 'width=int(8,64,log)' -- sh -c 'echo "{\"eval_loss\":$1}"' sh {x} {width}
    good tune plot --kind slice narrow narrow.svg
    sed -E 's/<[^>]*>/\n/g' narrow.svg >texts
    has texts '^10$' '^20$' '^50$'
}

units() {
    good tune --sampler random --trials 4 --dir epochs --unit epoch "${space[@]}" \
        --plot unit.svg -- sh -c './curve "$@" | sed s/step/epoch/' sh "${command[@]:1}"
    good tune plot --kind rungs epochs rungs.svg
    local file
    for file in unit rungs; do
        sed -E 's/<[^>]*>/\n/g' $file.svg >texts
        has texts '^Where trials stopped' '^epoch$'
        ! grep -q '^step$' texts || fail "$file: steps"
    done
}

# Nine trials of a grid try three values of each parameter, nine random ones nine.
grid_beside_random() {
    local two=(--space 'lr=log(1e-3,1)' --space 'momentum=uniform(0,1)')
    local loss=(sh -c 'echo "{\"eval_loss\":$1}"' sh {lr} {momentum})
    good tune --storage grid.db --sampler grid:points=3 "${two[@]}" -- "${loss[@]}"
    good tune --storage random.db --sampler random --trials 9 "${two[@]}" -- "${loss[@]}"
    good tune plot --kind points --params lr,momentum grid.db random.db both.svg
    sed -E 's/<[^>]*>/\n/g' both.svg >texts
    has texts '^9 trials: 3 values of lr, 3 of momentum$' \
        '^9 trials: 9 values of lr, 9 of momentum$' '^grid.db$' '^random.db$'
    # Long choices, beside an axis, stay in the frame.
    good tune --storage long.db --sampler random --trials 9 --space 'rate=uniform(0,1)' \
        --space 'way=choice(adam_with_decoupled_decay,sgd_with_momentum)' -- \
        sh -c 'echo "{\"eval_loss\":$1}"' sh {rate} {way}
    good tune plot --kind points --params rate,way long.db long.svg
    texts_fit both.svg long.svg
}

# Trials in the plane of two metrics; the other kinds draw the metric that is named.
metrics() {
    good tune --storage two.db --trials 12 --sampler random --metric a --metric b:max \
        --space 'x=uniform(0,1)' --space 'y=uniform(0,1)' -- \
        sh -c 'echo "{\"a\":$1,\"b\":$2}"' sh {x} {y}
    good tune plot --kind front two.db front.svg
    sed -E 's/<[^>]*>/\n/g' front.svg >texts
    has texts '^Trials that no other one dominates$' '^a$' '^b$'
    good tune plot --kind history --metric b two.db b.svg
    sed -E 's/<[^>]*>/\n/g' b.svg >texts
    has texts '^b$'
    ! grep -q '^a$' texts || fail 'the other metric'
    bad 2 "two.db has no metric 'c'" tune plot --metric c two.db a.svg
    bad 2 'runs: expected two metrics, got 1, for --kind front' tune plot --kind front runs a.svg
}

numbers() {
    good tune importance runs
    has out '^ 0[.][0-9]+  x$' '^ 0[.][0-9]+  width$' '^ 0[.]000  same$'
    good tune importance --json runs
    has out '^\{"event":"importance","shares":\{"x":0[.].*"same":0\}\}$'
}

evaluators() {
    good tune importance runs
    cp out shares
    good tune importance --evaluator ped-anova runs
    cmp -s out shares || fail "another default: $(cat out)"
    good tune importance --evaluator fanova runs
    has out '^ 0[.][0-9]{3}  x$' '^ 0[.][0-9]{3}  width$' '^ 0[.][0-9]{3}  act$' '^ 0[.]000  same$'
    ! cmp -s out shares || fail 'two evaluators with the same shares'
    good tune importance --evaluator fanova --json runs
    has out '^\{"event":"importance","shares":\{"x":0[.]'
    bad 2 "unknown value 'anova' \(did you mean 'fanova'\?\): choose one of ped-anova, fanova" \
        tune importance --evaluator anova runs
    bad 2 "evaluator fanova: expected it behind 'importance', got 'show'" \
        tune show --evaluator fanova runs
}

wrong() {
    bad 2 'expected studies and then the picture, .*, got runs alone' tune plot runs
    bad 2 'expected a file name that ends with .png or .svg' tune plot runs picture.gif
    bad 2 "unknown picture 'histry' .did you mean 'history'" tune plot --kind histry runs a.svg
    bad 2 "the study has no parameter 'y'" tune plot --params x,y runs a.svg
    bad 2 'expected one study, got 2; several are drawn with --kind points' \
        tune plot runs runs a.svg
    bad 1 '' tune plot none.db a.svg
    [ ! -e a.svg ] || fail 'a picture of nothing'
}

check make_study
check kinds
check evaluators
check many
check units
check marks
check grid_beside_random
check metrics
check numbers
check wrong
finish

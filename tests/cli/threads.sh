# --threads: a device of several cores has the bits of one, for models of every kind.
source "$(dirname "$0")/lib.sh"

# same_on_threads ARG...: steps with 1, 2, 3 and 5 threads; kernels are divided in these sizes.
same_on_threads() {
    local threads
    for threads in 1 2 3 5; do
        good train --strategy single --threads $threads --steps 2 --no-eval --json "$@" random &&
            mv out on$threads || return
        [ "$(field weights_sha256 on1)" = "$(field weights_sha256 on$threads)" ] ||
            fail "$threads threads: $*"
    done
}
mlps() { same_on_threads --model mlp:in=64,hidden=128,classes=10 --batch-size 256; }
recurrent() {
    same_on_threads --model lstm:layers=1,hidden=64,in=32,context=8 --batch-size 64
    same_on_threads --model lstm:cell=gru,layers=1,hidden=64,in=32,context=8 --batch-size 64
}
images() {
    same_on_threads --model cnn:width=8 --batch-size 16
    same_on_threads --model resnet18:image=32,width=16,classes=10 --batch-size 8
}
transformers() {
    local sizes=layers=1,heads=4,width=64,context=32
    same_on_threads --model "gpt2:$sizes,vocab=65,dropout=0.1" --batch-size 32
    same_on_threads --model "llama:$sizes,vocab=65" --batch-size 32 --optimizer lamb
    same_on_threads --model "bert:$sizes,vocab=65" --batch-size 32 --clip 0.5
}

check mlps
check recurrent
check images
check transformers
finish

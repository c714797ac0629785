#!/usr/bin/env bash
# Folders of images: training gives equal bits for any number of workers and ranks, continues in
# mid-epoch, and is evaluated; and folders and files with errors.
corpus=$(cd "$(dirname "$0")/../fuzz/corpus" && pwd) # before lib.sh changes the folder
. "$(dirname "$0")/lib.sh"

"$CHOIR" info --json | grep -q '"images":\["jpeg","png"\]' || skip 'this build reads no images'

# image KIND/NAME FILE: an input of the fuzzers without its first four bytes.
image() { tail -c +5 "$corpus/$1" >"$2"; }

# make_images FOLDER: 2 classes of 12 and 3 images of 27 by 19.
make_images() {
    local i split
    for split in train val; do
        mkdir -p "$1/$split/grey" "$1/$split/red"
        for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
            [ $split = val ] && [ $i -gt 3 ] && break
            image jpeg/gray "$1/$split/grey/$i.jpg"
            case $((i % 4)) in
            0) image jpeg/progressive "$1/$split/red/$i.JPEG" ;;
            1) image png/rgb "$1/$split/red/$i.png" ;;
            2) image jpeg/cmyk "$1/$split/red/$i.jpeg" ;;
            3) image png/palette "$1/$split/red/$i.PNG" ;;
            esac
        done
    done
}
make_images set
job=(--model cnn:width=2 --batch-size 4 --microbatches 2 --json)

same_bits() {
    good train "${job[@]}" --steps 14 set
    grep -q '"cnn:width=2,channels=3,image=19,image_width=27,classes=2,' out ||
        fail 'it is another model'
    mv out one
    good train "${job[@]}" --steps 14 --workers 3 set
    same_run one out
    good train "${job[@]}" --steps 14 --workers 2 --strategy ddp --nproc 2 set
    same_run one out
}

# A run on images that are no squares goes on by its folder alone, which has their shape.
rectangles() {
    local model
    for model in cnn:width=2 lenet:l1=4,l2=4,image=19,image_width=27 \
        resnet18:width=4,stages=1,blocks=1,image=19,image_width=27; do
        rm -rf whole part
        good train --json --model "$model" --batch-size 4 --steps 4 --save whole set
        mv out never_stopped
        good train --json --model "$model" --batch-size 4 --steps 2 --save part set
        good train --json --resume part --steps 4
        same_run never_stopped out 3
        grep -q 'image=19,image_width=27' part/job.json || fail "$(cat part/job.json)"
    done
}

# Large photographs are scaled down where nobody names a size.
large() {
    mkdir -p photos/a photos/b
    python3 -c 'import struct, sys, zlib
def part(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
size = struct.pack(">IIBBBBB", 300, 150, 8, 0, 0, 0, 0)
rows = b"".join(b"\0" + bytes((x + y) % 256 for x in range(300)) for y in range(150))
sys.stdout.buffer.write(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", size) +
                        part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))' >photos/a/1.png
    local name
    for name in a/2 a/3 b/1 b/2 b/3; do cp photos/a/1.png "photos/$name.png"; done
    good train --json --model cnn:width=2 --batch-size 2 --steps 1 photos
    grep -q 'image=64,image_width=128,' out || fail "$(cat out)"
    good train --json --model cnn:width=2,image=150,image_width=300 --batch-size 2 --steps 1 photos
    grep -q 'image=150,image_width=300,' out || fail "$(cat out)"
}

# Augmented samples and balanced classes, too; and other bits than without.
augmented() {
    local how=("${job[@]}" --steps 9 --balance
        --augment "jitter+randaugment+erase:p=0.5+mixup:alpha=0.4+cutmix")
    good train "${how[@]}" set
    mv out changed
    good train "${how[@]}" --workers 3 set
    same_run changed out
    good train "${how[@]}" --strategy ddp --nproc 2 set
    same_run changed out
    good train "${how[@]}" --steps 4 --save changing set
    good train "${how[@]}" --resume changing set
    same_run changed out 5
    good train "${job[@]}" --steps 9 --balance set
    [ "$(field weights_sha256 out)" != "$(field weights_sha256 changed)" ] ||
        fail 'augmentation changes nothing'
    good train "${how[@]}" set+set:first=5 # as one
    bad 2 "unknown augmentation 'jiter' .did you mean 'jitter'" train --augment jiter set
    bad 2 "unknown option 'alfa'" train --augment mixup:alfa=1 set
    bad 1 'changes images with a class each' train --augment mixup --model toy random
    bad 1 'balance: expected a model that gives each sample a class' train --balance --steps 1
}

# The folder's images as tars of WebDataset's.
tars() {
    local split class i=0 file
    for split in train val; do
        mkdir -p flat
        for class in grey red; do
            for file in set/$split/$class/*; do
                i=$((i + 1))
                cp "$file" "flat/$(printf %04d $i).${file##*.}"
                echo $class >"flat/$(printf %04d $i).cls"
            done
        done
        mkdir -p tars
        (cd flat && tar -cf ../tars/$split.tar --sort=name .)
        rm -r flat
    done
    good train "${job[@]}" --steps 14 tars
    mv out packed
    good train "${job[@]}" --steps 14 --workers 3 --strategy ddp --nproc 2 tars
    same_run packed out
    for i in 0 1; do cp tars/train.tar tars/part-$i.tar; done
    good train "${job[@]}" --steps 3 --save shot 'tars/part-{0..1}.tar'
    good eval --per-class shot tars
    grep -qE ' grey$' out && grep -qE ' red$' out || fail "$(cat out)"
    head -c 5000 tars/train.tar >cut.tar
    bad 1 "cut.tar.*cut short" train "${job[@]}" cut.tar
    head -c 1024 /dev/urandom >noise.tar
    bad 1 'noise.tar, byte 0: expected the header of a member' train "${job[@]}" noise.tar
    bad 1 'tars/part-2.tar: cannot be opened' train "${job[@]}" 'tars/part-{0..2}.tar'
}

# pack FOLDER FIRST LAST: a tar of images with numbers as classes, 0, 1 and 2 in turns.
pack() {
    local i
    rm -rf flat && mkdir flat
    for i in $(seq -w "$2" "$3"); do
        image png/rgb flat/$i.png
        echo $((10#$i % 3)) >flat/$i.cls
    done
    (cd flat && tar -cf "$OLDPWD/$1" --sort=name .)
}

# Which tars of a folder are of which split; a class that training lacks, and an empty image.
splits_of_tars() {
    mkdir -p 'named[1]' less held
    pack 'named[1]/a.tar' 01 30
    good train "${job[@]}" --steps 8 --save three 'named[1]'
    good eval --json --per-class three 'named[1]'
    ! grep -q '"samples":0' out || fail "a class is not held out: $(cat out)"
    has out '"samples":4,.*"classes"'
    good train "${job[@]}" --steps 6 --val-split 0.2 --save fifth 'named[1]'
    good eval --json fifth 'named[1]'
    [ "$(field samples out)" = 7 ] || fail "a fifth of 30, and a class without: $(cat out)"
    good train "${job[@]}" --steps 4 --val-split 0.25 --save quarter set/train
    good eval --json quarter set/train
    [ "$(field samples out)" = 6 ] || fail "a quarter of two classes of 12: $(cat out)"
    bad 1 'val-split 0.5: set has a validation split of its own' \
        train "${job[@]}" --val-split 0.5 set
    pack 'named[1]/val-0.tar' 01 06
    good train "${job[@]}" --steps 8 'named[1]'
    good eval --json three 'named[1]'
    [ "$(field samples out)" = 6 ] || fail "val-0.tar: $(cat out)"
    pack held/val-0.tar 01 06
    good eval --json three held
    [ "$(field samples out)" = 6 ] || fail "only val-0.tar: $(cat out)"
    bad 1 'held has tars for validation alone: train.*are missing' train "${job[@]}" held
    rm -rf flat && mkdir flat
    image png/rgb flat/1.png && echo 0 >flat/1.cls
    (cd flat && tar -cf ../less/train-0.tar .)
    cp held/val-0.tar less/
    good eval --json three less
    [ "$(field samples out)" = 6 ] || fail "classes that training lacks: $(cat out)"
    : >flat/2.png
    echo 1 >flat/2.cls
    (cd flat && tar -cf ../less/train-0.tar --sort=name .)
    bad 1 'train-0.tar: ./2.png is empty: expected an image' train "${job[@]}" less
}

resumes_in_mid_epoch() {
    good train "${job[@]}" --steps 8 --save half set # an epoch has 6 steps
    good train "${job[@]}" --steps 14 --resume half --workers 4 set
    same_run one out 9
}

sizes() {
    good train "${job[@]}" --model cnn:width=2,image=12,channels=3 --steps 2 --save small set
    grep -q '"cnn:width=2,channels=3,image=12,classes=2,' out || fail 'it is another model'
    mv out run
    good eval --json --batch-size 2 --workers 2 small set
    [ "$(field loss out)" = "$(field eval_loss run)" ] ||
        fail "eval says $(field loss out), train said $(field eval_loss run)"
    good eval --per-class --batch-size 4 small set
    grep -qE '^ +3 +[0-6] .* grey$' out && grep -qE '^ +3 +[0-6] .* red$' out || fail "$(cat out)"
    good eval --per-class --json small set
    grep -q '"classes":\[{"class":"grey","samples":3,"predictions":' out || fail "$(cat out)"
    good train "${job[@]}" --model mlp:hidden=4 --steps 1 set
}

bad_folders() {
    make_images other
    cp -r other alike && mv alike/train/red alike/train/zinc && mv alike/val/red alike/val/zinc
    bad 1 'expected the classes of source 0' train "${job[@]}" other+alike
    rm -r alike
    mkdir other/train/blue
    bad 1 'other/train/blue: the class has no images' train "${job[@]}" other
    image png/rgb other/train/blue/1.png
    bad 1 "expected the name of one of the model's classes: grey, red" eval small other
    mkdir -p hollow/train
    bad 1 'hollow/train has no folders of classes' train "${job[@]}" hollow
    bad 1 'expected a text file, got set, a folder' train --model gpt2 set
    bad 2 "workers: expected a whole number from 1 to 64, got '0'" train --workers 0 set
    bad 2 "workers: .* to 64, got '1000'" train --workers 1000 set
    mkdir -p single/grey && cp set/val/grey/1.jpg single/grey
    bad 1 'too few images for some to be held out' train "${job[@]}" single
    cp -r set latin && mv latin/train/grey latin/train/$'caf\xe9'
    bad 1 'expected folders of classes whose names are UTF-8, got other bytes in that of class 0' \
        train "${job[@]}" latin
}

# An unusable file in the middle of an epoch ends the run, and is named.
bad_files() {
    local ranks
    for ranks in 1 2; do
        local how=(--steps 12 --workers 3)
        [ $ranks = 2 ] && how+=(--strategy ddp --nproc 2)
        rm -rf torn && make_images torn
        head -c 300 set/train/grey/7.jpg >torn/train/grey/7.jpg
        fails "torn/train/grey/7.jpg is cut short" "${how[@]}"
        echo 'a text' >torn/train/grey/7.jpg
        fails "torn/train/grey/7.jpg: expected a JPEG or PNG" "${how[@]}"
        rm torn/train/grey/7.jpg && mkdir torn/train/grey/7.jpg # skipped by the reader
        good train "${job[@]}" --batch-size 2 "${how[@]}" torn
    done
}
fails() {
    choir train "${job[@]}" "${@:2}" torn >out 2>err </dev/null
    local status=$?
    [ $status -eq 1 ] || fail "status $status: $(cat err)"
    is_one_line "$1.*[(]sample [0-9]+ of the dataset[)]" || fail "it says '$(cat err)'"
}

# A published folder says how its images are prepared, for training, checkpoints and predictions.
prepared() {
    local small=vit:layers=1,heads=2,width=16,patch=8,image=16,classes=2
    local settings=published/preprocessor_config.json
    local first='{"image_mean": [0.5, 0.4, 0.3], "image_std": 0.25,'
    good train --model $small --steps 1 --batch-size 4 --save plain set
    cp -rL plain/latest published
    rm published/state.json published/job.json
    good train "${job[@]:2}" --model published --steps 3 set
    mv out imagenet
    echo "$first"' "size": {"height": 20, "width": 24}}' >$settings
    good train "${job[@]:2}" --model published --steps 3 --save tuned set
    [ "$(field weights_sha256 out)" != "$(field weights_sha256 imagenet)" ] ||
        fail 'the settings change nothing'
    cmp $settings tuned/latest/preprocessor_config.json || fail 'the checkpoint has others'
    good predict --json --top 2 tuned set/val/red/1.png
    good predict --json --top 2 published set/val/red/1.png
    mv out stretched
    echo "$first"' "size": 20, "do_center_crop": true}' >$settings
    good predict --json --top 2 published set/val/red/1.png
    cmp -s out stretched && fail 'the image is not cut out of another one'
    echo '{"resample": 3}' >$settings
    noted "'resample' is 3: .* a bilinear filter" \
        train --quiet --batch-size 4 --model published --steps 1 set
    echo '{"size": {"height": 20}}' >$settings
    bad 1 "key 'size' is .*: expected height and width, or shortest_edge" \
        predict published set/val/red/1.png
    echo '{"image_mean": [0.5, 0.5]}' >$settings
    bad 1 "key 'image_mean' is .*: expected three numbers" eval published set
    echo '{"image_std": 0}' >$settings
    bad 1 "key 'image_std' is 0: expected numbers above 0" train --model published set
    echo '{"rescale_factor": 1}' >$settings
    bad 1 "key 'rescale_factor' is 1: expected 1/255" train --model published set
    echo '[]' >$settings
    bad 1 'preprocessor_config.json: expected a JSON object' train --model published set
}

check same_bits
check rectangles
check large
check prepared
check augmented
check tars
check splits_of_tars
check resumes_in_mid_epoch
check sizes
check bad_folders
check bad_files
finish

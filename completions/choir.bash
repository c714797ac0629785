# Bash completion for choir: commands, their long options, and the values that are names. It runs
# no program, so it is as fast as the shell. A new option goes into the list of its command.
_choir()
{
    local commands="train compare eval generate checkpoint run bench top info"
    local train="--model --bytes --tokenizer --workers --batch-size --microbatches --seed --strategy --mesh --nproc --devices
        --rendezvous --key-file --threads --mem-cap --timeout --backend --steps --epochs --optimizer --lr --schedule
        --weight-decay --clip --eval-every --eval-batches --save --save-every --resume --init --json
        --quiet --log-every --trace --weights --no-eval --recompute --amp --help"
    local compare="--strategies --mesh --repeats --plot --splits --devices --microbatches --batch-size --steps
        --model --bytes --tokenizer --workers --seed --threads --mem-cap --timeout --backend --optimizer --lr
        --schedule --weight-decay --clip --init --weights --json --help"
    local eval="--batch-size --eval-batches --workers --json --help"
    local generate="--prompt --image --tokens --temperature --top-k --seed --help"
    local checkpoint="--shards --dtype --json --help"
    local bench="--ranks --backend --min --max --factor --algorithm --dtype --op --json --help"
    local top="--once --interval --dump --json --help"
    local run="--nproc-per-node --nnodes --node-rank --master-addr --master-port --standalone
        --rdzv-backend --rdzv-endpoint --rdzv-id --max-restarts --monitor-interval --redirects --tee
        --log-dir --local-ranks-filter --timeout --key-file --help"
    local info="--json --help"
    local values="" word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]}

    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "$commands --help --version" -- "$word"))
        return
    fi
    [[ " $commands " == *" $command "* ]] || return

    if [[ $command == train || $command == compare ]]; then
        case $before in
        --model)
            values="toy mlp cnn resnet18 resnet34 resnet50 resnet101 resnet152 alexnet gpt2 bert
                llama mistral lstm donut"
            ;;
        --strategy | --strategies) values="single dp dp-balanced ddp fsdp tp mp pipeline hogwild diloco
            local-sgd" ;;
        --optimizer) values="sgd adam adamw lamb" ;;
        --schedule) values="constant cosine linear step multistep exponential polynomial restarts
            one_cycle cyclic inverse_sqrt" ;;
        --init) values="choir torch" ;;
        --amp) values="off bf16 fp16 O0 O1 O2 O3" ;;
        --backend) values="shm ucx mpi nccl" ;;
        esac
    elif [[ $command == bench ]]; then
        case $before in
        bench)
            values="all_reduce all_gather reduce_scatter broadcast reduce gather scatter all_to_all
                sendrecv barrier"
            ;;
        --dtype) values="f32 f64 bf16 f16 i64 i32 u8 bool" ;;
        --op) values="sum mean min max prod band bor bxor" ;;
        --backend) values="shm ucx mpi nccl" ;;
        --algorithm)
            values="exchange direct staged binomial halving hierarchical ring double_tree native"
            ;;
        esac
    elif [[ $command == checkpoint ]]; then
        case $before in
        checkpoint) values="inspect verify convert" ;;
        --dtype) values="f32 bf16 f16" ;;
        esac
    elif [[ $command == run ]]; then
        case $before in
        --nproc-per-node) values="auto cpu gpu" ;;
        --rdzv-backend) values="static c10d" ;;
        esac
    fi

    if [[ -n $values && $word != -* ]]; then
        COMPREPLY=($(compgen -W "$values" -- "$word"))
    elif [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "${!command}" -- "$word"))
    else
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}
complete -F _choir choir

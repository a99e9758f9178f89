#!/bin/sh
# No key is accepted that nothing reads: each key is changed, and what a command then prints or
# writes changes, or the command refuses the key. A key without a line here fails.
. "$(dirname "$0")/lib.sh"

tiny
sed 's/steps: 5/steps: 2/' tiny.yaml >base.yaml
head -n 40 text >short
"$ZERO3D" data tokenize short --output other.bin >/dev/null || fail "tokenize"
printf 'stage,pass,chunk,micro\n' >order.csv
expect 0 "$ZERO3D" train base.yaml checkpoint.interval=2 run.dir=first
expect 0 "$ZERO3D" train base.yaml checkpoint.interval=2 checkpoint.init_from=first/checkpoints lora.r=2 run.dir=adapter
cp -r first broken
printf x | dd of="$(echo broken/checkpoints/step-*/shard-00000.h5)" bs=1 seek=100000 conv=notrunc 2>dd.err || fail "dd"

# Leaves out what two equal runs differ in: times, rates, and the memory that libraries take.
without_times() {
    sed -E 's/"[a-z_]*(time|seconds|_ms|_s|per_second|tflops|mfu|hfu|outside|pid|unix)[a-z_]*":[^,}]*//g
        s/^([0-9]+\/[0-9]+ +[^ ]+ +[^ ]+ +[^ ]+) .*/\1/
        s/[0-9][0-9.,e+-]* ?[KMG]? (tokens\/s|ns|us|ms|s|min|h|[GT]FLOPS|%|. )//g
        s/peak [0-9.]+ .iB//; s/[0-9.]+ .iB that are free//; s/[0-9.]+ .iB outside//; s/20[0-9][0-9]-[-0-9T:.Z]*//g' |
        grep -Ev '^(loaded|trace|  (outside|MPI|other libraries|the program|heap and stacks|total) )'
}

# show COMMAND key=value...: all that it says and leaves.
show() {
    how=$1
    shift
    rm -rf run save
    {
        case $how in
        plan*) "$ZERO3D" plan base.yaml --ranks "${how#plan}" --print-program "$@" ;;
        described) "$ZERO3D" plan base.yaml --ranks 16 --hardware "$SOURCE/configs/hardware/dgx-h100.yaml" "$@" ;;
        train*) "$LAUNCH" -n "${how#train}" "$ZERO3D" train base.yaml "$@" </dev/null ;;
        generate) "$ZERO3D" generate first/checkpoints --prompt "Line 2" generate.tokens=30 "$@" ;;
        export) "$ZERO3D" train base.yaml checkpoint.interval=2 training.steps=2 "$@" && "$ZERO3D" checkpoint export run/checkpoints/step-00000002 run/exported && cat run/exported/config.json ;;
        esac
        find run save -type f -print 2>/dev/null | LC_ALL=C sort
        cat run/metrics.jsonl run/digest-rank0.txt 2>/dev/null
    } 2>&1 | without_times
}

# differ COMMAND KEY=VALUE [key=value...]: KEY changes what the command, with the other keys, shows.
differ() {
    how=$1
    what=$2
    shift 2
    was="$(printf '%s' "$how $*" | cksum | tr ' ' _).was"
    # Two equal runs differ in nothing: without_times leaves out enough.
    [ -f "$was" ] || {
        show "$how" "$@" >"$was"
        show "$how" "$@" >now
        cmp -s "$was" now || fail "$how: two equal runs with $* differ: $(diff "$was" now)"
    }
    show "$how" "$@" "$what" >now
    ! cmp -s "$was" now || fail "$how: $what with $* changes nothing"
    echo "${what%%=*}" >>tried
}

LLAMA="model.type=llama"
YARN="$LLAMA model.rope_scaling.rope_type=yarn model.rope_scaling.factor=4 model.rope_scaling.original_max_position_embeddings=4096"
while read -r line; do
    # shellcheck disable=SC2086 # words
    case $line in
    "" | "#"*) ;;
    *) eval "set -- $line" && differ "$@" ;;
    esac
done <<END
plan1 model.type=llama
plan1 model.num_layers=3
plan1 model.hidden_size=64
plan1 model.num_attention_heads=2
plan1 model.seq_length=16
plan1 model.vocab_size=300
plan1 model.make_vocab_size_divisible_by=1024
plan1 model.hidden_dropout=0.1
train1 model.attention_dropout=0.1
train1 model.init_method_std=0.03
plan1 model.num_key_value_heads=2 $LLAMA
plan1 model.head_dim=16 $LLAMA
plan1 model.intermediate_size=64 $LLAMA
train1 model.rms_norm_eps=1e-2 $LLAMA
train1 model.rope_theta=500000 $LLAMA
train1 model.rope_scaling.rope_type=linear $LLAMA model.rope_scaling.factor=4
train1 model.rope_scaling.factor=8 $YARN
train1 model.rope_scaling.original_max_position_embeddings=64 $YARN
train1 model.rope_scaling.low_freq_factor=2 $LLAMA model.rope_scaling.rope_type=llama3 model.rope_scaling.factor=4 model.rope_scaling.original_max_position_embeddings=8
train1 model.rope_scaling.high_freq_factor=8 $LLAMA model.rope_scaling.rope_type=llama3 model.rope_scaling.factor=4 model.rope_scaling.original_max_position_embeddings=8
train1 model.rope_scaling.beta_fast=1.5 $YARN
train1 model.rope_scaling.beta_slow=0.1 $YARN
train1 model.rope_scaling.attention_factor=2 $YARN
train1 model.rope_scaling.mscale=2 $YARN model.rope_scaling.mscale_all_dim=1
train1 model.rope_scaling.mscale_all_dim=2 $YARN model.rope_scaling.mscale=1
plan1 model.sliding_window=4 $LLAMA
plan1 model.attention_bias=true $LLAMA
plan1 model.qk_norm=true $LLAMA
plan1 model.tie_word_embeddings=true $LLAMA
plan1 model.tiling=2
plan2 parallel.tensor_model_parallel_size=2
plan2 parallel.sequence_parallel=true parallel.tensor_model_parallel_size=2
plan2 parallel.pipeline_model_parallel_size=2
plan2 parallel.virtual_pipeline_model_parallel_size=2 parallel.pipeline_model_parallel_size=2 gradient_accumulation_steps=2
plan2 parallel.pipeline_schedule=gpipe parallel.pipeline_model_parallel_size=2 gradient_accumulation_steps=4
plan2 parallel.pipeline_schedule_file=order.csv parallel.pipeline_model_parallel_size=2 parallel.pipeline_schedule=file
plan2 "parallel.pipeline_partition=[1, 3]" parallel.pipeline_model_parallel_size=2
plan2 "parallel.device_speeds=[1, 0.5]"
described parallel.allow_tensor_across_nodes=true parallel.tensor_model_parallel_size=16 model.num_attention_heads=16 model.hidden_size=64 training.device=cuda train_batch_size=16
plan4 parallel.collective_algorithm=hierarchical parallel.ranks_per_node=2
plan4 parallel.ranks_per_node=2 parallel.collective_algorithm=hierarchical
train1 parallel.world_size=3
train1 parallel.elastic=true
plan1 train_batch_size=4
plan1 train_micro_batch_size_per_gpu=4 gradient_accumulation_steps=auto
plan1 gradient_accumulation_steps=2
train1 gradient_clipping=0.1
plan2 communication_data_type=bf16
plan2 zero_optimization.stage=3
plan2 zero_optimization.reduce_bucket_size=100
plan2 zero_optimization.allgather_bucket_size=100
plan2 zero_optimization.overlap_comm=false
plan2 zero_optimization.grad_reduce=per_step gradient_accumulation_steps=2
plan4 zero_optimization.pipeline_gather=per_microbatch zero_optimization.stage=3 parallel.pipeline_model_parallel_size=2 gradient_accumulation_steps=2
plan4 zero_optimization.mics_shard_size=2
plan4 zero_optimization.zero_hpz_partition_size=2 zero_optimization.stage=3
plan2 zero_optimization.stage3_param_persistence_threshold=1e4 zero_optimization.stage=3
plan1 zero_optimization.sub_group_size=1000 zero_optimization.offload_optimizer.device=cpu
plan2 zero_optimization.offload_optimizer.device=cpu
train1 zero_optimization.offload_optimizer.nvme_path=elsewhere zero_optimization.offload_optimizer.device=nvme
plan1 zero_optimization.offload_optimizer.buffer_count=2 zero_optimization.offload_optimizer.device=nvme zero_optimization.offload_optimizer.nvme_path=disk zero_optimization.sub_group_size=1000
plan1 zero_optimization.offload_optimizer.ratio=0.5 zero_optimization.offload_optimizer.device=cpu
plan1 zero_optimization.offload_optimizer.delayed_param_update=true zero_optimization.offload_optimizer.device=cpu
plan2 zero_optimization.offload_param.device=cpu zero_optimization.stage=3 zero_optimization.offload_optimizer.device=cpu
train1 zero_optimization.offload_param.nvme_path=elsewhere zero_optimization.stage=3 zero_optimization.offload_optimizer.device=cpu zero_optimization.offload_param.device=nvme
plan2 zero_optimization.stage3_prefetch_bucket_size=0 zero_optimization.stage=3 zero_optimization.offload_optimizer.device=cpu zero_optimization.offload_param.device=cpu
plan2 zero_optimization.stage3_max_live_parameters=1 zero_optimization.stage=3
plan2 zero_optimization.stage3_max_reuse_distance=1e6 zero_optimization.stage=3
plan1 activation_checkpointing.granularity=none
plan1 activation_checkpointing.recompute_activation=false
plan2 activation_checkpointing.partition_activations=true activation_checkpointing.granularity=full parallel.tensor_model_parallel_size=2
plan1 activation_checkpointing.cpu_checkpointing=true activation_checkpointing.granularity=full
train1 activation_checkpointing.nvme_path=elsewhere activation_checkpointing.granularity=full activation_checkpointing.cpu_checkpointing=nvme
plan1 activation_checkpointing.number_checkpoints=1 activation_checkpointing.granularity=full
plan1 activation_checkpointing.replay=full activation_checkpointing.granularity=full
plan1 data_types.grad_accum_dtype=bf16 bf16.enabled=true gradient_accumulation_steps=2
plan1 fp16.enabled=true
train1 fp16.loss_scale=8 fp16.enabled=true
train1 fp16.initial_scale_power=4 fp16.enabled=true
train1 fp16.loss_scale_window=1 fp16.enabled=true training.steps=4
train1 fp16.hysteresis=1 fp16.enabled=true fp16.initial_scale_power=40
train1 fp16.min_loss_scale=1e11 fp16.enabled=true fp16.initial_scale_power=37
plan1 bf16.enabled=true
plan1 optimizer.type=SGD
train1 optimizer.params.lr=1e-2
train1 "optimizer.params.betas=[0.5, 0.6]"
train1 optimizer.params.eps=1e-2
train1 optimizer.params.momentum=0.1 optimizer.type=SGD training.steps=4
train1 optimizer.params.weight_decay=0.5
train1 optimizer.params.adam_w_mode=false optimizer.type=Adam
train1 "optimizer.param_groups=*bias lr_scale=0"
train1 "training.freeze=*bias"
plan1 optimizer.ema_decay=0.9
plan1 optimizer.params.exp_avg_dtype=bf16 optimizer.params.exp_avg_sq_dtype=bf16
plan1 optimizer.params.exp_avg_sq_dtype=bf16 optimizer.params.exp_avg_dtype=bf16
train1 scheduler.type=WarmupCosineLR
train1 scheduler.params.warmup_num_steps=2 scheduler.type=WarmupLR
train1 scheduler.params.total_num_steps=9 scheduler.type=WarmupDecayLR
train1 scheduler.params.min_lr=1e-4 scheduler.type=WarmupDecayLR
train1 scheduler.params.warmup_ratio=1 scheduler.type=WarmupLR
train1 scheduler.params.num_decay_steps=2 scheduler.type=warmup_stable_decay
train1 scheduler.params.decay_type=1-sqrt scheduler.type=warmup_stable_decay scheduler.params.num_decay_steps=2
train1 scheduler.params.power=2 scheduler.type=polynomial
train1 scheduler.params.num_cycles=2 scheduler.type=cosine_with_restarts
train1 lora.r=2
train1 lora.lora_alpha=2 lora.r=2
train1 lora.lora_dropout=0.5 lora.r=2
train1 lora.use_rslora=true lora.r=2
train1 lora.target_modules=c_proj lora.r=2
train1 lora.modules_to_save=ln_f lora.r=2
train1 lora.init_from=nowhere lora.r=2
train1 data.train=other.bin
train1 data.validation=other.bin
train1 data.seed=5
train1 data.samples=documents
train1 data.too_long=split data.samples=documents
train1 data.tokenizer=gpt2 generate.prompt=Line
train1 data.vocab=nowhere.json
generate data.special=bos
train1 data.merges=nowhere.txt
train1 training.steps=3
train1 training.epochs=0.1
train1 training.seed=5
train1 training.device=cuda
train1 training.collectives=nccl
train1 training.nccl.windows=true
train1 training.attention=own
train1 training.deterministic=false
train1 training.tf32=true
train1 training.cuda_graph=on
train1 training.hardware=nowhere.yaml
train1 training.threads=2
train1 training.gemm.fp32=portable
train1 training.gemm.bf16=portable bf16.enabled=true model.hidden_size=64
train1 training.gemm.fp16=portable fp16.enabled=true model.hidden_size=64
train1 training.gemm.cuda=wrong
train1 training.log_interval=4 training.steps=4
train1 training.eval_interval=1 data.validation=other.bin
train1 training.eval_steps=1 data.validation=other.bin training.eval_interval=1
train1 training.early_stopping_patience=1 data.validation=other.bin training.eval_interval=1 optimizer.params.lr=0 training.steps=3
train1 training.max_skipped_steps=1 fp16.enabled=true fp16.initial_scale_power=100
train1 training.peak_tflops=0.2 --verbose
train1 training.digest=true
train1 training.trace_steps=1
train1 training.time_limit=0.000001
train1 checkpoint.dir=save checkpoint.interval=2
train1 checkpoint.interval=1
train1 checkpoint.keep=1 checkpoint.interval=1
train1 checkpoint.keep_best=true data.validation=other.bin training.eval_interval=1 checkpoint.interval=2
train1 checkpoint.resume=first/checkpoints/step-00000002
train1 checkpoint.init_from=first/checkpoints
train1 checkpoint.base=nowhere checkpoint.resume=adapter/checkpoints lora.r=2 training.steps=3
train1 checkpoint.verify=sizes checkpoint.resume=broken/checkpoints training.steps=3
export checkpoint.export.dtype=bf16
export checkpoint.export.max_position_embeddings=64 $LLAMA
plan1 checkpoint.async=true checkpoint.interval=1
train2 comms_logger.enabled=true
train2 comms_logger.prof_all=false comms_logger.enabled=true "comms_logger.prof_ops=[all_reduce]"
train2 "comms_logger.prof_ops=[all_reduce]" comms_logger.enabled=true comms_logger.prof_all=false
train1 run.dir=elsewhere
train1 run.tensorboard=true
train1 generate.prompt=other
train1 "generate.prompts=[other]"
train1 generate.every=1 generate.prompt=Line
generate generate.tokens=20
generate generate.temperature=0
generate generate.top_k=1
generate generate.top_p=0.01
generate generate.repetition_penalty=90
generate "generate.stop=[4]"
generate generate.ignore_eos=false generate.temperature=100 generate.top_k=0 generate.tokens=400
generate generate.batch=2
generate generate.seed=3
END

# What these do needs a fault: a rank that hangs (stuck.sh), a program that is wrong (base_program, plan_prove).
printf 'training.watchdog_timeout\ntraining.verify\n' >>tried
"$ZERO3D" config --keys | LC_ALL=C sort -u >all
LC_ALL=C sort -u tried >some
left=$(LC_ALL=C comm -23 all some | tr '\n' ' ')
[ -z "$left" ] || fail "these keys are not tried: $left"

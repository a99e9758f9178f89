#!/bin/bash
# A part of a script in the style of Megatron-LM's examples.
DATA=corpus/text
VOCAB_FILE="gpt2/vocab.json"

DISTRIBUTED_ARGS=(
    --nproc_per_node 8
    --nnodes 1
)
GPT_MODEL_ARGS=(
    --num-layers 24 # blocks
    --hidden-size 1024
    --num-attention-heads 16
    --seq-length 1024
    --max-position-embeddings 1024
)
TRAINING_ARGS="
    --micro-batch-size 4 \
    --global-batch-size=32 \
    --train-iters 5000 \
    --lr 1.5e-4 --min-lr 1.0e-5 \
    --lr-decay-style cosine \
    --lr-warmup-iters 50 --lr-decay-iters 4000 \
    --adam-beta2 0.95 --weight-decay 1e-2 --clip-grad 1.0 \
    --fp16 --initial-loss-scale 65536 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
"
OTHER_ARGS=(
    --tensor-model-parallel-size 2
    --sequence-parallel
    --use-distributed-optimizer
    --overlap-grad-reduce
    --data-path 0.3 ${DATA}_a 0.7 ${DATA}_b
    --tokenizer-type GPT2BPETokenizer
    --vocab-file $VOCAB_FILE
    --merge-file 'gpt2/merges.txt'
    --save checkpoints/gpt --load checkpoints/gpt --save-interval 1000
    --log-interval 100
    --eval-iters 10
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${GPT_MODEL_ARGS[@]} ${TRAINING_ARGS[@]} "${OTHER_ARGS[@]}"

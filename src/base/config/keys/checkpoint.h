/* Keys: checkpoints. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_CHECKPOINT_H
#define ZERO3D_BASE_CONFIG_KEYS_CHECKPOINT_H

/* clang-format off */
#define Z3D_CONFIG_CHECKPOINT_KEYS(X) \
    X(checkpoint_dir, "checkpoint.dir", \
      STRING, "", "", NONE, FREE, STAYS, \
      "folder of the run's checkpoints; unset: checkpoints in run.dir") \
    X(checkpoint_interval, "checkpoint.interval", \
      INT, "auto", "[0,1e12] auto epoch", NONE, FREE, STAYS, \
      "steps between checkpoints. If not 0, the run also saves at its end and when a signal " \
      "stops it. auto: 1000. epoch (needs training.epochs): the steps of one pass over " \
      "data.train, rounded up. 0: no checkpoints, the model is lost") \
    X(checkpoint_keep, "checkpoint.keep", \
      INT, "3", "[0,1e6]", NONE, FREE, STAYS, \
      "number of latest checkpoints to keep; 0: all. Checkpoints that were renamed as damaged " \
      "are kept and not counted") \
    X(checkpoint_keep_best, "checkpoint.keep_best", \
      BOOL, "false", "", NONE, FREE, STAYS, \
      "also keep the checkpoint of the lowest validation loss, as best in checkpoint.dir: each " \
      "lower loss is saved at its step, also between the steps of checkpoint.interval. Needs " \
      "data.validation") \
    X(checkpoint_resume, "checkpoint.resume", \
      STRING, "auto", "", FILES, FREE, STANDARD, \
      "auto: resume from the latest checkpoint in checkpoint.dir, if there is one (also with " \
      "checkpoint.interval: 0). never: start a new run; the folder must have no checkpoints. A " \
      "path: resume from that checkpoint") \
    X(checkpoint_init_from, "checkpoint.init_from", \
      STRING, "", "", FILES, FREE, STAYS, \
      "path of a checkpoint: a new run starts with its weights. A relative path is looked for " \
      "beside this file first") \
    X(checkpoint_base, "checkpoint.base", \
      STRING, "", "", NONE, FREE, STANDARD, \
      "path of the checkpoint with the frozen parameters that the loaded checkpoint leaves out; " \
      "unset: the path when the run began") \
    X(checkpoint_verify, "checkpoint.verify", \
      ENUM, "full", "full|read|sizes", NONE, FREE, STAYS, \
      "check of a checkpoint before its use. full: the digest of every byte; read: the digests " \
      "of the parts that this run reads; sizes: only the files' sizes") \
    X(checkpoint_export_dtype, "checkpoint.export.dtype", \
      ENUM, "fp32", "fp32|bf16|fp16", NONE, FREE, STAYS, \
      "type of the tensors in an export, unless --dtype says another; an import sets it to the " \
      "model's own") \
    X(checkpoint_export_max_position_embeddings, "checkpoint.export.max_position_embeddings", \
      INT, "auto", "[1,16777216] auto", NONE, FREE, STAYS, \
      "llama: max_position_embeddings in an export's config.json; an import sets the model's " \
      "own, which a run with a shorter model.seq_length keeps. auto: model.seq_length") \
    X(checkpoint_async, "checkpoint.async", \
      BOOL, "false", "", SUM, FREE, STAYS, \
      "save from a copy in host memory while training continues")
/* clang-format on */

#endif

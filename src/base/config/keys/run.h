/* Keys: what a run writes and reports. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_RUN_H
#define ZERO3D_BASE_CONFIG_KEYS_RUN_H

/* clang-format off */
#define Z3D_CONFIG_RUN_KEYS(X) \
    X(comms_logger_enabled, "comms_logger.enabled", \
      BOOL, "false", "", NONE, FREE, STAYS, \
      "report the bytes that each kind of collective sends, inside a node and between nodes: in " \
      "metrics.jsonl, at the end of the run and in zero3d report. Nodes are those of " \
      "parallel.ranks_per_node, if it is set") \
    X(comms_logger_prof_all, "comms_logger.prof_all", \
      BOOL, "true", "", NONE, FREE, STAYS, \
      "report all kinds of collectives; false: those of comms_logger.prof_ops") \
    X(comms_logger_prof_ops, "comms_logger.prof_ops", \
      LIST, "", "texts", NONE, FREE, STAYS, \
      "kinds of collectives that are reported with comms_logger.prof_all false: a list of " \
      "all_reduce, reduce_scatter, all_gather, broadcast and send") \
    X(run_dir, "run.dir", \
      STRING, "runs/default", "", NONE, FREE, STAYS, \
      "folder that the run writes to") \
    X(run_tensorboard, "run.tensorboard", \
      BOOL, "true", "", NONE, FREE, STAYS, \
      "write TensorBoard event files")
/* clang-format on */

#endif

/* src/cli: the program `zero3d`: one file per command behind one table (main.c). A command reads
 * its arguments, calls the library and prints; nothing is decided here. */
#ifndef ZERO3D_CLI_CLI_H
#define ZERO3D_CLI_CLI_H

#include <stdbool.h>

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/base/config.h"

/* Exit codes: wrong usage differs from failed work. */
enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_UNFINISHED =
        75 /* stopped and saved a checkpoint: start it again (EX_TEMPFAIL of sysexits.h) */
};

typedef struct cli_command {
    const char *name, *summary;
    const char *help;                  /* what `zero3d NAME --help` prints: at most a screen */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns the exit code */
    bool computes;                     /* with all threads for a while */
    const char *words;                 /* what may follow its name, for completion; NULL: a path */
    bool configured;                   /* its second argument and those after it are key=value */
} cli_command;

extern const cli_command cli_train, cli_plan, cli_reproduce, cli_data, cli_checkpoint, cli_generate,
    cli_evaluate, cli_submit, cli_config, cli_doctor, cli_prove, cli_digest, cli_trace, cli_report,
    cli_replay, cli_completion;
/* All commands in the order of the help text; ends with NULL. */
extern const cli_command *const cli_commands[];

enum { CLI_MAX_VALUES = 32 };

/* The values of an option that may be given several times, in order. */
typedef struct cli_values {
    const char *value[CLI_MAX_VALUES];
    int count;
} cli_values;

/* One option of a command: "--name VALUE" (or "--name=VALUE") when `value` or `values` is not NULL,
 * else "--name", which sets *flag. Given again, `value` is the last, `values` has all. With value
 * and flag, "--name" may have no value; its value is a picture's file, an argument that ends in
 * .svg. */
typedef struct cli_option {
    const char *name; /* without dashes; NULL ends a list */
    const char **value;
    bool *flag;
    cli_values *values;
} cli_option;

/* Removes the options from argv[1..] and leaves the other arguments there, in order: argv[1 ..
 * *count]. After "--" nothing is an option. ERR_USAGE on an unknown option or a missing value. */
z3d_status cli_parse(int argc, char **argv, const cli_option *options, int *count);
/* Whether a program of this name is in the environment's PATH. */
bool cli_is_in_path(const char *name);
/* Whether a word is likely the misspelt `name` of a command or an option. */
bool cli_is_near(const char *given, const char *name);

/* What zero3d plan --calibrate is asked for. software: NULL: the nearest. */
typedef struct cli_calibration {
    const char *hardware, *software, *write;
    const cli_values *steps; /* CSV files, and folders of runs */
} cli_calibration;
z3d_status cli_plan_calibrate(const z3d_config *config, const cli_calibration *asked,
                              z3d_string *out);

/* Reads CONFIG and the key=value arguments after it: arguments[0 .. count-1]. ERR_USAGE if an
 * argument is not an assignment; ERR_CONFIG with every error of both and of z3d_config_check, and
 * if no key of the model is set. The caller destroys *out. */
z3d_status cli_read_config(int count, char **arguments, z3d_config **out);

/* The same for a command that knows its number of ranks: the error also has what is wrong for that
 * number. */
z3d_status cli_read_config_for(int count, char **arguments, int ranks, z3d_config **out);

/* Prints the last error as "zero3d: ..."; returns the exit code for `status` (0 for OK). */
int cli_finish(z3d_status status, const char *command);
/* The same for a command of several ranks. Rank 0 prints what all know; a rank prints what is wrong
 * with its own start. world NULL: it could not be created. */
int cli_finish_rank(const z3d_world *world, z3d_status status, const char *command);
typedef struct cli_output {
    const char *path; /* NULL: not asked for */
    const z3d_output_kind *kind;
} cli_output;
/* Before any work: ERR_USAGE if two outputs are one file, if one is an input (NULL: none), or if
 * one would replace what is not of its kind; with `force` only the first two. */
z3d_status cli_check_outputs(const cli_output *outputs, int count, const char *const *inputs,
                             int input_count, bool force);
/* Writes a small file. ERR_IO. */
z3d_status cli_write(const char *path, const z3d_string *text);
/* Writes text to standard output. CLI_FAILED if that fails: with one line (a full disk), or without
 * one if nobody reads the pipe any more. */
int cli_print(const z3d_string *text);

#endif

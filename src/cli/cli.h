/* src/cli: the program `zero3d`. main.c has the table of commands; each command is one file. A
 * command reads its arguments, calls the library and answers; it decides nothing itself. */
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
    CLI_UNFINISHED = 75 /* the run was stopped and saved a checkpoint: start it again (EX_TEMPFAIL
                           of sysexits.h) */
};

/* The answer of a command; main prints the text. */
typedef struct cli_answer {
    z3d_string text; /* for standard output */
    int code;        /* the exit code if no error is returned and the text can be printed */
} cli_answer;

/* argv[0] of both functions is the command's name. */
typedef struct cli_command {
    const char *name, *summary;
    const char *help; /* the text of `zero3d NAME --help`: at most one screen */
    z3d_status (*answer)(int argc, char **argv, cli_answer *out); /* main prints error or text */
    int (*run)(int argc, char **argv); /* NULL, or instead of `answer`, for several ranks: prints
                                          itself, and returns the exit code */
    bool computes;                     /* computes for a while with all threads */
    const char *words; /* the words that may follow its name, for completion; NULL: a path */
    bool configured;   /* the arguments from the second one on are key=value */
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

/* One option of a command. Four kinds take a value, "--name VALUE" or "--name=VALUE". value: any
 * text. values: any text, several times. number: a whole number from `least` to `most`; most 0: no
 * limit. choice: the index of one of `names`, which end with NULL. If the option is repeated,
 * *values has all, and the others have the last one; but each number and choice is checked.
 * Otherwise "--name", which sets *flag. If value and flag are set, the value may be left out; it is
 * a picture's file, so only an argument that ends in .svg is taken as value. */
typedef struct cli_option {
    const char *name; /* without dashes; NULL ends a list */
    const char **value;
    bool *flag;
    cli_values *values;
    int64_t *number, least, most;
    int *choice;
    const char *const *names;
} cli_option;

/* Removes the options from argv[1..]; the other arguments stay, in order, as argv[1 .. *count].
 * After "--" no argument is an option. ERR_USAGE: an unknown option or a missing value. */
z3d_status cli_parse(int argc, char **argv, const cli_option *options, int *count);
/* Whether PATH has a program of this name. */
bool cli_is_in_path(const char *name);
/* Whether `given` is probably a misspelt `name`, of a command or an option. */
bool cli_is_near(const char *given, const char *name);

/* Reads the file of a configuration and its key=value arguments. ERR_USAGE: no file (NULL); an
 * argument is not an assignment. ERR_CONFIG: all errors of the file, the arguments and
 * z3d_config_check, also the errors for this number of ranks (0: not known); or no key of the model
 * is set. The caller destroys *out. */
z3d_status cli_read_config(const char *file, int count, char *const *assignments, int ranks,
                           z3d_config **out);

/* Prints the last error as "zero3d: ..."; returns the exit code for `status` (0 for OK). */
int cli_finish(z3d_status status, const char *command);
/* The same for a command of several ranks. Rank 0 prints errors that all ranks know; each rank
 * prints an error of its own start. world NULL: the world could not be created. */
int cli_finish_rank(const z3d_world *world, z3d_status status, const char *command);
typedef struct cli_output {
    const char *path; /* NULL: not requested */
    const z3d_output_kind *kind;
} cli_output;
/* Call it before any work. ERR_USAGE if two outputs are the same file; if an output is an input (a
 * NULL input is skipped); or, without `force`, if an output would replace a file that is not of its
 * kind. */
z3d_status cli_check_outputs(const cli_output *outputs, int count, const char *const *inputs,
                             int input_count, bool force);
/* Writes a small file. ERR_IO. */
z3d_status cli_write(const char *path, const z3d_string *text);
/* cli_write if `status` is OK, otherwise `status`; frees the text. */
z3d_status cli_save(z3d_status status, const char *path, z3d_string *text);
/* Writes text to standard output. CLI_FAILED if that fails: after one error line (a full disk), or
 * without a line if the pipe was closed. */
int cli_print(const z3d_string *text);
/* Appends several lines: version, compiler, libraries as loaded, CPU and instruction set. Errors:
 * z3d_device_create's. */
z3d_status cli_version(z3d_string *out);

#endif

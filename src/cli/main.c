/* The program: finds the command, prints help and version. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

#include "src/cli/cli.h"

const cli_command *const cli_commands[] = {
    &cli_train,      &cli_plan,     &cli_reproduce, &cli_data,   &cli_checkpoint,
    &cli_generate,   &cli_evaluate, &cli_submit,    &cli_config, &cli_doctor,
    &cli_prove,      &cli_digest,   &cli_replay,    &cli_trace,  &cli_report,
    &cli_completion, NULL};

static void append_help(z3d_string *text) {
    z3d_string_append(text,
                      "zero3d %s trains GPT-2 and Llama models that do not fit on one device: ZeRO "
                      "data parallelism x tensor "
                      "x pipeline parallelism.\n\nusage: zero3d COMMAND [arguments]\n\n",
                      ZERO3D_VERSION);
    for (int i = 0; cli_commands[i]; i++)
        z3d_string_append(text, "  %-12s%s\n", cli_commands[i]->name, cli_commands[i]->summary);
    z3d_string_append(
        text, "\n"
              "  --version   version of this program and its libraries, and this machine's CPU\n"
              "  --help      this text; `zero3d COMMAND --help` explains one command\n"
              "\n"
              "Several ranks:  zero3d-launch -n 4 zero3d train configs/demo.yaml\n"
              "All keys of a configuration:  zero3d config\n");
}

static int print_or_finish(z3d_status status, const char *command, z3d_string *text) {
    const int code = status == Z3D_OK ? cli_print(text) : cli_finish(status, command);
    z3d_string_free(text);
    return code;
}

static int print_help(const cli_command *command) {
    z3d_string text = {0};
    if (command)
        z3d_string_append(&text, "%s", command->help);
    else
        append_help(&text);
    return print_or_finish(Z3D_OK, NULL, &text);
}

static int print_version(void) {
    z3d_string text = {0};
    return print_or_finish(cli_version(&text), NULL, &text);
}

static int run_command(const cli_command *command, int argc, char **argv) {
    cli_answer answer = {.code = CLI_OK};
    if (command->run) return command->run(argc, argv);
    const z3d_status status = command->answer(argc, argv, &answer);
    const int code = print_or_finish(status, command->name, &answer.text);
    return code == CLI_OK ? answer.code : code;
}

static const cli_command *find_command(const char *name) {
    for (int i = 0; cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0) return cli_commands[i];
    return NULL;
}

static z3d_status refuse_command(const char *name) {
    for (int i = 0; cli_commands[i]; i++)
        if (cli_is_near(name, cli_commands[i]->name))
            return Z3D_ERROR(Z3D_ERR_USAGE, "no command '%s'; did you mean `zero3d %s`?", name,
                             cli_commands[i]->name);
    return Z3D_ERROR(Z3D_ERR_USAGE, "no command '%s'; `zero3d --help` lists the commands", name);
}

static bool asks_for_help(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

/* If the caller closed a standard stream, opens /dev/null in its place: otherwise the first file or
 * connection would get its number, and output would go there. Two signals become errors of the
 * write instead of ending the program silently: a write beyond the limit of file sizes (EFBIG), and
 * a write to a closed pipe (EPIPE), so that `train | head` continues. */
static void prepare_process(void) {
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd) return;
}

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value;
}

/* By default a thread that waits for the others of its rank spins for milliseconds. If another job
 * or rank needs the same core, this delays the threads that it waits for: steps become ten times
 * slower. libgomp reads the spin count when it is loaded, so the program restarts itself once, with
 * the variable set. argv[0] and the process id stay. So does the name: it comes from the path
 * (/proc/self/exe would be named "exe"). The program continues unchanged if there is no /proc, or
 * no interpreter (AT_BASE): then the dynamic linker was started with the program as its argument,
 * and /proc/self/exe names the linker. */
static void limit_spinning(char **argv) {
    char program[4096];
    if (is_set("OMP_WAIT_POLICY") || is_set("GOMP_SPINCOUNT") || getauxval(AT_BASE) == 0) return;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program);
    if (length <= 0 || length == sizeof program) return;
    program[length] = '\0';
    if (setenv("GOMP_SPINCOUNT", "1000", 1) == 0) execv(program, argv);
}

/* After any exit code except 0 mpirun sleeps for twice its grace time. zero3d-launch ends this
 * sleep when all ranks have ended. It sees only ranks that mpirun has not collected before it
 * sleeps. So rank 0, whose code is the run's, ends a moment after the others. */
static int end_apart(int code) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (code != CLI_OK && rank && strcmp(rank, "0") == 0)
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    return code;
}

/* Whether the command handles signals itself and ends in order. */
static bool stops_when_asked(const cli_command *command) {
    return command == &cli_train || command == &cli_generate || command == &cli_evaluate;
}

int main(int argc, char **argv) {
    prepare_process();
    if (argc < 2) {
        print_help(NULL);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) return print_version();
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return print_help(NULL);
    if (strcmp(argv[1], "help") == 0 && argc < 3) return print_help(NULL);
    bool help = strcmp(argv[1], "help") == 0;
    const char *name = argv[help ? 2 : 1];
    const cli_command *command = find_command(name);
    if (!command) return cli_finish(refuse_command(name), NULL);
    if (help || asks_for_help(argc - 1, argv + 1)) return print_help(command);
    const bool stops = stops_when_asked(command);
    if (stops)
        z3d_world_hold_signals();
    else
        z3d_world_release_signals();
    if (command->computes) limit_spinning(argv);
    if (stops) z3d_world_catch_signals();
    return end_apart(run_command(command, argc - 1, argv + 1));
}

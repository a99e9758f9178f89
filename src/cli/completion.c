/* zero3d completion: completion for bash. */
#include <string.h>

#include "src/cli/cli.h"

static const char help[] =
    "usage: zero3d completion bash\n"
    "\n"
    "Prints completion for bash: commands, options, and all keys of the configuration.\n"
    "\n"
    "this shell only:   source <(zero3d completion bash)\n"
    "all later shells:  zero3d completion bash > "
    "~/.local/share/bash-completion/completions/zero3d\n";

/* Keys are asked from the program when needed, so that the script never grows old. */
static const char script_head[] =
    "_zero3d() {\n"
    "    local word=\"${COMP_WORDS[COMP_CWORD]}\" command=\"${COMP_WORDS[1]}\"\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
    "        COMPREPLY=($(compgen -W \"";
static const char script_tail[] =
    " help --version --help\" -- \"$word\"))\n"
    "        return\n"
    "    fi\n"
    "    case \"$word\" in\n"
    "    --*)\n"
    "        COMPREPLY=($(compgen -W \"--help $(\"${COMP_WORDS[0]}\" \"$command\" --help "
    "2>/dev/null |\n"
    "            grep -oE '^  --[a-z-]+' | tr -d ' ' | sort -u | tr '\\n' ' ')\" -- \"$word\"))\n"
    "        return\n"
    "        ;;\n"
    "    esac\n"
    "    case \"$command\" in\n"
    "    train | plan | config)\n"
    "        if [ \"$COMP_CWORD\" -gt 2 ]; then\n"
    "            compopt -o nospace\n"
    "            COMPREPLY=($(compgen -S = -W \"$(\"${COMP_WORDS[0]}\" config --keys "
    "2>/dev/null)\" -- \"$word\"))\n"
    "            return\n"
    "        fi\n"
    "        ;;\n"
    "    data)\n"
    "        if [ \"$COMP_CWORD\" -eq 2 ]; then COMPREPLY=($(compgen -W tokenize -- \"$word\")) && "
    "return; fi\n"
    "        ;;\n"
    "    checkpoint)\n"
    "        if [ \"$COMP_CWORD\" -eq 2 ]; then COMPREPLY=($(compgen -W 'list show verify diff "
    "export import' -- "
    "\"$word\")) && return; fi\n"
    "        ;;\n"
    "    completion)\n"
    "        COMPREPLY=($(compgen -W bash -- \"$word\"))\n"
    "        return\n"
    "        ;;\n"
    "    esac\n"
    "    compopt -o filenames\n"
    "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
    "}\n"
    "complete -F _zero3d zero3d\n";

static int run(int argc, char **argv) {
    const cli_option options[] = {{NULL, NULL, NULL, NULL}};
    int count;
    z3d_status status = cli_parse(argc, argv, options, &count);
    if (status == Z3D_OK && (count != 1 || strcmp(argv[1], "bash") != 0))
        status = Z3D_ERROR(Z3D_ERR_USAGE, "only bash is supported: zero3d completion bash");
    if (status != Z3D_OK) return cli_finish(status, "completion");
    z3d_string text = {0};
    z3d_string_append(&text, "%s", script_head);
    for (int i = 0; cli_commands[i]; i++)
        z3d_string_append(&text, "%s%s", i ? " " : "", cli_commands[i]->name);
    z3d_string_append(&text, "%s", script_tail);
    int code = cli_print(&text);
    z3d_string_free(&text);
    return code;
}

const cli_command cli_completion = {"completion", "print shell completion for bash", help, run,
                                    false};

/* zero3d completion: completion for shells and the man page, from the table of commands: their
 * names, their summaries, the words that may follow, and the options in their help. */
#include <ctype.h>
#include <string.h>

#include "src/cli/cli.h"

static const char help[] =
    "usage: zero3d completion bash|zsh|fish|man\n"
    "\n"
    "Prints completion for a shell: commands, options, and all keys of the configuration; or the\n"
    "man page. `make install` puts all of them in place.\n"
    "\n"
    "this shell only:   source <(zero3d completion bash)      (zsh: the same; fish: ... | source)\n"
    "all later shells:  zero3d completion bash > "
    "~/.local/share/bash-completion/completions/zero3d\n"
    "                   zero3d completion zsh > a folder of $fpath/_zero3d\n"
    "                   zero3d completion fish > ~/.config/fish/completions/zero3d.fish\n";

/* ---- options in the text of the help ---- */

/* "  --html FILE   writes a page" */
typedef struct option {
    const char *name, *text; /* name: without dashes; text: of its first line */
    int name_length, text_length;
    bool has_value;
} option;

/* The length of a line that continues below, up to its last comma, colon, semicolon, full stop or
 * bracket; all of it if it has none. Marks inside brackets do not count. */
static int length_of_part(const char *text, int length) {
    int part = length, depth = 0;
    for (int i = 1; i < length; i++) {
        const bool ends = i + 1 == length || text[i + 1] == ' ';
        if (depth == 0 && (text[i] == '(' ? text[i - 1] == ' ' : ends && strchr(",:;.", text[i])))
            part = text[i] == '(' ? i - 1 : i;
        depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    }
    return part;
}

/* The first option after `at`; NULL: none. */
static const char *next_option(const char *at, option *out) {
    const char *line = strstr(at, "\n  --");
    if (!line) return NULL;
    const char *end = line + 1 + strcspn(line + 1, "\n"), *c = line + 5;
    out->name = c;
    while (islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '-') c++;
    out->name_length = (int)(c - out->name);
    out->has_value = c[0] == ' ' && isupper((unsigned char)c[1]);
    while (c < end && !(c[0] == ' ' && c[1] == ' ')) c++;
    while (c < end && *c == ' ') c++;
    if (c == end) /* below it */
        for (end++, c = end, end += strcspn(end, "\n"); *c == ' ';) c++;
    out->text = c;
    out->text_length = (int)(end - c);
    if (strncmp(end, "\n     ", 6) == 0) out->text_length = length_of_part(c, out->text_length);
    return end;
}

/* Appends a text that is inside single quotes of a shell: `quote` replaces a single quote; `marks`
 * get a backslash. */
static void append_quoted(z3d_string *out, const char *text, int length, const char *marks,
                          const char *quote) {
    for (int i = 0; i < length; i++) {
        if (text[i] == '\'')
            z3d_string_append(out, "%s", quote);
        else
            z3d_string_append(out, strchr(marks, text[i]) ? "\\%c" : "%c", text[i]);
    }
}

/* ---- bash ---- */

/* The script asks the program for keys and options when it needs them, so it is always up to date.
 */
static void append_bash(z3d_string *out) {
    z3d_string_append(out, "_zero3d() {\n"
                           "    local word=\"${COMP_WORDS[COMP_CWORD]}\" "
                           "command=\"${COMP_WORDS[1]}\"\n"
                           "    COMPREPLY=()\n"
                           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                           "        COMPREPLY=($(compgen -W \"");
    for (int i = 0; cli_commands[i]; i++) z3d_string_append(out, "%s ", cli_commands[i]->name);
    z3d_string_append(
        out, "help --version --help\" -- \"$word\"))\n"
             "        return\n"
             "    fi\n"
             "    case \"$word\" in\n"
             "    --*)\n"
             "        COMPREPLY=($(compgen -W \"--help $(\"${COMP_WORDS[0]}\" "
             "\"$command\" --help 2>/dev/null |\n"
             "            grep -oE '^  --[a-z0-9-]+' | tr -d ' ' | sort -u | tr '\\n' ' ')\" "
             "-- \"$word\"))\n"
             "        return\n"
             "        ;;\n"
             "    esac\n"
             "    case \"$command\" in\n");
    for (int i = 0; cli_commands[i]; i++) {
        const cli_command *c = cli_commands[i];
        if (c->configured)
            z3d_string_append(out,
                              "    %s)\n"
                              "        if [ \"$COMP_CWORD\" -gt 2 ]; then\n"
                              "            compopt -o nospace\n"
                              "            COMPREPLY=($(compgen -S = -W \"$(\"${COMP_WORDS[0]}\" "
                              "config --keys 2>/dev/null)\" -- \"$word\"))\n"
                              "            return\n"
                              "        fi\n"
                              "        ;;\n",
                              c->name);
        if (c->words)
            z3d_string_append(out,
                              "    %s)\n"
                              "        if [ \"$COMP_CWORD\" -eq 2 ]; then COMPREPLY=($(compgen -W "
                              "'%s' -- \"$word\")) && return; fi\n"
                              "        ;;\n",
                              c->name, c->words);
    }
    z3d_string_append(out, "    esac\n"
                           "    compopt -o filenames\n"
                           "    mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
                           "}\n"
                           "complete -F _zero3d zero3d\n");
}

/* ---- zsh ---- */

static void append_zsh_options(const cli_command *command, z3d_string *out) {
    option o;
    z3d_string_append(out, "    %s)\n        options=('--help:says what it does'", command->name);
    for (const char *at = command->help; (at = next_option(at, &o));) {
        z3d_string_append(out, "\n            '--%.*s:", o.name_length, o.name);
        append_quoted(out, o.text, o.text_length, "", "'\\''");
        z3d_string_append(out, "'");
    }
    z3d_string_append(out, ")\n        words_after=(%s)\n        configured=%d\n        ;;\n",
                      command->words ? command->words : "", command->configured);
}

static void append_zsh(z3d_string *out) {
    z3d_string_append(out, "#compdef zero3d\n"
                           "_zero3d() {\n"
                           "    local -a commands options words_after\n"
                           "    local configured=0\n"
                           "    commands=(");
    for (int i = 0; cli_commands[i]; i++) {
        z3d_string_append(out, "\n        '%s:", cli_commands[i]->name);
        append_quoted(out, cli_commands[i]->summary, (int)strlen(cli_commands[i]->summary), "",
                      "'\\''");
        z3d_string_append(out, "'");
    }
    z3d_string_append(out, "\n        'help:explains a command')\n"
                           "    if (( CURRENT == 2 )); then\n"
                           "        _describe command commands\n"
                           "        return\n"
                           "    fi\n"
                           "    case $words[2] in\n");
    for (int i = 0; cli_commands[i]; i++) append_zsh_options(cli_commands[i], out);
    z3d_string_append(out,
                      "    esac\n"
                      "    if [[ $words[CURRENT] == -* ]]; then\n"
                      "        _describe option options\n"
                      "    elif (( CURRENT == 3 && $#words_after )); then\n"
                      "        compadd -- $words_after\n"
                      "    elif (( CURRENT > 3 && configured )); then\n"
                      "        compadd -S = -- ${(f)\"$($words[1] config --keys 2>/dev/null)\"}\n"
                      "    else\n"
                      "        _files\n"
                      "    fi\n"
                      "}\n"
                      "if [ \"$funcstack[1]\" = _zero3d ]; then _zero3d \"$@\"; else compdef "
                      "_zero3d zero3d; fi\n");
}

/* ---- fish ---- */

static void append_fish_command(const cli_command *c, z3d_string *out) {
    option o;
    z3d_string_append(out, "complete -c zero3d -n __fish_use_subcommand -f -a %s -d '", c->name);
    append_quoted(out, c->summary, (int)strlen(c->summary), "\\", "\\'");
    z3d_string_append(out, "'\n");
    for (const char *at = c->help; (at = next_option(at, &o));) {
        z3d_string_append(out,
                          "complete -c zero3d -n '__fish_seen_subcommand_from %s' -l %.*s%s -d '",
                          c->name, o.name_length, o.name, o.has_value ? " -r" : "");
        append_quoted(out, o.text, o.text_length, "\\", "\\'");
        z3d_string_append(out, "'\n");
    }
    if (c->words)
        z3d_string_append(out,
                          "complete -c zero3d -n '__fish_seen_subcommand_from %s; and test (count "
                          "(commandline -opc)) -eq 2' -f -a '%s'\n",
                          c->name, c->words);
    if (c->configured)
        z3d_string_append(out,
                          "complete -c zero3d -n '__fish_seen_subcommand_from %s; and test (count "
                          "(commandline -opc)) -gt 2' -a '(eval (commandline -opc)[1] config "
                          "--keys 2>/dev/null)='\n",
                          c->name);
}

static void append_fish(z3d_string *out) {
    for (int i = 0; cli_commands[i]; i++) append_fish_command(cli_commands[i], out);
}

/* ---- man ---- */

static void append_lines(z3d_string *out, const char *text) {
    z3d_string_append(out, ".nf\n");
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        if (*line == '.' || *line == '\'') z3d_string_append(out, "\\&");
        for (const char *c = line; *c && *c != '\n'; c++)
            z3d_string_append(out, *c == '\\' ? "\\e" : *c == '-' ? "\\-" : "%c", *c);
        z3d_string_append(out, "\n");
    }
    z3d_string_append(out, ".fi\n");
}

static void append_man(z3d_string *out) {
    z3d_string_append(out,
                      ".TH ZERO3D 1 \"\" \"zero3d %s\"\n.SH NAME\nzero3d \\- trains GPT-2 and "
                      "Llama models that do not fit on one device\n.SH SYNOPSIS\n.B zero3d\n.I "
                      "COMMAND\n[arguments]\n.SH COMMANDS\n",
                      ZERO3D_VERSION);
    for (int i = 0; cli_commands[i]; i++)
        z3d_string_append(out, ".TP\n.B %s\n%s\n", cli_commands[i]->name, cli_commands[i]->summary);
    for (int i = 0; cli_commands[i]; i++) {
        z3d_string_append(out, ".SH \"ZERO3D ");
        for (const char *c = cli_commands[i]->name; *c; c++)
            z3d_string_append(out, "%c", toupper((unsigned char)*c));
        z3d_string_append(out, "\"\n");
        append_lines(out, cli_commands[i]->help);
    }
}

static const struct {
    const char *name;
    void (*append)(z3d_string *out);
} forms[] = {
    {"bash", append_bash}, {"zsh", append_zsh}, {"fish", append_fish}, {"man", append_man}};

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    const cli_option options[] = {{.name = NULL}};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    for (size_t f = 0; count == 1 && f < sizeof forms / sizeof *forms; f++)
        if (strcmp(forms[f].name, argv[1]) == 0) {
            forms[f].append(&out->text);
            return Z3D_OK;
        }
    return Z3D_ERROR(Z3D_ERR_USAGE, "expected bash, zsh, fish or man: zero3d completion bash");
}

const cli_command cli_completion = {"completion",
                                    "print completion for a shell, or the man page",
                                    help,
                                    answer,
                                    NULL,
                                    false,
                                    "bash zsh fish man",
                                    false};

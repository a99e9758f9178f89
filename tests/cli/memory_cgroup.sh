# shellcheck shell=sh
# Sourced by tests that run under a limit of memory: cgroups of version 1 or 2, where this process may make one.
group="" limit_file="" peak_file=""

# try_group FOLDER: makes a cgroup in it; false where that is not possible or does not limit memory.
try_group() {
    group=$1/zero3d-test.$$
    mkdir "$group" 2>/dev/null || return 1
    if [ -w "$group/memory.limit_in_bytes" ]; then
        limit_file=memory.limit_in_bytes peak_file=memory.max_usage_in_bytes
    elif [ -w "$group/memory.max" ]; then
        limit_file=memory.max peak_file=memory.peak
    fi
    [ -n "$limit_file" ] && (enter_group true) 2>/dev/null && return 0
    leave_group
    return 1
}

# Below this process's own cgroup, else below one that has it: with version 2 a cgroup of processes has no others in it.
make_group() {
    while read -r _ _ _ _ point _; do
        case $(grep " $point " /proc/self/mountinfo) in
        *" - cgroup "*memory*) own=$(sed -n 's/^[0-9]*:[a-z,]*memory[a-z,]*://p' /proc/self/cgroup) ;;
        *" - cgroup2 "*) own=$(sed -n 's/^0:://p' /proc/self/cgroup) ;;
        *) continue ;;
        esac
        while :; do
            [ "$own" != / ] || own=""
            try_group "$point$own" && return 0
            [ -n "$own" ] || break
            own=${own%/*}
        done
    done </proc/self/mountinfo
    return 1
}

# enter_group COMMAND...: in the cgroup, with all its processes.
enter_group() {
    # shellcheck disable=SC2016 # the inner shell's
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"
}

# limit_memory BYTES: from now on; what was the most memory begins anew. No swap.
limit_memory() {
    # Memory with swap is never less than memory: a larger limit comes here first, a smaller one last.
    [ ! -w "$group/memory.memsw.limit_in_bytes" ] || echo "$1" 2>/dev/null >"$group/memory.memsw.limit_in_bytes" || :
    echo "$1" >"$group/$limit_file" || fail "the cgroup takes no limit"
    [ ! -w "$group/memory.memsw.limit_in_bytes" ] || echo "$1" >"$group/memory.memsw.limit_in_bytes"
    [ ! -w "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"
    [ ! -w "$group/$peak_file" ] || { echo 0 >"$group/$peak_file"; } 2>/dev/null || :
}

# The most bytes that all processes had together; nothing where the system does not say.
peak_memory() {
    cat "$group/$peak_file" 2>/dev/null
}

leave_group() {
    [ -n "$group" ] || return 0
    tries=0
    until rmdir "$group" 2>/dev/null || [ ! -d "$group" ] || [ $tries -ge 50 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    group=""
}

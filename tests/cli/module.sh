#!/bin/sh
# module.sh BUILD: installs to a folder, moves it, and loads its module file with Environment Modules and Lmod, whichever is here.
. "$(dirname "$0")/lib.sh"
build=${1:?build folder}

expect 0 cmake --install "$build" --prefix "$work/first"
mv first zero3d
cat >load.sh <<'END'
. "$1"
module use zero3d/share/modulefiles && module load zero3d && zero3d --version && pkg-config --modversion zero3d || exit 1
echo "path $(command -v zero3d)"
echo "man $MANPATH"
echo "cmake $CMAKE_PREFIX_PATH"
module unload zero3d && [ "$(command -v zero3d)" != "$PWD/zero3d/bin/zero3d" ]
END
found=""
for init in /usr/share/modules/init/sh /usr/share/Modules/init/sh /usr/share/lmod/lmod/init/sh; do
    [ -r $init ] || continue
    found=yes
    expect 0 env -u CMAKE_PREFIX_PATH -u MANPATH HOME="$work" sh load.sh $init
    grep -qx "path $work/zero3d/bin/zero3d" out && grep -q "^man $work/zero3d/share/man:" out && grep -qx "cmake $work/zero3d" out ||
        fail "$init: the module sets other paths than those of $work/zero3d"
done
[ -n "$found" ] || exit 77

#!/bin/sh
# Assembles every committed PTX file of the examples for the architecture its .target names, and checks that no file
# names a folder of the machine it was compiled on.
set -eu
cd "$(dirname "$0")"
ptxas=${PTXAS:-ptxas}
failed=0
for file in $(find . -name '*.ptx' | sort); do
    arch=$(sed -n 's/^\.target \(sm_[0-9a-z]*\).*/\1/p' "$file")
    if ! "$ptxas" -arch="$arch" "$file" -o /dev/null; then
        echo "$file: does not assemble for $arch" >&2
        failed=1
    fi
    if grep -nE '^[[:space:]]*\.file[^"]*"/' "$file"; then
        echo "$file: .file names an absolute path" >&2
        failed=1
    fi
done
exit $failed

#!/bin/bash
# The Python with pytest-gpuperf in it, as the output "python": the given one, else a new environment with the version of this action.
set -euo pipefail
if [[ -z "${GIVEN:-}" ]]; then
  here="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
  python -m venv "$RUNNER_TEMP/pytest-gpuperf"
  GIVEN="$RUNNER_TEMP/pytest-gpuperf/bin/python"
  "$GIVEN" -m pip install --quiet --disable-pip-version-check "$here"
fi
echo "python=$GIVEN" >> "$GITHUB_OUTPUT"

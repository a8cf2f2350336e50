# Takes the label off that asked for a refresh, whatever became of it, so that it can be given again. That it is gone is fine.
set -euo pipefail
if [[ -z "$LABEL" || ! "$NUMBER" =~ ^[0-9]+$ ]]; then
  exit 0
fi
encoded=$(printf %s "$LABEL" | od -An -v -tx1 | tr -d '\n' | tr ' ' '%')
if ! gh api -X DELETE "repos/$REPOSITORY/issues/$NUMBER/labels/$encoded" > /dev/null; then
  said="The label '$LABEL' was not removed: that needs the right \`pull-requests: write\`."
  echo "$said" >> "$GITHUB_STEP_SUMMARY"
  echo "::notice title=gpuperf refresh::$said"
fi

"""Writes the rendered report to the pull request that a run belongs to, as one comment that is renewed.

A comment is ours if it begins with the marker *and* GitHub says that the owner of the token wrote it, whoever that is: anyone can
copy the marker. Where there is none yet, an uneventful run writes none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MARKER = "<!-- pytest-gpuperf -->"
LIMIT = 60_000
"""Bytes: GitHub takes comments of 65 536 characters."""
# the token of a workflow or an app may not ask REST who it is
COMMENTS = """
query($owner: String!, $name: String!, $number: Int!, $endCursor: String) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) { comments(first: 100, after: $endCursor) {
    nodes { databaseId body viewerDidAuthor } pageInfo { hasNextPage endCursor }
  } } }
}
"""


def api(*arguments: str, body: dict[str, str] | None = None) -> Any:
    """What ``gh api`` answers."""
    done = subprocess.run(
        ["gh", "api", *arguments, *(["--input", "-"] if body is not None else [])],
        input=None if body is None else json.dumps(body),
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return json.loads(done.stdout or "null")


def comment_text(markdown: str) -> str:
    """The comment, cut at a line where it would be too long."""
    if len(markdown.encode()) > LIMIT:
        kept = markdown.encode()[:LIMIT].decode("utf-8", "ignore").rsplit("\n", 1)[0]
        markdown = f"{kept}\n\n(cut here: the whole report is in the artefact of the run)\n"
    return f"{MARKER}\n{markdown}"


def own_comment(repository: str, number: int) -> int | None:
    """The first comment on a pull request that is ours."""
    owner, name = repository.split("/")
    fields = (f"query={COMMENTS}", f"owner={owner}", f"name={name}")
    given = [word for field in fields for word in ("-f", field)]
    for page in api("graphql", "--paginate", "--slurp", *given, "-F", f"number={number}"):
        for comment in page["data"]["repository"]["pullRequest"]["comments"]["nodes"]:
            if comment["viewerDidAuthor"] and comment["body"].startswith(MARKER):
                return int(comment["databaseId"])
    return None


def main(folder: Path) -> int:
    """Finds the pull request by its head, and the comment by marker and author."""
    repository, sha = os.environ["REPOSITORY"], os.environ["SHA"]
    found = api(
        "-X", "GET", f"repos/{repository}/pulls", "-f", "state=open", "-f", f"head={os.environ['HEAD']}"
    )
    numbers = [int(pull["number"]) for pull in found if pull["head"]["sha"] == sha]
    if not numbers:
        print("no open pull request has this commit at its head: nothing to say")
        return 0
    document = json.loads((folder / "gpuperf.json").read_text(encoding="utf-8"))
    text = comment_text((folder / "gpuperf.md").read_text(encoding="utf-8"))
    for number in numbers:
        ours = own_comment(repository, number)
        if ours is not None:
            api("-X", "PATCH", f"repos/{repository}/issues/comments/{ours}", body={"body": text})
        elif document["verdict"] != "ok":
            api("-X", "POST", f"repos/{repository}/issues/{number}/comments", body={"body": text})
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

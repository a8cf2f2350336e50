"""Commits the baselines that a run proposes to the branch of a pull request.

Nothing of the pull request is executed: of its run the proposed baselines are taken, which ``gpuperf accept`` reads with suspicion.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

BOT = "github-actions[bot]"
ADDRESS = f"41898282+{BOT}@users.noreply.github.com"
SILENT = (
    "GitHub starts no checks for a push with the token of a workflow, so none have run on this commit. To start them, close the pull "
    "request and open it again; or give this action the token of an app or a deploy key (`token`, `deploy-key`), whose pushes do."
)


class Problem(Exception):
    """What ends the step, in words for the summary."""


def run(*command: str, folder: Path | None = None) -> str:
    """What a program prints. Raises ``Problem``."""
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False
    )
    if done.returncode:
        raise Problem(f"`{' '.join(command[:3])} …` failed with exit code {done.returncode}")
    return done.stdout.strip()


def say(text: str, level: str = "") -> None:
    """Into the job's summary, and as an annotation of a level."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(f"{text}\n\n")
    print(f"::{level} title=gpuperf refresh::{text}" if level else text)


def output(name: str, value: str) -> None:
    """One output of the step."""
    path = os.environ.get("GITHUB_OUTPUT")
    if path:
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(f"{name}={value}\n")


def refresh(checkout: Path) -> None:
    """Downloads, accepts, commits and pushes. Raises ``Problem``."""
    repository, branch = os.environ["REPOSITORY"], os.environ["BRANCH"]
    if os.environ["HEAD_REPOSITORY"] != repository:
        raise Problem("the pull request comes from a fork, to which this repository cannot push")
    project = (checkout / (os.environ.get("WORKING_DIRECTORY") or ".")).resolve()
    baselines = (project / (os.environ.get("BASELINES") or "baselines")).resolve()
    if not baselines.is_relative_to(checkout.resolve()):
        raise Problem("the folder of the baselines lies outside of the repository")
    with tempfile.TemporaryDirectory() as measured:
        download = ("gh", "run", "download", os.environ["RUN"], "--repo", repository)
        try:
            run(*download, "--name", os.environ["ARTIFACT"], "--dir", measured)
        except Problem:
            raise Problem(
                "this run left no report, so nothing was committed: see the job that measures"
            ) from None
        command = (
            sys.executable,
            "-m",
            "pytest_gpuperf.cli",
            "accept",
            measured,
            "--baselines",
            str(baselines),
        )
        print(run(*command, folder=project))
    if not baselines.is_dir():
        say("There are no baselines, and none were proposed.")
        return
    run("git", "add", "--all", "--", str(baselines), folder=checkout)
    if not run("git", "diff", "--cached", "--name-only", folder=checkout):
        say("The baselines are what was measured: nothing to commit.")
        return
    identity = ("-c", f"user.name={BOT}", "-c", f"user.email={ADDRESS}")
    message = os.environ.get("MESSAGE") or "Refresh the baselines"
    run("git", *identity, "commit", "--quiet", "--message", message, folder=checkout)
    commit = run("git", "rev-parse", "HEAD", folder=checkout)
    try:
        run("git", "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}", folder=checkout)
    except Problem:
        raise Problem(
            "the baselines were not pushed: the branch has moved on, or the token may not write to it"
        ) from None
    output("commit", commit)
    say(f"Committed the baselines as {commit[:12]}.")
    if os.environ.get("DEFAULT_TOKEN") == "true":
        say(SILENT, "warning")


def main(checkout: Path) -> int:
    """1 if the baselines could not be refreshed."""
    try:
        refresh(checkout)
    except Problem as problem:
        say(str(problem), "error")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

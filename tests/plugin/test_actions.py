"""The actions, as workflows of other repositories use them: no part of them is missing there, and nothing is pasted into a shell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.plugin.sources.test_paths import git

from .conftest import ptx

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / ".github" / "action"
ACTIONS = ["action.yml", "comment/action.yml", "refresh/action.yml"]
WORKFLOWS = sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / ".github" / "workflows").glob("*.yml")
)


def load(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


def steps_of(document: dict[Any, Any]) -> list[dict[str, Any]]:
    if "runs" in document:
        return list(document["runs"]["steps"])
    return [step for job in document["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", [*ACTIONS, *WORKFLOWS])
def test_steps_are_pinned_and_paste_nothing_into_a_shell(name: str) -> None:
    for step in steps_of(load(name)):
        assert ("uses" in step) != ("run" in step), step
        if "uses" in step:
            assert re.fullmatch(r"\./[a-z]*|[\w-]+/[\w./-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
            if step["uses"].startswith("./"):
                assert (ROOT / step["uses"] / "action.yml").is_file()
        else:
            assert "${{" not in step["run"], step["run"]


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_has_all_that_it_names(name: str) -> None:
    """Inputs, outputs of steps, and the files beside it: a user's repository has nothing of this one."""
    document, text = load(name), (ROOT / name).read_text(encoding="utf-8")
    steps = steps_of(document)
    assert all("shell" in step for step in steps if "run" in step)
    inputs = set(re.findall(r"inputs\.([\w-]+)", text))
    assert inputs == set(document["inputs"])
    ids = {step["id"] for step in steps if "id" in step}
    assert set(re.findall(r"steps\.([\w-]+)\.", text)) <= ids
    scripts = re.findall(r"\$GITHUB_ACTION_PATH(/[\w./-]+)", text)
    assert scripts and all((ROOT / name).parent.joinpath(script[1:]).is_file() for script in scripts)
    assert "github.workspace" not in text and not re.search(
        r"(?<!\$GITHUB_ACTION_PATH/)(?<!\.\./)\.github/action", text
    )


def test_workflows_give_actions_inputs_that_they_have() -> None:
    for name in WORKFLOWS:
        for step in steps_of(load(name)):
            if step.get("uses", "").startswith("./"):
                action = load(f"{step['uses'].removeprefix('./').rstrip('/')}/action.yml".lstrip("/"))
                assert set(step.get("with", {})) <= set(action["inputs"]), (name, step)


GH = """\
#!{python}
import json, os, pathlib, shutil, sys
calls = pathlib.Path({folder!r})
arguments = sys.argv[1:]
body = sys.stdin.read() if "--input" in arguments else ""
with open(calls / "calls.jsonl", "a") as stream:
    stream.write(json.dumps([*arguments, body]) + "\\n")
if arguments[:2] == ["run", "download"]:
    if not (calls / "artifact").is_dir():
        sys.exit("no artifact matches any of the names or patterns provided")
    shutil.copytree(calls / "artifact", arguments[arguments.index("--dir") + 1], dirs_exist_ok=True)
elif "DELETE" in arguments:
    sys.exit(int(os.environ.get("DELETE_FAILS", "0")))
elif arguments[1] == "graphql":
    pages = json.loads((calls / "comments.json").read_text())
    for comment in (comment for page in pages for comment in page):
        comment["viewerDidAuthor"] = comment.pop("author") == os.environ["VIEWER"]
    comments = [{{"comments": {{"nodes": page}}}} for page in pages]
    print(json.dumps([{{"data": {{"repository": {{"pullRequest": item}}}}}} for item in comments]))
elif arguments[2] in ("PATCH", "POST"):
    print("null")
else:
    print((calls / "pulls.json").read_text())
"""


class Runner:
    """A folder as a runner has it: ``gh`` that notes what it is asked, files for outputs and the summary."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "bin" / "gh"
        program.parent.mkdir()
        program.write_text(GH.format(python=sys.executable, folder=str(folder)), encoding="utf-8")
        program.chmod(0o755)

    def run(
        self, *command: str, folder: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        for name in ("summary", "output"):
            (self.folder / name).write_text("", encoding="utf-8")
        return subprocess.run(
            command,
            cwd=folder or self.folder,
            env={
                **os.environ,
                "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
                "GITHUB_OUTPUT": str(self.folder / "output"),
                "RUNNER_TEMP": str(self.folder),
                **environment,
            },
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )

    def calls(self) -> list[list[str]]:
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def text(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")


@pytest.fixture
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(tmp_path_factory.mktemp("runner"))


EVENT = {
    "REPOSITORY": "owner/project",
    "HEAD_REPOSITORY": "owner/project",
    "BRANCH": "change",
    "NUMBER": "7",
    "RUN": "99",
    "ARTIFACT": "gpuperf",
    "LABEL": "refresh baselines",
    "DEFAULT_TOKEN": "true",
}


@pytest.fixture
def proposed(project, runner: Runner) -> Path:
    """A branch whose kernel became slower, checked out from its remote, and the report of a run on it as the artefact."""
    project.update()
    git(project.path, "init", "-q", "-b", "change")
    git(project.path, "add", "-A")
    git(project.path, "commit", "-qm", "base")
    project.write("scale.ptx", ptx("ld.global.f32 %f3, [%rd1];"))
    git(project.path, "commit", "-qam", "slower")
    git(project.path, "init", "-q", "--bare", str(runner.folder / "remote.git"))
    git(project.path, "push", "-q", str(runner.folder / "remote.git"), "change")
    git(runner.folder, "clone", "-q", "-b", "change", "remote.git", "checkout")
    project.run(f"--gpuperf-report={runner.folder / 'artifact'}")
    return runner.folder / "checkout"


def refresh(runner: Runner, checkout: Path, **event: str) -> subprocess.CompletedProcess[str]:
    return runner.run(sys.executable, str(SCRIPTS / "refresh.py"), str(checkout), **{**EVENT, **event})


def take_label_off(runner: Runner, **event: str) -> subprocess.CompletedProcess[str]:
    return runner.run("bash", str(SCRIPTS / "label.sh"), **{**EVENT, **event})


def test_refresh_commits_what_was_measured(runner: Runner, proposed: Path) -> None:
    done = refresh(runner, proposed)
    assert done.returncode == 0, done.stdout + done.stderr
    remote = runner.folder / "remote.git"
    log = subprocess.run(
        ["git", "log", "--format=%s|%an", "--name-only", "-1", "change"],
        cwd=remote,
        capture_output=True,
        text=True,
    )
    assert log.stdout.split("\n") == [
        "Refresh the baselines|github-actions[bot]",
        "",
        "baselines/test_k.yaml",
        "",
    ]
    head = subprocess.run(
        ["git", "rev-parse", "change"], cwd=remote, capture_output=True, text=True
    ).stdout.strip()
    assert runner.text("output") == f"commit={head}\n"
    assert head[:12] in runner.text("summary") and "starts no checks" in runner.text("summary")
    assert "::warning title=gpuperf refresh::" in done.stdout
    # what it committed is what the gate wants
    baseline = (proposed / "baselines" / "test_k.yaml").read_text(encoding="utf-8")
    assert baseline == (runner.folder / "artifact" / "candidates" / "test_k.yaml").read_text(encoding="utf-8")
    again = refresh(runner, proposed, DEFAULT_TOKEN="false")
    assert (
        again.returncode == 0
        and "nothing to commit" in runner.text("summary")
        and runner.text("output") == ""
    )


def test_refresh_with_a_token_of_its_own_says_nothing_of_checks(runner: Runner, proposed: Path) -> None:
    assert refresh(runner, proposed, DEFAULT_TOKEN="false").returncode == 0
    assert "starts no checks" not in runner.text("summary")


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"HEAD_REPOSITORY": "fork/project"}, "comes from a fork"),
        ({"BASELINES": "../../elsewhere"}, "outside of the repository"),
        ({"BRANCH": "refused..name"}, "were not pushed"),
    ],
)
def test_refresh_that_cannot_be_done_is_a_message(
    runner: Runner, proposed: Path, event: dict[str, str], words: str
) -> None:
    done = refresh(runner, proposed, **event)
    assert done.returncode == 1
    assert words in runner.text("summary") and "Traceback" not in done.stderr


def test_refresh_without_a_report_says_that_measuring_left_none(runner: Runner) -> None:
    done = refresh(runner, runner.folder)
    assert done.returncode == 1
    assert "left no report" in runner.text("summary") and "Traceback" not in done.stderr


def test_the_label_is_taken_off(runner: Runner) -> None:
    assert take_label_off(runner).returncode == 0
    (asked,) = runner.calls()
    place, label = asked[3].rsplit("/", 1)
    assert asked[:3] == ["api", "-X", "DELETE"] and place == "repos/owner/project/issues/7/labels"
    assert urllib.parse.unquote(label) == "refresh baselines"
    strange = "a/b?ü"
    assert take_label_off(runner, LABEL=strange).returncode == 0
    assert urllib.parse.unquote(runner.calls()[-1][3].removeprefix(f"{place}/")) == strange
    assert "/" not in runner.calls()[-1][3].removeprefix(f"{place}/")
    assert take_label_off(runner, LABEL="").returncode == 0
    assert len(runner.calls()) == 2


def test_a_label_that_cannot_be_removed_is_no_failure(runner: Runner) -> None:
    done = take_label_off(runner, DELETE_FAILS="1")
    assert done.returncode == 0 and "pull-requests: write" in runner.text("summary")


def test_the_label_is_taken_off_whatever_failed() -> None:
    """In the job that measures, or in any step of the action."""
    *_, last = steps_of(load("refresh/action.yml"))
    assert last["if"] == "always()" and "label.sh" in last["run"]
    job = load(".github/workflows/gpuperf-refresh.yml")["jobs"]["commit"]
    assert job["if"] == "always() && needs.measure.result != 'skipped'"


def test_the_cache_is_restored_and_saved_by_what_is_in_it(tmp_path: Path, runner: Runner) -> None:
    folder = tmp_path / "cache"
    script = [sys.executable, str(SCRIPTS / "cache.py")]
    environment = {"GPUPERF_CACHE": str(folder)}

    def outputs(command: str) -> dict[str, str]:
        done = runner.run(*script, command, **environment)
        assert done.returncode == 0, done.stderr
        return dict(line.split("=", 1) for line in runner.text("output").splitlines())

    found = outputs("where")
    assert found["path"] == str(folder) and re.fullmatch(r"gpuperf-[\w-]+-", found["prefix"])
    for entry in folder.iterdir():
        entry.unlink()
    assert "key" not in outputs("filled")  # what the script itself notes down is of this machine
    (folder / "one").write_bytes(bytes(100))
    first = outputs("filled")["key"]
    (folder / "two").write_bytes(bytes(100))
    both = outputs("filled")["key"]
    assert re.fullmatch(r"[0-9a-f]{20}", first) and first != both
    (folder / "two").unlink()
    assert outputs("filled")["key"] == first
    environment["GPUPERF_CACHE"] = "off"
    assert outputs("where") == {} and outputs("filled") == {}


@pytest.mark.parametrize("author", ["github-actions[bot]", "an-app[bot]", "person"])
def test_the_comment_is_written_once_and_renewed(runner: Runner, project, author: str) -> None:
    """With whichever token, and whoever else copied it."""
    project.update()
    project.kernel("ld.global.f32 %f3, [%rd1];")
    project.run(f"--gpuperf-report={runner.folder / 'artifact'}")
    (runner.folder / "pulls.json").write_text(json.dumps([{"number": 7, "head": {"sha": "abc"}}]))
    event = {"REPOSITORY": "owner/project", "HEAD": "someone:change", "SHA": "abc", "VIEWER": author}

    def last_call(*pages: list[dict[str, Any]]) -> list[str]:
        (runner.folder / "comments.json").write_text(json.dumps(pages))
        command = (sys.executable, str(SCRIPTS / "comment.py"), str(runner.folder / "artifact"))
        done = runner.run(*command, **event)
        assert done.returncode == 0, done.stderr
        return runner.calls()[-1]

    post = ["api", "-X", "POST", "repos/owner/project/issues/7/comments"]
    posted = last_call([])
    assert posted[:4] == post
    body = json.loads(posted[-1])["body"]
    assert body.startswith("<!-- pytest-gpuperf -->") and "worse" in body
    forged = {"databaseId": 4, "author": "someone", "body": body}
    deleted = {"databaseId": 3, "author": None, "body": body}
    other = {"databaseId": 6, "author": author, "body": f"> {body}"}
    ours = {"databaseId": 5, "author": author, "body": body}
    assert last_call([forged, deleted], [other])[:4] == post
    renewed = last_call([forged, deleted, other], [ours])
    assert renewed[:4] == ["api", "-X", "PATCH", "repos/owner/project/issues/comments/5"]


def test_the_python_that_is_given_is_taken(runner: Runner) -> None:
    done = runner.run("bash", str(SCRIPTS / "python.sh"), GIVEN="/opt/venv/bin/python")
    assert done.returncode == 0 and runner.text("output") == "python=/opt/venv/bin/python\n"


def test_without_one_the_version_of_the_action_is_installed(runner: Runner) -> None:
    """Into an environment of its own; here by a ``python`` that notes what it is asked."""
    program = runner.folder / "bin" / "python"
    program.write_text(
        '#!/bin/bash\necho "$@" >> "$RUNNER_TEMP/asked"\n'
        'if [[ "$2" == venv ]]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    done = runner.run("bash", str(SCRIPTS / "python.sh"))
    assert done.returncode == 0, done.stderr
    folder = runner.folder / "pytest-gpuperf"
    assert runner.text("output") == f"python={folder}/bin/python\n"
    assert runner.text("asked").splitlines() == [
        f"-m venv {folder}",
        f"-m pip install --quiet --disable-pip-version-check {ROOT}",
    ]

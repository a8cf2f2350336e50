"""The report's files: valid against their schema, inert whatever stands in PTX and ids, the same bytes every time."""

from __future__ import annotations

import base64
import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

import pytest_gpuperf
from pytest_gpuperf.report.structure import structural_differences
from tests.plugin.conftest import TEST, ptx

SCHEMAS = Path(pytest_gpuperf.__file__).parent / "schemas"
REPORT = json.loads((SCHEMAS / "report-1.json").read_text(encoding="utf-8"))
LOAD = "ld.global.f32 %f3, [%rd1];"


class Elements(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def html(project) -> str:
    return (project.path / "out" / "gpuperf.html").read_text(encoding="utf-8")


def test_documents_of_all_kinds_are_valid(project):
    validator = jsonschema.Draft202012Validator(REPORT)
    jsonschema.Draft202012Validator.check_schema(REPORT)
    documents = [project.report()]
    project.update()
    documents.append(project.report())
    project.kernel(LOAD + "\nst.volatile.global.f32 [%rd1], %f2;")
    documents.append(project.report())
    project.kernel("membar.sys;")
    documents.append(project.report())
    project.write("test_k.py", (project.path / "test_k.py").read_text() + "    assert 0\n")
    documents.append(project.report())
    project.write("test_k.py", "def test_a(): pass\n")
    documents.append(project.report())
    assert [document["verdict"] for document in documents] == [
        "new",
        "ok",
        "regressed",
        "unmodelled",
        "error",
        "nothing-analysed",
    ]
    for document in documents:
        validator.validate(document)


def test_page_needs_no_network_and_no_script_and_says_it_all(project):
    project.update()
    project.kernel(LOAD)
    project.report()
    page = Elements(html(project))
    assert page.tags.count("script") == 1 and "link" not in page.tags and "img" not in page.tags
    script = html(project).split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in html(project)
    assert not [
        value for name, value in page.attributes if name in ("src", "href") and not str(value).startswith("#")
    ]
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "http" not in html(project).replace('http-equiv="Content-Security-Policy"', "")
    for text in (
        "Failed: worse",
        "thread_instructions",
        "320",
        "384",
        "+20 %",
        "▲ worse",
        "ld.global.f32 %f3, [%rd1];",
        "because",
    ):
        assert text in page.text, text
    assert "svg" in page.tags and "rect" in page.tags
    anchors = {value for name, value in page.attributes if name == "id"}
    assert {str(value)[1:] for name, value in page.attributes if name == "href"} <= anchors


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>]]>--></pre> \x1b[31m ::error::boom \u202e {{ 7*7 }} | @octocat"


def test_hostile_text_is_inert_everywhere(project):
    project.write(
        "test_k.py",
        (project.path / "test_k.py")
        .read_text()
        .replace(
            "def test_scale(gpuperf)",
            f"@pytest.mark.parametrize('p', [0], ids=[{EVIL!r}])\ndef test_scale(gpuperf, p)",
        )
        .replace('entry="scale"', f'entry="scale", name={EVIL!r}'),
    )
    project.kernel(f"// {EVIL}\n{LOAD}")
    document = project.report("--junitxml=junit.xml", "-o", "junit_family=xunit2", "--gpuperf-details")
    page = Elements(html(project))
    assert page.tags.count("script") == 1 and "img" not in page.tags
    assert "alert(1)" in page.text
    assert "49" not in page.text.split("{{ 7*7 }}")[0][-4:]
    for name in ("gpuperf.html", "gpuperf.md"):
        text = (project.path / "out" / name).read_text(encoding="utf-8")
        assert "\x1b" not in text and "\u202e" not in text
    markdown = (project.path / "out" / "gpuperf.md").read_text(encoding="utf-8")
    assert "<script" not in markdown and "<img" not in markdown and "@octocat" not in markdown
    output = project.result.stdout.str()
    assert "\x1b[31m ::error" not in output and "\u202e" not in output
    assert not [line for line in output.splitlines() if line.startswith("::")]
    ElementTree.parse(project.path / "junit.xml")
    jsonschema.validate(document, REPORT)


def test_page_shows_what_else_differs(project):
    project.update()
    project.kernel(LOAD)
    project.report()
    assert "counts.opcodes: ld.global.f32 is new" in Elements(html(project)).text


COMPILED = """\
.version 8.0
.target sm_70
.address_size 64
.file 1 "src/sçale.cu"
.file 2 "../outside.cu"
.file 3 "secrets.env"
.visible .entry scale(.param .u64 x, .param .f32 a)
{
    .reg .f32 %f<9>;
    .loc 1 2 3
    mov.f32 %f1, 0f00000000;
    mov.f32 %f2, 0f00000000;
    .loc 2 1 1
    mov.f32 %f3, 0f00000000;
    .loc 3 1 1
    mov.f32 %f4, 0f00000000;
    .loc 1 99 1
    ret;
}
"""


def test_source_is_shown_beside_the_ptx_if_it_lies_below_the_rootdir(project):
    project.write("scale.ptx", COMPILED)
    project.write("src/sçale.cu", "// <b>first</b>\n  y[i] = a * x[i]; // </td>\n")
    project.write("../outside.cu", "outside\n")
    project.write("secrets.env", "TOKEN\n")
    document = project.report()
    assert document["listings"][0]["source"] == {"src/sçale.cu:2": "  y[i] = a * x[i]; // </td>"}
    page = Elements(html(project))
    assert page.text.count("y[i] = a * x[i]; // </td>") == 1
    assert "TOKEN" not in page.text and "outside\n" not in page.text


def test_page_draws_what_each_category_adds(project):
    project.update()
    project.kernel(LOAD)
    project.report()
    page = Elements(html(project))
    assert "Thread instructions by category, from the baseline to now" in page.text
    assert "▲ +64" in page.text


def test_notes_stand_at_their_line(project):
    project.write("k.ptx", ptx("brkpt;"))
    project.write("test_k.py", TEST.replace("scale.ptx", "k.ptx"))
    project.report()
    assert "⚑ ld.global.f32 reads uninitialised memory" in Elements(html(project)).text


def test_structural_differences_leave_the_metrics_out():
    target = {"machine": 1, "time_us": 2.0, "limiter": "latency", "occupancy": 1.0}
    old = {
        "kernel": "a",
        "counts": {"thread_instructions": 1, "opcodes": {"add.s32": 1, "ret": 1}},
        "targets": {"h100-sxm": target},
    }
    new = {
        "kernel": "b",
        "counts": {"thread_instructions": 2, "opcodes": {"add.s32": 2, "bra": 1}},
        "targets": {"h100-sxm": {**target, "time_us": 3.0, "limiter": "dram"}},
    }
    assert structural_differences(old, new) == [
        "counts.opcodes: bra is new",
        "counts.opcodes: ret is gone",
        "targets.h100-sxm.limiter: latency → dram",
    ]


def test_same_bytes_again(project):
    project.update()
    project.kernel(LOAD)
    project.report()
    first = {
        name: (project.path / "out" / name).read_bytes()
        for name in ("gpuperf.json", "gpuperf.html", "gpuperf.md")
    }
    project.report()
    assert first == {name: (project.path / "out" / name).read_bytes() for name in first}
    assert str(project.path) not in first["gpuperf.json"].decode()


def test_candidates_are_the_files_as_an_update_would_write_them(project):
    project.update()
    project.kernel(LOAD)
    project.report()
    candidate = (project.path / "out" / "candidates" / "test_k.yaml").read_text()
    project.update()
    assert project.baseline() == candidate


def test_report_directory_of_the_ini_file(project):
    project.run("-o", "gpuperf_report_dir=perf")
    assert (project.path / "perf" / "gpuperf.html").exists()


def test_report_directory_that_is_a_file_is_a_message(project):
    project.update()
    result = project.run("--gpuperf-report=test_k.py")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*the report was not written: *"])


def test_junit_carries_the_metrics(project):
    project.update()
    project.run("--junitxml=junit.xml", "-o", "junit_family=xunit2")
    root = ElementTree.parse(project.path / "junit.xml").getroot()
    found = {item.get("name"): item.get("value") for item in root.iter("property")}
    assert found["gpuperf.scale.verdict"] == "ok"
    assert found["gpuperf.scale.thread_instructions"] == "320"
    assert found["gpuperf.scale.h100-sxm.time_us"] == "0.01"


def test_markdown_shows_changed_rows_only(project):
    project.update()
    project.kernel(LOAD)
    project.report()
    text = (project.path / "out" / "gpuperf.md").read_text(encoding="utf-8")
    assert text.startswith("## ▲ gpuperf: worse\n")
    assert "| 320 | 384 | +20 % | 0 |" in text
    assert "resources" not in text
    assert "accept: " in text


@pytest.mark.parametrize("mode, expected", [("off", 0), ("on", 1)])
def test_github_annotations(project, mode, expected):
    project.update()
    project.kernel(LOAD)
    output = project.run(f"--gpuperf-github={mode}").stdout.str()
    lines = [line for line in output.splitlines() if line.startswith("::error")]
    assert len(lines) == expected
    if lines:
        assert lines[0].startswith("::error file=test_k.py,line=8,")
        assert "title=gpuperf%3A worse" in lines[0]
        assert "scale is worse" in lines[0]


def test_github_annotates_at_most_ten_and_summarises_all(project, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "summary.md"))
    project.write(
        "test_k.py",
        "import numpy as np, pytest\n@pytest.mark.parametrize('n', range(25))\ndef test_m(gpuperf, n):\n"
        "    gpuperf.kernel('scale.ptx')[1, 32](gpuperf.zeros(4, np.float32), 1.0)\n",
    )
    project.update()
    project.kernel(LOAD)
    output = project.run().stdout.str().splitlines()
    assert sum(line.startswith("::error ") for line in output) == 10
    assert [line for line in output if line.startswith("::notice")] == [
        "::notice title=gpuperf::15 more kernels are in the job summary"
    ]
    assert (project.path / "summary.md").read_text(encoding="utf-8").count("<code>test&#95;m&#91;") >= 25


def test_github_escapes_its_commands(project):
    """A name with a line break, percent signs and separators stays one command with one message."""
    text = (project.path / "test_k.py").read_text()
    project.write("test_k.py", text.replace('entry="scale"', 'entry="scale", name="a%0A,b:c\\n::error::x"'))
    output = project.run("--gpuperf-github=on").stdout.str()
    (command,) = [line for line in output.splitlines() if line.startswith("::")]
    properties, _, message = command.removeprefix("::error ").partition("::")
    assert properties.split(",")[0] == "file=test_k.py"
    assert message.startswith("a%250A,b:c ::error::x (scale) has no baseline")

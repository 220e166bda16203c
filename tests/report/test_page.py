"""The page of --report: whole, safe against what names and fields hold, and nothing fetched."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser

import pytest
import torch
from command import run
from models import bad_files
from models.selection import first

from constructions import inventory_counting, relation_counting
from verify import Verdict, certify
from verify.frame.clock import Budget
from verify.module.problem import ModuleProblem
from verify.report.batch import BatchLine
from verify.report.page import ModelView, batch_page, certificate_page, table_page
from verify.tasks.histogram import proof
from verify.tasks.histogram.task import BracketBar
from verify.tasks.module.task import look_at, problem_parts

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Read(HTMLParser):
    """The tags of a page, each closed in turn, and its text."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.text, self.ids, self.links = [], [], "", set(), set()
        self.feed(page.decode())
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open += [] if tag in VOID else [tag]
        self.ids |= {value for name, value in attrs if name == "id"}
        self.links |= {value for name, value in attrs if name in ("href", "src")}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if not {"style", "script"} & set(self.open) else ""


def test_a_page_says_what_the_report_says(tmp_path, capsys):
    for options, verdict in ((["--model", "dot"], "PROVED"), (["--model", "bos", "--as-printed"], "REFUTED")):
        code, out, _ = run(capsys, "histogram", *options, "--T", "3", "--L", "3", "--report", str(tmp_path / "p.html"))
        page = (tmp_path / "p.html").read_bytes()
        read = Read(page)
        assert out.splitlines()[0] in read.text and verdict in read.text
        assert code == ("PROVED", "REFUTED").index(verdict)
        assert not read.links and not re.search(rb"https?://|@import|url\(", page)
        assert ("Wrong input" in read.text) == (code == 1) and ("Closest call" in read.text) == (code == 0)
        assert b"prefers-color-scheme: dark" in page and b"@media print" in page and b"max-width: 36rem" in page


def test_an_input_is_drawn_token_by_token_with_its_position_marked(tmp_path, capsys):
    argv = ("histogram", "--model", "bos", "--T", "3", "--L", "3", "--as-printed", "--report", str(tmp_path / "p.html"))
    code, out, _ = run(capsys, *argv, "--json")
    said = json.loads(out)
    page = (tmp_path / "p.html").read_text()
    tokens, position = said["counterexample"]["input"], said["counterexample"]["position"]
    boxes = re.findall(r'<span class="token( here)?">(.)</span>', page)
    assert [int(token) for _, token in boxes] == tokens
    assert [i for i, (mark, _) in enumerate(boxes) if mark] == [position]
    low, high = said["error_share"]
    drawn = [float(width) for width in re.findall(r"width:([\d.]+)%", page.split("Share of wrong answers")[1])]
    assert code == 1 and drawn == [pytest.approx(100 * low, abs=0.01), pytest.approx(100 * (high - low), abs=0.01)]
    assert "What was judged" in page and "model=bos, T=3, L=3" in page


def test_the_wrong_input_is_drawn_with_its_logits_and_what_it_attends_to(tmp_path, capsys):
    model = relation_counting.bos_sftm(T=3, L=3)
    with torch.no_grad():
        model.b_2[1] -= 1
    torch.save(model.state_dict(), tmp_path / "m.pt")
    argv = ("histogram", "--weights", str(tmp_path / "m.pt"), "--model", "bos+sftm", "--L", "3", "--json")
    code, out, _ = run(capsys, *argv, "--report", str(tmp_path / "p.html"))
    case, page = json.loads(out)["counterexample"], (tmp_path / "p.html").read_text()
    Read(page.encode())
    with torch.no_grad():
        exact = model.double()
        logits = exact(torch.tensor(case["input"]))[case["position"]].tolist()
    drawn = re.findall(r'<td class="number">(\d) (\w*)</td><td class="number">([^<]*)</td>', page)
    assert code == 1 and [value for _, _, value in drawn] == [f"{logit:.6g}" for logit in logits]
    assert {word: int(name) for name, word, _ in drawn if word} == {
        "right": case["expected"],
        "answered": case["predicted"],
    }
    attended = re.findall(r'<span class="token">(\w+)<br><small>([^<]*)</small>', page)
    x = exact.E.detach()[case["input"]]
    keys = torch.vstack([exact.e_BOS.detach(), x]) @ exact.W_K.detach()
    shares = torch.softmax(keys @ (x[case["position"]] @ exact.W_Q.detach()) / exact.d**0.5, 0).tolist()
    assert [name for name, _ in attended] == ["BOS", *map(str, case["input"])]
    assert [share for _, share in attended] == [f"{share:.2g}" if share >= 0.005 else "~0" for share in shares]


def test_logits_that_are_no_numbers_and_many_classes_are_drawn():
    certificate = replace(
        certify(relation_counting.dot(T=3, L=2), method="exhaustive"), tightest={"input": [0], "expected": 7}
    )
    many = ModelView({7: -5.0, 8: float("nan"), 9: float("inf")} | {k: float(-k) for k in range(10, 60)})
    read = Read(certificate_page(certificate, [], lambda case: many))
    assert "7 right" in read.text and "smaller ones" in read.text


def test_a_modules_logits_are_those_of_its_own_run(tmp_path):
    (tmp_path / "right.py").write_text(bad_files.RIGHT)
    look = look_at(ModuleProblem(*problem_parts(str(tmp_path / "right.py"), None)))
    assert look({"input": [2, 1]}) == ModelView({0: 0.0, 1: 3.0, 2: 9.0})


def test_a_bracket_is_drawn_from_its_lower_end(tmp_path):
    certificate = certify(relation_counting.dot(T=3, L=2), method="exhaustive")
    open_ = replace(certificate, verdict=Verdict.UNKNOWN, reason="cut", error_share=(Fraction(1, 4), Fraction(3, 4)))
    page = certificate_page(open_, []).decode()
    assert re.findall(r"left:([\d.]+)%;width:([\d.]+)%", page) == [("0.00", "25.00"), ("25.00", "50.00")]
    assert "between 0.25 and 0.75" in page


def test_a_batch_is_a_table_with_links_to_the_certificates_below(tmp_path, capsys):
    wrong = relation_counting.dot(T=3, L=2)
    torch.save(wrong.state_dict(), tmp_path / "a.pt")
    with torch.no_grad():
        wrong.b_2[1] -= 1
    torch.save(wrong.state_dict(), tmp_path / "b.pt")
    (tmp_path / "c.pt").write_bytes(b"none")
    code, out, err = run(
        capsys, "batch", str(tmp_path), "--model", "dot", "--L", "2", "--report", str(tmp_path / "batch.html")
    )
    read = Read((tmp_path / "batch.html").read_bytes())
    assert code == 2 and "wrote" in err and "3 files" in out
    assert read.links == {"#f0", "#f1", "#f2"} and read.ids == {"f0", "f1", "f2"}
    assert all(word in read.text for word in ("PROVED", "REFUTED", "BAD INPUT", "not a state dict"))


def test_what_a_name_holds_is_text():
    evil = "<script>alert(1)</script>\" onload='x"
    page = batch_page("histogram", [BatchLine(evil, 2, None, evil, 0.1)])
    assert b"<script>alert" not in page and Read(page).tags.count("script") == 1
    certificate = certify(relation_counting.dot(T=3, L=1))
    read = Read(certificate_page(certificate, [(evil, evil)]))
    assert "script" not in read.tags and evil in read.text and "inf" not in read.text.replace("infin", "")


@pytest.mark.parametrize("target", ["page.txt", "", "nowhere/page.html"])
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_decided(target, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "histogram", "--model", "dot", "--T", "3", "--L", "3", "--report", target)
    assert code == 2 and out == "" and err.count("\n") == 1 and "report" in err


def test_a_table_is_a_page_with_its_figure_and_nothing_of_it_is_markup():
    figure = b'<?xml version="1.0"?>\n<!DOCTYPE svg>\n<svg width="9"><metadata>when</metadata><g></g></svg>\n'
    page = table_page("<t>", ["a < b"], ("d", "said"), [[2, "<b>"], [None, "x"]], figure)
    read = Read(page)
    assert {"t", "b"}.isdisjoint(read.tags) and "svg" in read.tags and "metadata" not in read.tags
    assert "a < b" in read.text and "<b>" in read.text and b"aria-sort" in page and b"<?xml" not in page


@pytest.mark.parametrize(
    "line",
    [
        "frontier histogram --model bos+sftm --T 3,4 --L 2 --steps 5",
        "precision histogram --model dot --T 3 --L 2 --sweep d=3:4 --bits 4,8",
    ],
)
def test_a_sweep_is_a_page_with_a_row_for_each_of_the_tables(line, tmp_path, capsys):
    page = tmp_path / "p.html"
    code, out, err = run(capsys, *line.split(), "--format", "csv", "--report", str(page))
    read = Read(page.read_bytes())
    assert code == 0 and err.splitlines()[-1] == f"wrote {page}"
    assert read.tags.count("tr") == len(out.splitlines()) == 3 and read.tags.count("script") == 1 and not read.links
    assert all(cell in read.text for row in out.splitlines() for cell in row.split(",") if '"' not in row)


@pytest.mark.parametrize(
    "line",
    ["histogram --impossible W-5", "count01 --table", "modular --P 5 --best 1", "contextual --length 9 --figure5",
     "addition --digits 2 --input 01+02="],
)  # fmt: skip
@pytest.mark.parametrize("option", first(1, ["--quiet", "--verbose", "--report=p.html"]))
def test_how_a_verdict_is_shown_is_not_asked_where_nothing_is_decided(line, option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *line.split(), option)
    assert code == 2 and out == "" and err.count("\n") == 1 and f"{option.partition('=')[0]}: has no effect" in err
    assert not list(tmp_path.iterdir())


def test_the_accuracys_bracket_is_drawn_over_time_up_to_what_the_certificate_says(tmp_path, monkeypatch, capsys):
    (tmp_path / "task.py").write_text(
        "import torch\nfrom verify.module import Task, tokens\n"
        "scores = torch.diag(2.4 ** torch.arange(4))\n"
        "class Largest(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.score = torch.nn.Embedding.from_pretrained(scores)\n"
        "    def forward(self, x):\n"
        "        return self.score(x).sum(1)\n"
        "model = lambda weights: Largest().eval()\n"
        "task = Task(inputs=tokens([4] * 5), expected=lambda t: t.amax(1))\n"
    )
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "module", "task.py", "--json", "--report", "p.html")
    counts = {name: int(value) for name, value in json.loads(out)["counts"].items()}
    page = (tmp_path / "p.html").read_text()
    corners = {kind: points.split() for kind, points in re.findall(r'class="(\w+)" points="([^"]*)"', page)}
    assert code == 1 and set(corners) == {"right", "open", "wrong"} and "Accuracy over time" in Read(page.encode()).text
    for kind, last in (("right", 1 - counts["right"] / 4**5), ("wrong", counts["wrong"] / 4**5)):
        x, y = map(float, corners[kind][-2].split(","))
        assert x == 100 and abs(y - 100 * last) < 0.001
    code, _, _ = run(capsys, "histogram", "--model", "dot", "--T", "3", "--L", "2", "--report", "q.html")
    assert code == 0 and "over time" not in (tmp_path / "q.html").read_text()


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["dot", "dot_sftm", "lin"])
@pytest.mark.parametrize("digits", [0, 2])  # whole numbers have many ties, which are left to a search
def test_every_bracket_of_a_histogram_holds_the_exact_share(kind, digits):
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        model = getattr(inventory_counting, kind)(T=4, L=5).requires_grad_(False)
        for p in model.parameters():
            p.copy_((p + 0.3 * torch.randn(p.shape, generator=g)).mul(10**digits).round().div(10**digits))
        bar = BracketBar(lambda share, doing: None)
        found = proof.certify(model, progress=bar, budget=Budget.counting(10**6))
        low, high = found.error_share
        assert low == high and bar.over_time.points
        for _, least, most in bar.brackets(found.error_share):
            assert 0 <= least <= 1 - low <= most <= 1


def test_the_bracket_of_a_histogram_narrows_to_the_certificates(tmp_path, monkeypatch, capsys):
    g = torch.Generator().manual_seed(2)
    model = inventory_counting.dot_sftm(T=7, L=6)
    with torch.no_grad():
        model.E += 0.2 * torch.randn(7, 7, generator=g)
    torch.save(model.state_dict(), tmp_path / "m.pt")
    monkeypatch.chdir(tmp_path)
    line = "histogram --weights m.pt --model dot+sftm --L 6 --json --report p.html"
    for effort in ("20", "1000"):
        code, out, _ = run(capsys, *line.split(), "--effort", effort)
        low, high = (Fraction(share) for share in json.loads(out)["error_share"])
        page = (tmp_path / "p.html").read_text()
        corners = {kind: points.split() for kind, points in re.findall(r'class="(\w+)" points="([^"]*)"', page)}
        assert code == 1 and low > 0 and len(corners["open"]) >= 8
        for kind, last in (("right", high), ("wrong", low)):
            heights = [float(corner.split(",")[1]) for corner in corners[kind][:-2]]
            assert abs(heights[-1] - 100 * last) < 0.001
            assert heights == sorted(heights, reverse=kind == "right")  # what was known stays known

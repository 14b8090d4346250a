"""Tables, pictures and the page say what the recorded runs hold."""

import pytest

from tests.bench import page, report
from tests.bench.__main__ import PARTS
from tests.bench.goals import GOALS, Goal
from tests.bench.plots import curves, draw, peers
from tests.bench.rows import TIMES, Row, alternating


def run(part, *rows, kind="cpu", time="2026-12-01T00:00:00+00:00"):
    return {
        "device": {"name": "Made", "kind": kind, "platform": "P"},
        "time": time,
        "command": "python -m tests.bench --quick --only a --only=b",
        "load": 0.25,
        "rows": [{"part": part} | row.plain() for row in rows],
    }


CURVE = [Row("r", 10.0**x, "steps/s", series="fp32", axis="envs", x=2.0**x) for x in (3, 1, 2)]


def test_figures_are_scaled():
    shown = [report.scaled(x) for x in (52.1e9, 340e6, 95000, 9500, 3.5, None)]
    assert shown == ["52.1 G", "340 M", "95 k", "9,500", "3.5", "-"]


def test_the_command_is_kept_without_where_its_output_went():
    given = ["--quick", "--json", "a.json", "--plots=b", "--only", "bank"]
    assert report.command(given) == "python -m tests.bench --quick --only bank"


def test_rows_of_one_axis_become_panels_of_one_picture(tmp_path):
    lone = Row("lone", 1.0, "bars/s", series="s", axis="bars", x=1.0)
    runs = [run("rollout", *CURVE, lone), run("rollout", *CURVE[:2], kind="gpu")]
    found = curves(runs)
    assert list(found) == ["envs"]  # one point is no curve
    lines = found["envs"]["steps/s"]
    assert lines["cpu", "fp32"] == [(2, 10), (4, 100), (8, 1000)]
    assert lines["gpu", "fp32"] == [(2, 10), (8, 1000)]
    ratio = Row("market, against numba", 8.0, TIMES)
    drawn = draw([*runs, run("parallel_numba", ratio)], tmp_path / "new")
    assert [path.name for path in drawn] == ["bench_envs.png", "bench_peers.png"]
    assert all(path.stat().st_size > 1000 for path in drawn)


def test_peers_come_with_the_fastest_last():
    rows = [Row("a", 8.0, TIMES), Row("b", 0.5, TIMES), Row("c", float("nan"), "")]
    assert peers([run("p", *rows)]) == [("b", "cpu", 0.5), ("a", "cpu", 8.0)]


def test_the_latest_run_of_a_part_counts():
    old = run("market", Row("m", 1.0, "steps/s"))
    old["rows"].append({"part": "bank"} | Row("b", 2.0, "queries/s").plain())
    new = run("market", Row("m", 3.0, "steps/s"), time="2026-12-02T00:00:00+00:00")
    other = run("market", Row("m", 4.0, "steps/s"), kind="gpu", time="2026-12-03T00:00:00+00:00")
    kept = [(r["device"]["kind"], [row["figure"] for row in r["rows"]]) for r in
            page.latest([old, new, other])]  # fmt: skip
    assert kept == [("cpu", [2.0]), ("cpu", [3.0]), ("gpu", [4.0])]


def test_a_mark_is_filled_and_the_text_around_it_stays():
    text = "before\n<!-- market cpu -->\nold\n<!-- end -->\nafter\n"
    made = page.rendered(text, [run("market", Row("m", 3e6, "steps/s", "how", roofline="9 %"))])
    head = "Made (P), 2026-12-01, `python -m tests.bench --quick --only market`, load 0.25"
    assert made.startswith(f"before\n<!-- market cpu -->\n{head} when it began:\n\n")
    assert "| m | 3 M steps/s | 9 %; how |\n<!-- end -->\nafter\n" in made
    assert page.rendered(made, []).count("Not recorded.") == 1
    with pytest.raises(ValueError, match="mark markets cpu"):
        page.rendered(text.replace("market cpu", "markets cpu"), [])


def test_goals_say_whether_they_are_met():
    rows = [Row("a", 90e6, "steps/s", goal="env_cpu"), Row("b", 120e6, "steps/s", goal="env_cpu")]
    lines = page.goals([run("market", *rows)]).splitlines()
    (line,) = [line for line in lines if "two cores" in line]
    assert "| >= 100 M steps/s | 120 M steps/s | yes | Made, 2026-12-01 |" in line
    (line,) = [line for line in page.goals([run("m", rows[0])]).splitlines() if "two cores" in line]
    assert "| 90 M steps/s | **no** |" in line
    assert Goal("t", 15, "%", at_most=True).met(14) and not Goal("t", 15, "%").met(14)


def test_the_committed_page_is_what_the_recorded_runs_give():
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.rendered(text, page.latest(page.recorded())) == text


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_its_place_on_the_page(part):
    assert f"<!-- {part} " in page.PAGE.read_text(encoding="utf-8")


def test_recorded_rows_name_known_goals():
    named = {row["goal"] for run in page.recorded() for row in run["rows"]} - {""}
    assert named <= set(GOALS)


def test_calls_take_turns():
    turns = []
    seconds = alternating(lambda: turns.append("a"), lambda: turns.append("b"), repeats=2)
    assert turns == ["a", "b"] * 3 and len(seconds) == 2

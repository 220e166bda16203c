"""How long the checker is: what its page says, and the most that a task's part may have."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ("reading", "statement", "mathematics")
SPLITS = ("splits", "leaves")
PARTS = (
    "fields",
    "one_by_one",
    "parity",
    "heads",
    "rational_heads",
    "lone_heads",
    "joint_heads",
    "determinants",
    "modular",
    "grokking",
    "layout_program",
    "module_contract",
    "rounded_pairs",
    "addition",
    "columns",
    "digit_prompts",
    "carries",
    "carried_digits",
    "count01",
    "adder",
    "prompts",
    "boxes",
    "exponentials",
    "kinds",
    "questions",
    "module",
    "one_layer",
    "affine",
    "cells",
    "halving",
    "one_head",
    "stages",
    "whole_stages",
    "lines",
    "relaxed",
    "contextual",
    "region_strings",
    "region_bags",
    "region_decoder",
    "named_shapes",
    "ball_rows",
    "placed",
    "places",
    "computed_regions",
    "decoder",
    "counting",
    "counting_task",
    "computed_decoder",
    "moved_decoder",
    "waves",
    "layer_norm",
    "constant_bits",
    "histogram_in_bits",
    "count01_in_bits",
    "count01_in_dtype",
    "computed_prompts",
    "depths",
    "roundoff",
    "any_order",
    "forwards",
    "histogram_in_dtype",
    "rounded_counts",
    "computed_counts",
    "computed_orders",
    "replay",
    "replayed_margins",
    "reruns",
    "rounded_operations",
    "rounded_lines",
    "computed_gates",
    "computed_tables",
    "computed_decays",
    "kept_runs",
    "named_runs",
    "exact_runs",
    "kept_gates",
    "computed_turns",
    "gated_runs",
    "computed_strings",
    "worded",
    "closed_sets",
    "blocks",
    "graphs_of_states",
    "followers",
    "gated",
    "gated_lines",
    "closed_lines",
    "turning",
    "rounded_runs",
    "rounded_boxes",
    "one_string",
    "wrong_prompts",
    "normed_prompts",
    "wrong_steps",
    "wrong_strings",
    "chains",
    "circuits",
    "computed_sums",
    "computed_steps",
    "languages",
    "whole_blocks",
    "block_shapes",
    "block_steps",
    "selective",
    "stored_selective",
    "thermometers",
    "integer_rings",
    "netlists",
    "steady",
    "captured",
    "captured_cells",
    "cell_tasks",
    "corners",
    "creeping",
    "computed_creeps",
    "computed_lengths",
    "creeping_pieces",
)
GRAPHS = ("arrays", "moves", "operations", "graphs")
ROUNDED = ("rounded_module", "rounded_graphs", "rounded_norms", "rounded_results", "moved")
MOST = 150


def lines_of(name):
    """Lines of code of a module: neither blank, nor a comment or a docstring."""
    text = (ROOT / f"verify/checker/{name}.py").read_text()
    documented = (ast.Module, ast.FunctionDef, ast.ClassDef)
    left = {i for i, line in enumerate(text.splitlines(), 1) if line.strip() and not line.strip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            left -= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    return len(left)


def test_the_page_says_how_long_the_checker_is():
    page = (ROOT / "docs/checker.md").read_text()
    core, splits = (sum(map(lines_of, names)) for names in (CORE, SPLITS))
    assert core + splits <= 900
    assert f"checker instead: {core} lines of code" in page and f"and {splits} more in `splits.py`" in page
    assert (
        f"`fields.py`, {lines_of('fields')} lines" in page
        and f"`one_by_one.py`, {lines_of('one_by_one')} lines" in page
    )
    assert f"{sum(map(lines_of, GRAPHS))} lines that follow graphs" in page
    assert f"`moved.py`; {sum(map(lines_of, ROUNDED))} lines" in page


def test_a_part_for_one_task_is_short():
    found = {name: lines_of(name) for name in PARTS + ROUNDED}
    assert max(found.values()) <= MOST, found

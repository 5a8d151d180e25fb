"""The page of the whole graph: every node a link, everything escaped, nothing fetched, and drawn inside its frame."""

import re

import pytest

from tasks.ancestry.graph import graph_of
from tasks.reporting.drawing import BOX_HEIGHT, BOX_WIDTH, drawing_of
from tasks.reporting.lineage_page import render_lineage
from tests.unit.tasks.ancestry.lineage_records import DECISIONS, RECORDS, STANDING, STEPS

GRAPH = graph_of("quick", RECORDS, STANDING, STEPS, DECISIONS)
PAYLOAD = '"><script>window.hit=1</script><img src=x onerror="window.hit=1">'


def test_every_node_is_a_box_that_leads_to_its_entry_and_every_edge_a_line():
    page = render_lineage(GRAPH, {})
    targets = re.findall(r'<a href="#([^"]+)" class', page)
    entries = re.findall(r'<article id="([^"]+)"', page)
    assert len(targets) == len(GRAPH.nodes) == len(set(targets))
    assert sorted(targets) == sorted(entries)
    assert len(re.findall(r"<path class=", page)) == len(GRAPH.edges)
    assert set(re.findall(r'href="#([^"]+)"', page)) == set(entries)


def test_both_sides_of_an_edge_name_the_other():
    page = render_lineage(GRAPH, {})
    article = page[page.index("<h3>policy v2") :]
    article = article[: article.index("</article>")]
    for text in ("(parent)", "(reference)", "(reward model)", "(learnt from)", "rollouts 2</a> (wrote)"):
        assert text in article


def test_links_stand_at_their_node():
    page = render_lineage(GRAPH, {"policy:2": [("folder", "iteration-0001/step-002/policy/")]})
    assert '<a href="iteration-0001/step-002/policy/">folder</a>' in page


@pytest.mark.parametrize("where", ["why", "by", "guard", "promotion", "lineage"])
def test_what_people_wrote_is_text(where):
    decisions = [{**DECISIONS[0], where: PAYLOAD}] if where in ("why", "by") else DECISIONS
    last = {**RECORDS[2], **({"guards": (PAYLOAD,)} if where == "guard" else {"promotion": PAYLOAD})}
    records = [*RECORDS[:2], last]
    name = PAYLOAD if where == "lineage" else "quick"
    page = render_lineage(graph_of(name, records, records, STEPS, decisions), {})
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page


def test_the_page_may_load_and_run_nothing():
    page = render_lineage(GRAPH, {})
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page).group(1)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script-src" not in policy
    assert not re.search(r'(src|href)="(?!#|data:)[a-z]+:', page)


def test_boxes_of_an_iteration_stand_in_a_row_and_none_covers_another():
    drawing = drawing_of(GRAPH)
    places = {box.node.id: (box.x, box.y) for box in drawing.boxes}
    assert places["policy:2"][1] == places["completions:1"][1] < places["policy:3"][1]
    assert len(set(places.values())) == len(places) == len(GRAPH.nodes)
    for x, y in places.values():
        assert 0 <= x <= drawing.width - BOX_WIDTH
        assert 0 <= y <= drawing.height - BOX_HEIGHT

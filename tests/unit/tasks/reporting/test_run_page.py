"""What the page of a run shows: numbers before and after, links, and untrusted text as text."""

from tasks.reporting.run_page import escaped, iteration_rows, iteration_text


def test_a_measure_is_shown_before_and_after_and_left_out_where_it_was_not_taken():
    rows = iteration_rows({"evaluation/accuracy": 0.25}, {"evaluation/accuracy": 0.5, "reward_mean": 0.125})
    assert rows == [
        {"measure": "mean reward of the rollouts", "before": "", "after": "0.125"},
        {"measure": "held-out accuracy", "before": "0.250", "after": "0.500"},
    ]


def test_the_summary_leaves_empty_facts_out_and_links_addresses_only():
    text = iteration_text(
        "a_b, iteration 2",
        {"policy": "v3", "alarm": ""},
        {"report": "/store/a/report.html", "MLflow": "http://127.0.0.1:5000/#/x"},
    )
    assert text == (
        "## a\\_b, iteration 2\n\n- **policy** v3\n\nreport `/store/a/report.html` · [MLflow](http://127.0.0.1:5000/#/x)\n"
    )


def test_text_can_bring_neither_a_tag_nor_a_link_nor_a_line_of_its_own():
    assert escaped("<img src=x>\n[a](b)") == "\\<img src=x\\> \\[a\\](b)"

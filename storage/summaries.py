"""summary.json: a lineage in numbers, for people and scripts."""

import json
from pathlib import Path
from typing import Any

from storage import files, working_copy
from storage.iterations import IterationRecord, records
from storage.lineages import read_recipe
from storage.lock import require_token
from storage.refs import Place

SUMMARY_FILE = "summary.json"


def write_summary(place: Place, summary: dict[str, Any]) -> Path:
    """Rewrite ROOT/LINEAGE/summary.json in one step."""
    require_token(place)
    path = place.lineage_folder / SUMMARY_FILE
    files.write_atomic(path, (json.dumps(summary, indent=1, ensure_ascii=False) + "\n").encode())
    working_copy.send_file(path)
    return path


def read_summary(root: Path, lineage: str) -> dict[str, Any]:
    """The summary, {} before the bootstrap is finished."""
    path = root / lineage / SUMMARY_FILE
    cure = "delete it, the next run writes it anew"
    return files.read_json(path, cure=cure) if path.is_file() else {}


def summary_of(root: Path, lineage: str) -> dict[str, Any]:
    """The lineage's finished iterations in numbers, from their records; a number that was not measured is null."""
    found = records(root, lineage)
    if not found:
        return {}
    return {
        "lineage": lineage,
        "recipe": read_recipe(root, lineage)["name"],
        "baseline_accuracy": found[0].metrics.get("evaluation/accuracy"),
        "baseline_greedy_accuracy": found[0].metrics.get("evaluation/greedy_accuracy"),
        "baseline_accuracy_given_working": found[0].metrics.get("evaluation/accuracy_given_working"),
        "baseline_reward_model_mean": found[0].metrics.get("evaluation/reward_model_mean"),
        "baseline_reward_model_rank_correlation": found[0].metrics.get("evaluation/reward_model_rank_correlation"),
        "iterations": [_summary_row(record) for record in found[1:]],
    }


def _summary_row(record: IterationRecord) -> dict[str, Any]:
    value = record.metrics.get
    return {
        "iteration": record.iteration,
        "reward_mean": value("reward_mean"),
        "accuracy_before": value("evaluation/accuracy_before"),
        "accuracy_after": value("evaluation/accuracy"),
        "greedy_accuracy_after": value("evaluation/greedy_accuracy"),
        "accuracy_given_working_after": value("evaluation/accuracy_given_working"),
        "working_share_after": value("evaluation/working_share"),
        "reward_model_accuracy_before": value("reward_model/heldout_accuracy_before"),
        "reward_model_accuracy_after": value("reward_model/heldout_accuracy_after"),
        "reward_model_auc_before": value("reward_model/heldout_auc_before"),
        "reward_model_auc_after": value("reward_model/heldout_auc_after"),
        "reward_model_mean_after": value("evaluation/reward_model_mean"),
        "reward_model_gap_after": value("evaluation/reward_model_gap"),
        "reward_model_rank_correlation_after": value("evaluation/reward_model_rank_correlation"),
        "reward_model_anchor_accuracy_before": value("reward_model/anchor_accuracy_before"),
        "reward_model_anchor_accuracy_after": value("reward_model/anchor_accuracy_after"),
        "reward_model_ece_raw": value("reward_model/calibration_ece_raw"),
        "reward_model_ece": value("reward_model/calibration_ece"),
        "reward_model_temperature": value("reward_model/temperature"),
        "num_fresh": int(value("replay/num_fresh", 0)),
        "num_replayed": int(value("replay/num_replayed", 0)),
        "policy_version": int(record.policy.version),
        "reward_version": int(record.reward.version),
        "champion_version": int(record.champion.version),
        "promotion": record.promotion,
        "alarm": record.alarm or None,
        "best_iteration": record.best_iteration,
        "guards": list(record.guards),
        "rolled_back_to_version": None if record.rolled_back_to is None else int(record.rolled_back_to.version),
        "reward_promotion": record.reward_promotion,
        "refused_reward_version": None if record.refused_reward is None else int(record.refused_reward.version),
        "outcome": record.outcome,
        "seconds": round(record.seconds, 3),
    }

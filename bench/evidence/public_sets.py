"""The public sets of `retrieval.py`: pools of documents and questions. Nothing of them is part of this project."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "quality"))

from datasets import Document, lines  # noqa: E402


@dataclass(frozen=True)
class Question:
    """A question, asked in one pool. `scored_as` is its id in the file that `score.py` reads."""

    id: str
    scored_as: object
    pool: str
    text: str


@dataclass
class Set:
    """`goal` is the best simple mix of dense and BM25 search that was measured on it (recall@10)."""

    name: str
    goal: float
    pools: Dict[str, List[Document]]
    questions: List[Question] = field(default_factory=list)


def _plain(name: str, goal: float) -> Callable[[Path], Set]:
    def load(folder: Path) -> Set:
        pool = [Document(row["_id"], row["text"], row["title"]) for row in lines(folder / name, "corpus.jsonl")]
        made = Set(name, goal, {name: pool})
        if name == "scifact":
            asked = [(row["_id"], row["claim"]) for row in lines(folder / name, "claims_dev.jsonl")]
        else:
            asked = [(row["_id"], row["text"]) for row in lines(folder / name, "queries.jsonl") if row["gold"]]
        made.questions = [Question(f"{name}:{id}", id, name, text) for id, text in asked]
        return made

    return load


def _locomo(folder: Path) -> Set:
    """A turn is a source, dated by its session; a conversation is a pool."""
    pools: Dict[str, List[Document]] = {}
    for turn in lines(folder / "locomo", "turns.jsonl"):
        pools.setdefault(f"locomo:{turn['conv']}", []).append(
            Document(turn["turn_id"], turn["index_text"], dated=turn["session_date_time"]))
    asked = [row for row in lines(folder / "locomo", "questions.jsonl") if row["evidence"] and row["category"] != 5]
    return Set("locomo", 0.681, pools, [
        Question(f"locomo:{row['qid']}", row["qid"], f"locomo:{row['conv']}", row["question"]) for row in asked])


def _beam(folder: Path) -> Set:
    """A user's message is a source; a chat is a pool. Ids are numbers there."""
    pools: Dict[str, List[Document]] = {}
    user = set()
    for turn in lines(folder / "beam100k", "turns.jsonl"):
        if turn["role"] == "user":
            user.add((turn["chat"], turn["msg_id"]))
            pools.setdefault(f"beam:{turn['chat']}", []).append(Document(str(turn["msg_id"]), turn["text"], dated=turn["time_anchor"]))
    asked = [row for row in lines(folder / "beam100k", "questions.jsonl")
             if any((row["chat"], id) in user for id in row["gold_msg_ids"])]
    return Set("beam", 0.665, pools, [
        Question(f"beam:{row['qid']}", row["qid"], f"beam:{row['chat']}", row["question"]) for row in asked])


SETS: Dict[str, Callable[[Path], Set]] = {
    "scifact": _plain("scifact", 0.845),
    "hotpotqa100": _plain("hotpotqa100", 0.900),
    "musique100": _plain("musique100", 0.703),
    "2wiki101": _plain("2wiki101", 0.686),
    "locomo": _locomo,
    "beam": _beam,
}


def scored_id(name: str, artifact: str) -> object:
    """A source's id as `score.py` knows it."""
    return json.loads(artifact) if name == "beam" else artifact

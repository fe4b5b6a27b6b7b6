"""The public sets in one shape: pools of documents, and questions whose gold spans lie in them.

Nothing of them is part of this project; `--data` names the folder that holds them, one folder a set.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from measure import contains, words


@dataclass(frozen=True)
class Document:
    """One source. `title`, `origin` and `dated` are what the set says of it, None where it says nothing."""

    id: str
    text: str
    title: Optional[str] = None
    origin: Optional[str] = None
    dated: Optional[str] = None


@dataclass(frozen=True)
class Span:
    """A gold span: characters of one document."""

    document: str
    start: int
    end: int


@dataclass(frozen=True)
class Question:
    """`answers` are spellings of the answer, empty where containment of a string says nothing (see `_telling`)."""

    id: str
    text: str
    answerable: bool
    gold: Tuple[Span, ...] = ()
    answers: Tuple[str, ...] = ()


@dataclass
class Pool:
    """What one namespace holds, and what is asked of it."""

    name: str
    documents: List[Document]
    questions: List[Question] = field(default_factory=list)


@dataclass
class Dataset:
    """`gold` says what a gold span is, `unanswerable` which questions have no answer ("" if there are none)."""

    name: str
    gold: str
    unanswerable: str
    pools: List[Pool]

    def sample(self, most: int) -> None:
        """Keeps at most so many questions, the same ones in every run."""
        everything = sorted(question.id for pool in self.pools for question in pool.questions)
        if most and most < len(everything):
            kept = set(random.Random(20).sample(everything, most))
            for pool in self.pools:
                pool.questions = [question for question in pool.questions if question.id in kept]

    @property
    def questions(self) -> List[Question]:
        return [question for pool in self.pools for question in pool.questions]


def lines(folder: Path, *names: str) -> List[dict]:
    """The objects of a file of JSON lines."""
    path = folder.joinpath(*names)
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def _telling(question: str, answers: Sequence[str], gold_texts: Sequence[str]) -> Tuple[str, ...]:
    """The answers whose presence in a payload tells something: no yes or no, not in the question itself, and held
    by a gold document."""
    if any(contains(words(question), answer) for answer in answers):
        return ()
    texts = [words(text) for text in gold_texts]
    return tuple(
        answer for answer in answers
        if words(answer) not in ("", "yes", "no") and any(contains(text, answer) for text in texts)
    )


def multihoprag(folder: Path) -> Dataset:
    corpus = lines(folder, "corpus.jsonl")
    documents = {
        fact["_id"]: Document(fact["_id"], fact["text"], fact["title"], fact["source"], fact["published_at"][:10]) for fact in corpus
    }
    questions = []
    for query in lines(folder, "queries.jsonl"):
        gold = tuple(Span(id, 0, len(documents[id].text)) for id in query["gold"])
        texts = [f"{documents[id].title} {documents[id].text}" for id in query["gold"]]
        questions.append(Question(
            f"mhr:{query['_id']}", query["text"], bool(gold), gold, _telling(query["text"], [str(query["answer"])], texts),
        ))
    return Dataset("multihoprag500", "the facts that the set names", "null_query",
                   [Pool("multihoprag500", list(documents.values()), questions)])


def hotpotqa(folder: Path) -> Dataset:
    corpus = {paragraph["_id"]: paragraph for paragraph in lines(folder, "corpus.jsonl")}
    documents = [Document(id, paragraph["text"], paragraph["title"]) for id, paragraph in corpus.items()]
    questions = []
    for query in lines(folder, "queries.jsonl"):
        gold = []
        for id, sentence in query["gold_sentences"]:
            sentences = corpus[id]["sentences"]
            if sentence < len(sentences):
                start = len("".join(sentences[:sentence]))
                gold.append(Span(id, start, start + len(sentences[sentence])))
        texts = [f"{corpus[id]['title']} {corpus[id]['text']}" for id in query["gold"]]
        questions.append(Question(
            f"hp:{query['_id']}", query["text"], True, tuple(gold), _telling(query["text"], [str(query["answer"])], texts),
        ))
    return Dataset("hotpotqa100", "the supporting sentences that the set names", "", [Pool("hotpotqa100", documents, questions)])


def musique(folder: Path) -> Dataset:
    documents = {
        paragraph["_id"]: Document(paragraph["_id"], paragraph["text"], paragraph["title"]) for paragraph in lines(folder, "corpus.jsonl")
    }
    questions = []
    for query in lines(folder, "queries.jsonl"):
        gold = []
        for id, hop in zip(query["gold"], query["decomposition"]):
            text = documents[id].text
            at = text.lower().find(str(hop["answer"]).lower())
            gold.append(Span(id, at, at + len(str(hop["answer"]))) if at >= 0 else Span(id, 0, len(text)))
        answers = [str(query["answer"]), *map(str, query["answer_aliases"])]
        texts = [f"{documents[id].title} {documents[id].text}" for id in query["gold"]]
        questions.append(Question(f"mq:{query['_id']}", query["text"], True, tuple(gold), _telling(query["text"], answers, texts)))
    return Dataset("musique100", "of each hop's paragraph the first sentence with the hop's answer (the paragraph, where none has it)", "",
                   [Pool("musique100", list(documents.values()), questions)])


def locomo(folder: Path) -> Dataset:
    pools: Dict[str, Pool] = {}
    texts: Dict[Tuple[str, str], str] = {}
    for turn in lines(folder, "turns.jsonl"):
        pool = pools.setdefault(turn["conv"], Pool(turn["conv"], []))
        pool.documents.append(Document(turn["turn_id"], turn["index_text"], dated=turn["session_date_time"]))
        texts[turn["conv"], turn["turn_id"]] = turn["index_text"]
    for query in lines(folder, "questions.jsonl"):
        answerable = query["category"] != 5
        if answerable and not query["evidence"]:
            continue
        gold = tuple(Span(id, 0, len(texts[query["conv"], id])) for id in query["evidence"]) if answerable else ()
        answers = _telling(query["question"], [str(query["answer"])], [texts[query["conv"], span.document] for span in gold])
        pools[query["conv"]].questions.append(Question(f"lo:{query['qid']}", query["question"], answerable, gold, answers))
    return Dataset("locomo", "the turns that the set names (a source is one turn)", "category 5", list(pools.values()))


SETS: Dict[str, Callable[[Path], Dataset]] = {
    "multihoprag500": multihoprag,
    "musique100": musique,
    "hotpotqa100": hotpotqa,
    "locomo": locomo,
}


@dataclass(frozen=True)
class Update:
    """Two messages of a chat about one thing: `new` replaces `old`. `values` are numbers of the right answer that
    only the new one holds."""

    id: str
    kind: str
    question: str
    old: str
    new: str
    values: Tuple[str, ...]


@dataclass
class Chat:
    """A chat's other user messages, and what is updated in it."""

    name: str
    messages: List[Document]
    updates: List[Update]


def beam(folder: Path) -> Tuple[List[Chat], int]:
    """The chats, and how many questions were left out because old and new stand in the same message."""
    turns = {(turn["chat"], turn["msg_id"]): turn for turn in lines(folder, "turns.jsonl")}
    roles = {"knowledge_update": ("original_info", "updated_info"), "contradiction_resolution": ("first_statement", "second_statement")}
    chats: Dict[int, Chat] = {}
    left_out, used = 0, set()
    for query in lines(folder, "questions.jsonl"):
        if query["type"] not in roles:
            continue
        old, new = (query["gold_roles"][role] for role in roles[query["type"]])
        chat = chats.setdefault(query["chat"], Chat(f"beam-{query['chat']}", [], []))
        # Of two statements that contradict each other the later one holds.
        old, new = sorted((old, new), key=max)
        used.update((query["chat"], id) for id in old + new)
        if set(old) & set(new):
            left_out += 1
            continue
        said = ["\n".join(turns[query["chat"], id]["text"] for id in sorted(ids)) for ids in (old, new)]
        numbers = {word for word in words(str(query["answer"])).split() if any(ch.isdigit() for ch in word)}
        values = tuple(sorted(
            number for number in numbers if contains(words(said[1]), number) and not contains(words(said[0]), number)
        )) if query["type"] == "knowledge_update" else ()
        chat.updates.append(Update(query["qid"], query["type"], query["question"], said[0], said[1], values))
    for (number, id), turn in turns.items():
        if turn["role"] == "user" and number in chats and (number, id) not in used:
            chats[number].messages.append(Document(f"msg:{id}", turn["text"], dated=turn["time_anchor"]))
    return list(chats.values()), left_out

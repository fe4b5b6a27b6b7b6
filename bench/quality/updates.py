"""BEAM's updated and contradicted statements: is the old one withheld once its source is replaced?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Sequence, Tuple

import numpy as np

import store
from datasets import Chat, Document, Question, Update
from harness import Report, Session
from measure import contains, words

_BUDGET = 1000
_TOP_K = 6


@dataclass
class Moment:
    """What reads saw at one moment; each list has an entry a question, `served_old` counts claims and raw chunks.
    `named` says that `masked` named the source, `pending` that the read said that work waits."""

    new_found: List[bool] = field(default_factory=list)
    value_found: List[bool] = field(default_factory=list)
    old_text: List[bool] = field(default_factory=list)
    served_old: int = 0
    named: List[bool] = field(default_factory=list)
    pending: List[bool] = field(default_factory=list)


@dataclass
class Outcome:
    """`left_out` questions have old and new in one message. Moments by (kind, moment)."""

    left_out: int
    questions: int = 0
    messages: int = 0
    moments: Dict[Tuple[str, str], Moment] = field(default_factory=dict)

    def at(self, kind: str, moment: str) -> Moment:
        return self.moments.setdefault((kind, moment), Moment())


def artifact(update: Update) -> str:
    return f"fact:{update.id}"


def questions(chats: Sequence[Chat]) -> List[Question]:
    return [Question(f"beam:{update.id}", update.question, True) for chat in chats for update in chat.updates]


def fill(session: Session, chats: Sequence[Chat]) -> None:
    """A namespace a chat with the messages that are not updated."""
    for chat in chats:
        store.create(session, chat.name)
        store.put(session, chat.name, chat.messages)


def run(session: Session, report: Report, chats: Sequence[Chat], left_out: int, vectors: Dict[str, "np.ndarray"]) -> Outcome:
    """Old statements in, ask; replace, ask at once; embed, ask again. A worker must run."""
    outcome = Outcome(left_out, sum(len(chat.updates) for chat in chats), sum(len(chat.messages) for chat in chats))
    old_versions = {chat.name: _put(session, chat, "old") for chat in chats}
    store.wait(session, report, "old statements")
    before = {chat.name: (store.fetch(session, chat.name, "c"), store.fetch(session, chat.name, "k")) for chat in chats}
    texts = {chat.name: _Texts(chat, before[chat.name][0]) for chat in chats}
    for chat in chats:
        _ask(session, outcome, chat, "old in place", texts[chat.name], old_versions[chat.name])
    for chat in chats:
        _put(session, chat, "new")
    for chat in chats:
        _ask(session, outcome, chat, "just replaced", texts[chat.name], old_versions[chat.name])
    store.wait(session, report, "new statements")
    for chat in chats:
        texts[chat.name].learn_new(store.fetch(session, chat.name, "c"))
        _ask(session, outcome, chat, "replaced and embedded", texts[chat.name], old_versions[chat.name])
        _naive(session, outcome, chat, texts[chat.name], before[chat.name][1], vectors)
    for (kind, moment), seen in outcome.moments.items():
        if moment.startswith(("just", "replaced")) and (seen.served_old or any(seen.old_text)):
            report.fault(f"{kind}, {moment}: {seen.served_old} items of an old version served, "
                         f"{sum(seen.old_text)} payloads hold a sentence that only the old statement has")
    return outcome


class _Texts:
    """Which sentences only the old statement has, and which only the new one; both by the claims that were extracted."""

    def __init__(self, chat: Chat, claims: store.Items) -> None:
        self._chat = chat
        self._rest = " ".join(words(message.text) for message in chat.messages)
        self.old = {update.id: self._only(update.old, update.new, update, claims) for update in chat.updates}
        # Until the new claims are fetched, the new statement itself.
        self.new: Dict[str, List[str]] = {update.id: [] for update in chat.updates}

    def learn_new(self, claims: store.Items) -> None:
        """Takes the claims of the new statements."""
        self.new = {update.id: self._only(update.new, update.old, update, claims) for update in self._chat.updates}

    def _only(self, here: str, there: str, update: Update, claims: store.Items) -> List[str]:
        other = f"{words(there)} | {self._rest}"
        found = [body for source, body in zip(claims.sources, claims.bodies) if source == artifact(update)]
        return [body for body in found if not contains(other, body)]


def _put(session: Session, chat: Chat, which: str) -> Dict[str, int]:
    return store.put(session, chat.name, [Document(artifact(update), getattr(update, which)) for update in chat.updates])


def _ask(session: Session, outcome: Outcome, chat: Chat, moment: str, texts: _Texts, old_versions: Dict[str, int]) -> None:
    for mode in ("auto", "vector"):
        reads = store.read(session, chat.name, [Question(f"beam:{update.id}", update.question, True) for update in chat.updates], _BUDGET, mode)
        for update in chat.updates:
            read = reads[f"beam:{update.id}"]
            items = [(claim[1], claim[2], claim[3]) for claim in read["claims"]]
            raw = [(chunk["artifact_id"], chunk["version_id"]) for chunk in read["raw"] or []]
            seen = outcome.at(update.kind, f"{moment}, {mode}")
            versions = [version for _, version, *_ in items] + [version for _, version in raw]
            seen.served_old += versions.count(old_versions[artifact(update)])
            seen.new_found.append(any(
                source == artifact(update) and version != old_versions[source] for source, version in
                [(source, version) for source, version, _ in items] + raw
            ))
            payload = words(read["payload"])
            if update.values:
                seen.value_found.append(all(contains(payload, value) for value in update.values))
            seen.old_text.append(any(contains(payload, body) for body in texts.old[update.id]))
            seen.named.append(any(owner.get("artifact_id") == artifact(update) for owner in read["masked"]))
            seen.pending.append(read["pending"] > 0)


def _naive(
    session: Session, outcome: Outcome, chat: Chat, texts: _Texts, before: store.Items, vectors: Dict[str, "np.ndarray"],
) -> None:
    """The contrast: a store that keeps both statements, and the nearest chunks."""
    after = store.fetch(session, chat.name, "k")
    new_ids = {artifact(update) for update in chat.updates}
    bodies = before.bodies + [body for source, body in zip(after.sources, after.bodies) if source in new_ids]
    extra = after.vectors[[at for at, source in enumerate(after.sources) if source in new_ids]]
    everything = np.concatenate([before.vectors, extra])
    for update in chat.updates:
        nearest = np.argsort(-(everything @ vectors[f"beam:{update.id}"]), kind="stable")[:_TOP_K]
        payload = words(" | ".join(bodies[at] for at in nearest))
        seen = outcome.at(update.kind, f"contrast: top {_TOP_K} of a store that keeps both")
        seen.new_found.append(any(contains(payload, body) for body in texts.new[update.id]))
        if update.values:
            seen.value_found.append(all(contains(payload, value) for value in update.values))
        seen.old_text.append(any(contains(payload, body) for body in texts.old[update.id]))

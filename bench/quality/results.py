"""The figures as Markdown."""

from __future__ import annotations

import math
from typing import Dict, List, Optional, Sequence

import contest
import updates
from contest import Gate, Outcome
from measure import area, balanced_floor, mean, precision_recall, quantile

_FLOORS = [step / 100 for step in range(30, 81, 5)]
_ALARMS = 0.05


def text(machine: Dict[str, str], outcomes: Sequence[Outcome], replaced: Optional[updates.Outcome], faults: Sequence[str]) -> str:
    """All figures."""
    out = [
        "# Quality of reads, as last measured", "",
        "Made by `python3 bench/quality/run.py --data DIR`; do not edit. What is measured and how: `bench/README.md`, section quality.", "",
        ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine.items()) + ".", "",
        f"Faults (must be none): {'none' if not faults else ''}",
        *[f"- {fault}" for fault in faults[:20]], *(["- ..."] if len(faults) > 20 else []), "",
    ]
    if outcomes:
        out += _contained(outcomes) + _ranks(outcomes) + _gates(outcomes) + _headers(outcomes)
    if replaced:
        out += _updates(replaced)
    return "\n".join(out).rstrip() + "\n"


def _contained(outcomes: Sequence[Outcome]) -> List[str]:
    out = [
        "## Gold in the payload, against tokens", "",
        "Over answerable questions. answer: the answer's string is in the payload (only questions where that tells something, see README). "
        "any, all: at least one, every gold claim is in it. recall: mean share of the gold claims in it. "
        "recall/1k: mean recall for each 1,000 mean tokens. raw: share of reads that carry raw text. "
        "Tokens by `estimate/1` for all; coalent keeps its budget by characters / 4, which counts less, so it sends more than the budget says.", "",
    ]
    for outcome in outcomes:
        answerable = sum(question.answerable for question in outcome.dataset.questions)
        told = len(next(iter(outcome.rows.values())).answer)
        out += [
            f"### {outcome.dataset.name}", "",
            f"{outcome.documents:,} sources, {outcome.claims:,} claims, {outcome.chunks:,} chunks; {answerable} answerable questions, {told} with a "
            f"telling answer. Gold: {outcome.dataset.gold}. Arms: {', '.join(sorted(outcome.arms))}.", "",
            "| contestant | budget or k | tokens | answer | any | all | recall | recall/1k | raw |", "|---|---|---|---|---|---|---|---|---|",
        ]
        for (contestant, setting), row in outcome.rows.items():
            out.append(f"| {contestant} | {setting} | " + _cells(contest.summary(row)) + " |")
        out.append("")
        out += _at_equal_tokens(outcome)
    return out


def _cells(values: Dict[str, float]) -> str:
    return " | ".join([f"{values['tokens']:.0f}", *(_share(values[name]) for name in ("answer", "some", "every", "recall")),
                       f"{values['per_thousand']:.2f}", _share(values["escalated"])])


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _at_equal_tokens(outcome: Outcome) -> List[str]:
    """Recall of the budgeted contestants where they send as many tokens as top-k does, by linear interpolation."""
    out = ["Recall and answers at the tokens that top-k sends (interpolated between budgets; - beyond them):", "",
           "| top-k | tokens | " + " | ".join(f"{name} recall, answer" for name in ("naive", *_BUDGETED)) + " |",
           "|---|---|" + "---|" * (1 + len(_BUDGETED))]
    for k in contest.TOP_K:
        naive = contest.summary(outcome.rows["naive top-k", str(k)])
        cells = [f"{_share(naive['recall'])}, {_share(naive['answer'])}"]
        for name in _BUDGETED:
            points = [contest.summary(row) for (contestant, _), row in outcome.rows.items() if contestant == name]
            cells.append(", ".join(_share(_interpolated(points, naive["tokens"], value)) for value in ("recall", "answer")))
        out.append(f"| {k} | {naive['tokens']:.0f} | " + " | ".join(cells) + " |")
    return [*out, ""]


_BUDGETED = ("cortex auto", "cortex vector", "coalent")


def _interpolated(points: Sequence[Dict[str, float]], tokens: float, value: str) -> float:
    for low, high in zip(points, points[1:]):
        if low["tokens"] <= tokens <= high["tokens"]:
            share = (tokens - low["tokens"]) / max(1e-9, high["tokens"] - low["tokens"])
            return low[value] + share * (high[value] - low[value])
    return math.nan


def _ranks(outcomes: Sequence[Outcome]) -> List[str]:
    out = [
        "## Where the first gold claim stands", "",
        "Rank percentile of the first gold claim among all fresh claims of its namespace (0 is the top). cosine: exact, the same for the vector "
        "arm and for coalent. fused: mode auto, by a read of 20,000 tokens; what it did not serve counts as last.", "",
        "| set | order | median | mean | p90 | in the first ten |", "|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        for name, values in outcome.percentiles.items():
            out.append(f"| {outcome.dataset.name} | {name} | {quantile(values, .5):.2f} | {mean(values):.2f} | {quantile(values, .9):.2f} "
                       f"| {_share(mean(outcome.first_ten[name]))} |")
    return [*out, ""]


def _gates(outcomes: Sequence[Outcome]) -> List[str]:
    out = [
        "## needs_retrieval", "",
        "As set now, against questions without an answer. alarms: share of the answerable questions for which it is true. AUC: how probable it is "
        "that an unanswerable question has the lower coverage; 0.5 is chance. best floor: the one with the largest recall minus alarms, chosen on these "
        "very questions. Coverage is a cosine, in mode lexical what `core/src/pool/terms.rs` says of the best claim.", "",
        "| set | unanswerable | read | n | precision | recall | alarms | AUC | best floor: precision, recall, alarms |", "|---|---|---|---|---|---|---|---|---|",
    ]
    for outcome in (one for one in outcomes if one.dataset.unanswerable):
        for name, gate in outcome.gates.items():
            precision, recall, alarms = precision_recall([0.0 if needs else 1.0 for needs in gate.needs], gate.unanswerable, 0.5)
            out.append(f"| {outcome.dataset.name} | {outcome.dataset.unanswerable} | {name} | {sum(gate.unanswerable)} of {len(gate.unanswerable)} "
                       f"| {_share(precision)} | {_share(recall)} | {_share(alarms)} | {_share(area(gate.coverage, gate.unanswerable))} | {_best(gate)} |")
    out += ["", "Coverage of answerable questions (mode auto; share below 0.40 and so escalated now):", "",
            "| set | p5 | median | p95 | below 0.40 |", "|---|---|---|---|---|"]
    for outcome in outcomes:
        own = _answerable(outcome.gates["cortex auto"])
        out.append(f"| {outcome.dataset.name} | {quantile(own, .05):.3f} | {quantile(own, .5):.3f} | {quantile(own, .95):.3f} "
                   f"| {_share(mean([value < 0.40 for value in own]))} |")
    out += ["", "Raw chunks of escalated reads (all budgets), and those whose whole text stands in the claims above them already:", "",
            "| set | mode | raw chunks | repeated |", "|---|---|---|---|"]
    for outcome in outcomes:
        for mode, (chunks, repeated) in outcome.raw.items():
            out.append(f"| {outcome.dataset.name} | {mode} | {chunks:,} | {repeated / chunks:.2f} |")
    return [*out, "", *_sweep(outcomes), *_missed(outcomes)]


def _best(gate: Gate) -> str:
    floor = balanced_floor(gate.coverage, gate.unanswerable)
    return f"{floor:.2f}: " + ", ".join(_short(value) for value in precision_recall(gate.coverage, gate.unanswerable, floor))


def _answerable(gate: Gate) -> List[float]:
    return [value for value, without in zip(gate.coverage, gate.unanswerable) if not without]


def _sweep(outcomes: Sequence[Outcome]) -> List[str]:
    """Thresholds swept, against questions without an answer and against questions of other sets."""
    cases = []
    for outcome in outcomes:
        gate = outcome.gates["cortex auto"]
        if outcome.dataset.unanswerable:
            cases.append((f"{outcome.dataset.name}: {outcome.dataset.unanswerable}", gate.coverage, gate.unanswerable))
        if outcome.foreign:
            own = _answerable(gate)
            cases.append((f"{outcome.dataset.name}: questions of the other sets", own + outcome.foreign, [False] * len(own) + [True] * len(outcome.foreign)))
    foreign = [case for case in cases if case[0].endswith("other sets")]
    if foreign:
        cases.append(("all sets: questions of the other sets", sum((case[1] for case in foreign), []), sum((case[2] for case in foreign), [])))
    out = ["### Floors swept", "", "precision / recall / alarms of `coverage < floor`, mode auto. Questions of another set are about something that the pool does not hold.", "",
           "| case | AUC | best floor | " + " | ".join(f"{floor:.2f}" for floor in _FLOORS) + " |", "|---|---|---|" + "---|" * len(_FLOORS)]
    for name, scores, positive in cases:
        cells = [" / ".join(_short(value) for value in precision_recall(scores, positive, floor)) for floor in _FLOORS]
        out.append(f"| {name} | {_share(area(scores, positive))} | {balanced_floor(scores, positive):.2f} | " + " | ".join(cells) + " |")
    out += ["", "best floor: the one with the largest recall minus alarms."]
    if foreign:
        scores, positive = cases[-1][1], cases[-1][2]
        careful = max((step / 100 for step in range(5, 96) if all(
            precision_recall(case[1], case[2], step / 100)[2] <= _ALARMS for case in foreign)), default=math.nan)
        told = precision_recall(scores, positive, careful)
        out.append(f"The largest floor that raises the alarm for at most {_ALARMS:.0%} of the answerable questions of every set: {careful:.2f} "
                   f"(finds {told[1]:.0%} of the questions of other sets, precision {told[0]:.2f}).")
    return [*out, ""]


def _short(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def _missed(outcomes: Sequence[Outcome]) -> List[str]:
    out = ["### Does coverage tell a miss?", "", f"Answerable questions for which {contest.GATE_BUDGET:,} tokens hold no gold claim at all, and how well coverage tells them.", "",
           "| set | read | misses | AUC | best floor |", "|---|---|---|---|---|"]
    for outcome in outcomes:
        for name in ("cortex auto", "cortex vector", "coalent"):
            gate = outcome.gates[name]
            pairs = [(value, missed) for value, missed in zip(gate.coverage, gate.missed) if missed is not None]
            scores, missed = [value for value, _ in pairs], [bool(missed) for _, missed in pairs]
            best = f"{balanced_floor(scores, missed):.2f}" if any(missed) and not all(missed) else "-"
            out.append(f"| {outcome.dataset.name} | {name} | {sum(missed)} of {len(missed)} | {_share(area(scores, missed))} | {best} |")
    return [*out, ""]


def _headers(outcomes: Sequence[Outcome]) -> List[str]:
    out = ["## Headers", "", "Served claims that do not stand under the header of their own source (must be 0 for Cortex; a header that coalent dropped counts).", "",
           "| set | contestant | claims served | under another header |", "|---|---|---|---|"]
    for outcome in outcomes:
        for name, (served, wrong) in outcome.headers.items():
            out.append(f"| {outcome.dataset.name} | {name} | {served:,} | {wrong:,} |")
    out += ["", "Header ladder, mode auto (coverage: of the best claim, mean over answerable questions):", "",
            "| set | header | budget | coverage | tokens | answer | any | all | recall | recall/1k |", "|---|---|---|---|---|---|---|---|---|---|"]
    for outcome in outcomes:
        for (rung, setting), row in outcome.ladder.items():
            cells = _cells(contest.summary(row)).rsplit(" | ", 1)[0]
            out.append(f"| {outcome.dataset.name} | {rung} | {setting} | {_share(mean(outcome.ladder_coverage[rung]))} | {cells} |")
    return [*out, ""]


def _updates(replaced: updates.Outcome) -> List[str]:
    out = [
        "## Replaced statements (BEAM)", "",
        f"{replaced.questions} questions on {replaced.messages:,} other user messages; {replaced.left_out} left out, their old and new statement stand in one "
        "message. Budget 1,000. new found: a claim or raw chunk of the new statement is served (contrast: a sentence that only it has). value: all numbers "
        "of the right answer that only the new statement has are in the payload. old items: claims and raw chunks of the replaced version. "
        "old text: payloads with a sentence that only the old statement has. Both must be 0 once replaced. masked names it, pending: what the read says.", "",
        "| kind | moment | n | new found | value | old items | old text | masked names it | pending |", "|---|---|---|---|---|---|---|---|---|",
    ]
    for (kind, moment), seen in sorted(replaced.moments.items(), key=lambda entry: entry[0][0]):
        contrast = moment.startswith("contrast")
        out.append(
            f"| {kind} | {moment} | {len(seen.new_found)} | {_share(mean(seen.new_found))} | {_share(mean(seen.value_found))} "
            f"| {'-' if contrast else seen.served_old} | {sum(seen.old_text)} | {_share(mean(seen.named))} | {_share(mean(seen.pending))} |"
        )
    return [*out, ""]

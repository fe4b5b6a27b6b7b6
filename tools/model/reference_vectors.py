#!/usr/bin/env python3
"""Writes the golden vectors of the embedder's agreement test (sidecar/tests/embed_golden.json).

    python3 -m venv VENV && VENV/bin/pip install -r bench/embed/requirements.txt --no-deps
    VENV/bin/python tools/model/reference_vectors.py MODEL_DIR > sidecar/tests/embed_golden.json

The vectors come from a forward pass of its own: double precision, one sentence at a time, weights read straight from the published
file, no ONNX and no padding. So they check the graph as well as the engine that runs it. Only the tokenizer is the published one.
"""

import json
import math
import sys
from pathlib import Path

import numpy
from tokenizers import Tokenizer

from prepare import CONFIG, DESCRIPTION, TOKENIZER, WEIGHTS, safetensors_layout

# Texts that take different ways through tokenizer and model; written in ASCII with escapes.
TEXTS = [
    "This is an example sentence",
    "a",
    "?",
    "The autovacuum daemon removes dead row versions so that their space can be used again.",
    "SELECT count(*) FROM release_note WHERE released_on >= '2024-02-08' AND body ILIKE '%vacuum%';",
    "Upper and lower CASE are the same to this model.",
    "upper and lower case are the same to this model.",
    "Line one\nline two\r\n\tindented line three\u00a0with a no-break space",
    "In 1998, 3.14159 times 2 made 6.28318; -17 degrees; 1,000,000 rows; 50 %.",
    "caf\u00e9 na\u00efve \u00dcberpr\u00fcfung \u0141\u00f3d\u017a stra\u00dfe",
    "cafe\u0301 nai\u0308ve with combining marks",
    "\u0411\u0430\u0437\u0430 \u0434\u0430\u043d\u043d\u044b\u0445 \u0445\u0440\u0430\u043d\u0438\u0442 \u0441\u0442\u0440\u043e\u043a\u0438.",
    "\u6570\u636e\u5e93\u4fdd\u5b58\u6240\u6709\u7684\u884c\u3002",
    "\u30c7\u30fc\u30bf\u30d9\u30fc\u30b9\u306f\u884c\u3092\u4fdd\u5b58\u3059\u308b\u3002",
    "\ub370\uc774\ud130\ubca0\uc774\uc2a4\ub294 \ud589\uc744 \uc800\uc7a5\ud55c\ub2e4.",
    "\u0642\u0627\u0639\u062f\u0629 \u0627\u0644\u0628\u064a\u0627\u0646\u0627\u062a",
    "A smile \U0001f600 and a flag \U0001f1e9\U0001f1f0 beside plain words",
    "control\u0000characters\u0007and a zero\u200bwidth space",
    "the marks [CLS] [SEP] and [MASK] written out in a text",
    "one word beyond the tokenizer's limit: " + "x" * 101 + " and one within: " + "x" * 100,
    # The three around the limit of 256 word pieces, of which two are marks: one below, exactly at, one above.
    " ".join(["row"] * 253),
    " ".join(["row"] * 254),
    " ".join(["row"] * 254 + ["column"]),
    " ".join(f"Statement {number} says that table {number * 7} holds {number * 13} rows." for number in range(60)),
]


def main():
    dest = Path(sys.argv[1])
    weights = read_weights(dest / WEIGHTS)
    tokenizer = Tokenizer.from_file(str(dest / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    limit = DESCRIPTION["max_word_pieces"]
    entries = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        kept = ids if len(ids) <= limit else ids[: limit - 1] + ids[-1:]
        vector = embed(weights, kept)
        entries.append({
            "text": text,
            "word_pieces": len(ids),
            "vector": [round(float(component), 7) for component in vector],
        })
    document = {
        "comment": "Golden vectors; see tools/model/reference_vectors.py, which wrote this file.",
        "model": DESCRIPTION["name"],
        "revision": DESCRIPTION["revision"],
        "entries": entries,
    }
    print(json.dumps(document).replace('{"text"', '\n{"text"'))


def embed(weights, ids):
    """Mean over the last layer of one sentence, scaled to length one."""
    hidden = weights["embeddings.word_embeddings.weight"][ids]
    hidden = hidden + weights["embeddings.position_embeddings.weight"][: len(ids)]
    hidden = hidden + weights["embeddings.token_type_embeddings.weight"][0]
    hidden = layer_norm(weights, "embeddings.LayerNorm", hidden)
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}"
        mixed = attention(weights, f"{prefix}.attention.self", hidden)
        attended = linear(weights, f"{prefix}.attention.output.dense", mixed)
        hidden = layer_norm(weights, f"{prefix}.attention.output.LayerNorm", attended + hidden)
        widened = gelu(linear(weights, f"{prefix}.intermediate.dense", hidden))
        narrowed = linear(weights, f"{prefix}.output.dense", widened)
        hidden = layer_norm(weights, f"{prefix}.output.LayerNorm", narrowed + hidden)
    mean = hidden.mean(axis=0)
    return mean / numpy.linalg.norm(mean)


def attention(weights, prefix, hidden):
    heads = CONFIG["num_attention_heads"]
    size = CONFIG["hidden_size"] // heads
    query, key, value = (linear(weights, f"{prefix}.{part}", hidden) for part in ("query", "key", "value"))
    mixed = []
    for head in range(heads):
        columns = slice(head * size, (head + 1) * size)
        scores = query[:, columns] @ key[:, columns].T / math.sqrt(size)
        exponentials = numpy.exp(scores - scores.max(axis=1, keepdims=True))
        mixed.append(exponentials / exponentials.sum(axis=1, keepdims=True) @ value[:, columns])
    return numpy.concatenate(mixed, axis=1)


def linear(weights, name, rows):
    return rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(weights, name, rows):
    centred = rows - rows.mean(axis=1, keepdims=True)
    deviation = numpy.sqrt((centred**2).mean(axis=1, keepdims=True) + CONFIG["layer_norm_eps"])
    return centred / deviation * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(values):
    return values * 0.5 * (1.0 + numpy.vectorize(math.erf)(values / math.sqrt(2.0)))


def read_weights(path):
    data = path.read_bytes()
    return {
        name: numpy.frombuffer(data, "<f4", length // 4, offset).reshape(shape).astype(numpy.float64)
        for name, (shape, offset, length) in safetensors_layout(path).items()
    }


if __name__ == "__main__":
    main()

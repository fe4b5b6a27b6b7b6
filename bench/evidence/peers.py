"""BM25 of others over the same documents: bm25s and tantivy. A document is one text: title, blank, body."""

from __future__ import annotations

import re
from typing import Callable, List, Sequence, Tuple

import bm25s
import Stemmer
import tantivy

Search = Callable[[str, int], List[int]]


def with_bm25s(texts: Sequence[str]) -> Search:
    """Lucene's form with k1 1.2 and b 0.75, English stop words and stemmer, as `cortex-bm25` has it."""
    stemmer = Stemmer.Stemmer("english")
    retriever = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    retriever.index(bm25s.tokenize(list(texts), stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)

    def search(query: str, k: int) -> List[int]:
        tokens = bm25s.tokenize([query], stopwords="en", stemmer=stemmer, show_progress=False)
        found, scores = retriever.retrieve(tokens, k=k, show_progress=False)
        return [int(n) for n, score in zip(found[0], scores[0]) if score > 0]

    return search


def with_tantivy(texts: Sequence[str]) -> Search:
    """Its BM25 (k1 1.2, b 0.75) with its English stemming tokenizer, any of the query's words, in one segment."""
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("n", stored=True)
    builder.add_text_field("body", tokenizer_name="en_stem")
    index = tantivy.Index(builder.build())
    writer = index.writer(heap_size=200_000_000, num_threads=1)
    for n, text in enumerate(texts):
        writer.add_document(tantivy.Document(n=n, body=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(query: str, k: int) -> List[int]:
        words = " ".join(re.findall(r"\w+", query.lower()))
        hits: List[Tuple[float, object]] = searcher.search(index.parse_query(words, ["body"]), k).hits
        return [searcher.doc(address)["n"][0] for _, address in hits]

    return search

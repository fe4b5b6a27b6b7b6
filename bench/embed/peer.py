"""The peer: onnxruntime on the same graph and weights, driven over the same lines as sidecar/examples/embed_bench.rs.

    peer.py MODEL_DIR SENTENCES_FILE THREADS WAY BATCH

WAY `layers` is the usual one: one batch at a time, each layer spread over all threads. WAY `batches` runs THREADS batches side by
side on one thread each, as our embedder does. Both sort sentences by length and pad to the batch.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import onnxruntime
from tokenizers import Tokenizer

MAX_WORD_PIECES = 256


class Peer:
    def __init__(self, model_dir, threads, way, batch):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads if way == "layers" else 1
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(model_dir / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._side_by_side = ThreadPoolExecutor(threads if way == "batches" else 1)
        self._batch = batch
        self._tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_WORD_PIECES)

    def embed(self, sentences):
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(sentences)]
        order = sorted(range(len(ids)), key=lambda index: -len(ids[index]))
        batches = [order[start:start + self._batch] for start in range(0, len(order), self._batch)]
        vectors = [None] * len(sentences)
        for batch, part in zip(batches, self._side_by_side.map(lambda batch: self._run([ids[index] for index in batch]), batches)):
            for index, vector in zip(batch, part):
                vectors[index] = vector
        return vectors

    def _run(self, rows):
        shape = (len(rows), max(map(len, rows)))
        input_ids, attention_mask = numpy.zeros(shape, numpy.int64), numpy.zeros(shape, numpy.float32)
        for row, ids in enumerate(rows):
            input_ids[row, :len(ids)] = ids
            attention_mask[row, :len(ids)] = 1.0
        sums = self._session.run(["token_sum"], {"input_ids": input_ids, "attention_mask": attention_mask})[0]
        return sums / numpy.linalg.norm(sums, axis=1, keepdims=True)


def main():
    model_dir, sentences_file, threads, way, batch = sys.argv[1:]
    peer = Peer(Path(model_dir), int(threads), way, int(batch))
    sentences = Path(sentences_file).read_text("utf-8").splitlines()
    peer.embed(sentences)
    print("ready", flush=True)
    for request in sys.stdin:
        start = time.perf_counter()
        if request.strip() == "bulk":
            peer.embed(sentences)
        else:
            for sentence in sentences[:int(request)]:
                peer.embed([sentence])
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()

"""The forward pass of a BERT sentence encoder as an ONNX graph, written byte by byte.

The graph holds no weights. Every initializer points into the published safetensors file (ONNX "external data": file, offset,
length), so the weights stay the one file whose digest is pinned, and the graph is a few kilobytes whose bytes depend on nothing
but this file and the header of the weights. Linear layers are stored there as [out, in]; the graph transposes them, which an
engine does once while loading.

Inputs, for b sentences padded to l word pieces:
  input_ids       int64   [b, l]
  attention_mask  float32 [b, l]    1 for a word piece, 0 for padding
Output:
  token_sum       float32 [b, hidden]    the sum of the last layer over the word pieces of each sentence

The mean over word pieces is this sum divided by a positive number, which the L2 normalisation that follows removes again.

Field numbers are those of the ONNX protocol buffer schema (onnx.proto3), IR version 9, operator set 20.
"""

import math
import struct

IR_VERSION = 9
OPSET_VERSION = 20

FLOAT, INT64 = 1, 7
ATTRIBUTE_FLOAT, ATTRIBUTE_INT, ATTRIBUTE_INTS = 1, 2, 7

# Added to the attention score of padding; after the softmax nothing of it is left in single precision.
PADDING_SCORE = 1e9


def build(tensors, config, weights_file):
    """Returns the bytes of the ONNX model.

    `tensors` maps a tensor's name to (shape, offset in the file, length in bytes), as `safetensors_layout` gives it, `config` is
    the model's config.json, `weights_file` the name of the weights beside the graph.
    """
    graph = _Graph(tensors, weights_file)
    heads = config["num_attention_heads"]
    hidden_size = config["hidden_size"]
    head_size = hidden_size // heads

    hidden = _embeddings(graph, config)
    score_bias = _score_bias(graph)
    graph.int_constant("split_heads", [0, 0, heads, head_size])
    graph.int_constant("join_heads", [0, 0, hidden_size])
    graph.float_constant("score_scale", 1.0 / math.sqrt(head_size))
    for layer in range(config["num_hidden_layers"]):
        hidden = _layer(graph, f"encoder.layer.{layer}", hidden, score_bias, config)

    mask_row = graph.node("Unsqueeze", ["attention_mask", "axis_1"])
    sums = graph.node("MatMul", [mask_row, hidden])
    graph.node("Squeeze", [sums, "axis_1"], output="token_sum")
    return graph.model(hidden_size)


def _embeddings(graph, config):
    """Word, position and (always the first) segment embedding, summed and normalised: [b, l, hidden]."""
    graph.int_constant("axis_0", [0])
    graph.int_constant("axis_1", [1])
    word_table = graph.weight("embeddings.word_embeddings.weight")
    position_table = graph.weight("embeddings.position_embeddings.weight")
    segment = graph.first_row("embeddings.token_type_embeddings.weight")
    words = graph.node("Gather", [word_table, "input_ids"])
    length = graph.node("Shape", ["input_ids"], start=1, end=2)
    positions = graph.node("Slice", [position_table, "axis_0", length, "axis_0"])
    with_segment = graph.node("Add", [words, segment])
    summed = graph.node("Add", [with_segment, positions])
    return _layer_norm(graph, "embeddings.LayerNorm", summed, config)


def _score_bias(graph):
    """0 for word pieces and a large negative number for padding, shaped to broadcast over heads and queries: [b, 1, 1, l]."""
    graph.float_constant("one", 1.0)
    graph.float_constant("padding_score", PADDING_SCORE)
    graph.int_constant("axes_1_2", [1, 2])
    shifted = graph.node("Sub", ["attention_mask", "one"])
    scaled = graph.node("Mul", [shifted, "padding_score"])
    return graph.node("Unsqueeze", [scaled, "axes_1_2"])


def _layer(graph, prefix, hidden, score_bias, config):
    """One encoder layer, post-norm as in BERT: attention, add and norm, feed-forward with GELU, add and norm."""
    query = _heads(graph, f"{prefix}.attention.self.query", hidden, [0, 2, 1, 3])
    key = _heads(graph, f"{prefix}.attention.self.key", hidden, [0, 2, 3, 1])
    value = _heads(graph, f"{prefix}.attention.self.value", hidden, [0, 2, 1, 3])
    scores = graph.node("Mul", [graph.node("MatMul", [query, key]), "score_scale"])
    weights = graph.node("Softmax", [graph.node("Add", [scores, score_bias])], axis=-1)
    mixed = graph.node("MatMul", [weights, value])
    joined = graph.node("Reshape", [graph.node("Transpose", [mixed], perm=[0, 2, 1, 3]), "join_heads"])
    attended = _linear(graph, f"{prefix}.attention.output.dense", joined)
    residual = graph.node("Add", [attended, hidden])
    hidden = _layer_norm(graph, f"{prefix}.attention.output.LayerNorm", residual, config)

    widened = graph.node("Gelu", [_linear(graph, f"{prefix}.intermediate.dense", hidden)])
    narrowed = _linear(graph, f"{prefix}.output.dense", widened)
    residual = graph.node("Add", [narrowed, hidden])
    return _layer_norm(graph, f"{prefix}.output.LayerNorm", residual, config)


def _heads(graph, name, hidden, order):
    split = graph.node("Reshape", [_linear(graph, name, hidden), "split_heads"])
    return graph.node("Transpose", [split], perm=order)


def _linear(graph, name, rows):
    weight = graph.node("Transpose", [graph.weight(f"{name}.weight")], perm=[1, 0])
    product = graph.node("MatMul", [rows, weight])
    return graph.node("Add", [product, graph.weight(f"{name}.bias")])


def _layer_norm(graph, name, rows, config):
    scale, shift = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias")
    return graph.node("LayerNormalization", [rows, scale, shift], axis=-1, epsilon=config["layer_norm_eps"])


class _Graph:
    """Collects nodes and initializers in the order in which they are named, which makes the bytes reproducible."""

    def __init__(self, tensors, weights_file):
        self._tensors = tensors
        self._weights_file = weights_file
        self._nodes = []
        self._initializers = []

    def node(self, operator, inputs, output=None, **attributes):
        output = output or f"{operator}_{len(self._nodes)}"
        body = b"".join(_text(1, name) for name in inputs) + _text(2, output) + _text(3, output) + _text(4, operator)
        body += b"".join(_bytes(5, _attribute(name, attributes[name])) for name in sorted(attributes))
        self._nodes.append(body)
        return output

    def weight(self, name):
        shape, offset, length = self._tensors[name]
        return self._external(name, shape, offset, length)

    def first_row(self, name):
        shape, offset, length = self._tensors[name]
        return self._external(name, [1] + shape[1:], offset, length // shape[0])

    def _external(self, name, shape, offset, length):
        place = [("location", self._weights_file), ("offset", str(offset)), ("length", str(length))]
        entries = b"".join(_bytes(13, _text(1, key) + _text(2, value)) for key, value in place)
        self._initializers.append(_tensor(name, FLOAT, shape) + entries + _integer(14, 1))
        return name

    def int_constant(self, name, values):
        raw = struct.pack(f"<{len(values)}q", *values)
        self._initializers.append(_tensor(name, INT64, [len(values)]) + _bytes(9, raw))

    def float_constant(self, name, value):
        self._initializers.append(_tensor(name, FLOAT, []) + _bytes(9, struct.pack("<f", value)))

    def model(self, hidden_size):
        graph = b"".join(_bytes(1, node) for node in self._nodes) + _text(2, "sentence_encoder")
        graph += b"".join(_bytes(5, initializer) for initializer in self._initializers)
        graph += _bytes(11, _value_info("input_ids", INT64, ["b", "l"]))
        graph += _bytes(11, _value_info("attention_mask", FLOAT, ["b", "l"]))
        graph += _bytes(12, _value_info("token_sum", FLOAT, ["b", hidden_size]))
        opset = _text(1, "") + _integer(2, OPSET_VERSION)
        return _integer(1, IR_VERSION) + _text(2, "cortex") + _bytes(7, graph) + _bytes(8, opset)


def _tensor(name, data_type, shape):
    return b"".join(_integer(1, size) for size in shape) + _integer(2, data_type) + _text(8, name)


def _value_info(name, data_type, shape):
    dimensions = b"".join(
        _bytes(1, _integer(1, size) if isinstance(size, int) else _text(2, size)) for size in shape
    )
    tensor_type = _integer(1, data_type) + _bytes(2, dimensions)
    return _text(1, name) + _bytes(2, _bytes(1, tensor_type))


def _attribute(name, value):
    if isinstance(value, float):
        return _text(1, name) + _tag(2, 5) + struct.pack("<f", value) + _integer(20, ATTRIBUTE_FLOAT)
    if isinstance(value, int):
        return _text(1, name) + _integer(3, value) + _integer(20, ATTRIBUTE_INT)
    return _text(1, name) + b"".join(_integer(8, item) for item in value) + _integer(20, ATTRIBUTE_INTS)


# The three encodings of protocol buffers that ONNX needs: tagged variable-length integers, byte strings and text.


def _tag(field, wire_type):
    return _varint(field << 3 | wire_type)


def _integer(field, value):
    return _tag(field, 0) + _varint(value % (1 << 64))


def _bytes(field, value):
    return _tag(field, 2) + _varint(len(value)) + value


def _text(field, value):
    return _bytes(field, value.encode("ascii"))


def _varint(value):
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)

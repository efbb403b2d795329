"""Rewrite a GGUF file with its weights dequantised to float16: `gguf_f16 SOURCE TARGET`.

Vectors (norms) become float32, as usual in such files.
"""

import sys

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

REWRITTEN = ("general.architecture", "general.file_type", "general.quantization_version")
MOSTLY_F16 = 1
"""The file type, in GGUF's own numbering."""


def main() -> None:
    source, target = sys.argv[1:]
    reader = GGUFReader(source)
    writer = f16_writer(target, reader)
    for tensor in reader.tensors:
        add_f16(writer, tensor.name, dequantize(tensor.data, tensor.tensor_type))
    write(writer)


def f16_writer(target: str, reader: GGUFReader, without: str = "GGUF.") -> GGUFWriter:
    """For `target`, with what `reader`'s file says of its model, but for fields that begin so."""
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith(("GGUF.", without)) or field.name in REWRITTEN:
            continue
        kind = field.types[0]
        item_kind = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, item_kind)
    writer.add_file_type(MOSTLY_F16)
    return writer


def add_f16(writer: GGUFWriter, name: str, weights: np.ndarray) -> None:
    """A tensor as such a file holds it."""
    writer.add_tensor(name, weights.astype(np.float16 if weights.ndim > 1 else np.float32))


def write(writer: GGUFWriter) -> None:
    """The file, whole."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
